//! apalis-sqlite.

use std::{any::type_name, str::FromStr, sync::Arc};

use apalis::prelude::*;
use apalis_sqlite::{Config, SqliteStorage, callback::HookCallbackListener};
use futures::StreamExt;
use sqlx::{
    Connection, SqliteConnection, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode},
};
use taskharbor_bench_protocol::{Outcome, Probe, Producer, Setting, System};
use tokio::{runtime::Handle, sync::OnceCell, task::spawn_blocking};

use crate::{BATCH, MANY, Noop, POLL, Worker, noop, worker_name};

/// One pool for producers and workers, as in one process: its hook wakes the worker.
///
/// Connections are opened as it opens them, so `synchronous` is `FULL`, which is the default of SQLite, as for the
/// other sides. The `setup` of apalis switches it off, so that its migrations are run without it.
#[derive(Clone)]
pub(crate) struct Apalis {
    url: Arc<str>,
    opened: Arc<OnceCell<(SqlitePool, HookCallbackListener)>>,
}

impl Apalis {
    pub(crate) fn new(url: &str) -> Self {
        Self { url: url.into(), opened: Arc::default() }
    }

    async fn open(&self) -> Outcome<(SqlitePool, HookCallbackListener)> {
        let open = async || SqliteStorage::connect_with_callback(&self.url);
        Ok(self.opened.get_or_try_init(open).await?.clone())
    }
}

impl System for Apalis {
    type Producer = Enqueuer;
    type Running = Worker;

    async fn migrate(&self) -> Outcome {
        // The mode stays with the file.
        let options = SqliteConnectOptions::from_str(&self.url)?
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal);
        SqliteConnection::connect_with(&options).await?.close().await?;
        let (pool, _) = self.open().await?;
        Ok(SqliteStorage::migrations().run(&pool).await?)
    }

    async fn producer(&self) -> Outcome<Enqueuer> {
        let (pool, _) = self.open().await?;
        Ok(Enqueuer(SqliteStorage::new(&pool)))
    }

    async fn start(&self, setting: Setting, probe: Arc<Probe>) -> Outcome<Worker> {
        let (pool, listener) = self.open().await?;
        let storage: SqliteStorage<Noop> = SqliteStorage::new(&pool);
        // On a thread of its own, as in a program whose `main` runs the worker.
        let runtime = Handle::current();
        let context = WorkerContext::new(&worker_name());
        let handlers = setting.handlers_or(MANY, MANY);
        let task = if setting.is_best {
            let config = Config::default().queue(type_name::<Noop>()).batch_size(BATCH);
            let strategy = Strategy::new().stream(listener.ready_chunks(BATCH)).interval(POLL);
            let storage = storage.with_config(config).poll_with_strategy(strategy);
            let worker = WorkerBuilder::new(&context)
                .backend(storage)
                .data(probe)
                .concurrency(handlers)
                .parallelize(tokio::spawn)
                .build(noop);
            spawn_blocking(move || Ok(runtime.block_on(worker.run())?))
        } else {
            let worker = WorkerBuilder::new(&context).backend(storage).data(probe).build(noop);
            spawn_blocking(move || Ok(runtime.block_on(worker.run())?))
        };
        Ok(Worker { context, task })
    }

    async fn is_drained(&self) -> Outcome<bool> {
        let sql = "SELECT NOT EXISTS (SELECT 1 FROM Jobs WHERE status <> 'Done')";
        let (pool, _) = self.open().await?;
        Ok(sqlx::query_scalar(sql).fetch_one(&pool).await?)
    }

    async fn prune(&self) -> Outcome<u64> {
        let sql = "DELETE FROM Jobs WHERE status = 'Done'";
        let (pool, _) = self.open().await?;
        Ok(sqlx::query(sql).execute(&pool).await?.rows_affected())
    }
}

pub(crate) struct Enqueuer(SqliteStorage<Noop>);

impl Producer for Enqueuer {
    async fn one(&mut self, number: usize, pad: String) -> Outcome {
        Ok(self.0.push(Noop { number, pad }).await?)
    }

    async fn many(&mut self, count: usize, pad: String) -> Outcome {
        let jobs = (0..count).map(|number| Noop { number, pad: pad.clone() });
        Ok(self.0.push_bulk(jobs.collect()).await?)
    }
}
