//! apalis-postgres.

use std::{any::type_name, sync::Arc};

use apalis::prelude::*;
use apalis_postgres::{Config, PostgresStorage};
use sqlx::{PgPool, postgres::PgPoolOptions};
use taskharbor_bench_protocol::{Outcome, Probe, Producer, Setting, System};
use tokio::{runtime::Handle, sync::OnceCell, task::spawn_blocking};

use crate::{BATCH, CONNECTIONS, MANY, Noop, POLL, Worker, noop, worker_name};

#[derive(Clone)]
pub(crate) struct Apalis {
    url: Arc<str>,
    watch: Arc<OnceCell<PgPool>>,
}

impl Apalis {
    pub(crate) fn new(url: &str) -> Self {
        Self { url: url.into(), watch: Arc::default() }
    }

    async fn pool(&self) -> Outcome<PgPool> {
        Ok(PgPoolOptions::new().max_connections(CONNECTIONS).connect(&self.url).await?)
    }
}

impl System for Apalis {
    type Producer = Enqueuer;
    type Running = Worker;

    async fn migrate(&self) -> Outcome {
        Ok(PostgresStorage::setup(&self.pool().await?).await?)
    }

    async fn producer(&self) -> Outcome<Enqueuer> {
        Ok(Enqueuer(PostgresStorage::new(&self.pool().await?)))
    }

    async fn start(&self, setting: Setting, probe: Arc<Probe>) -> Outcome<Worker> {
        let storage: PostgresStorage<Noop> = PostgresStorage::new(&self.pool().await?);
        // On a thread of its own, as in a program whose `main` runs the worker.
        let runtime = Handle::current();
        let context = WorkerContext::new(&worker_name());
        let handlers = setting.handlers_or(MANY, MANY);
        let task = if setting.is_best {
            let config = Config::default().queue(type_name::<Noop>()).batch_size(BATCH);
            let storage = storage
                .with_config(config)
                .with_pubsub()
                .poll_with_strategy(Strategy::new().interval(POLL));
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
        let sql = "SELECT NOT EXISTS (SELECT FROM apalis.jobs WHERE status <> 'Done')";
        Ok(sqlx::query_scalar(sql)
            .fetch_one(self.watch.get_or_try_init(|| self.pool()).await?)
            .await?)
    }

    async fn prune(&self) -> Outcome<u64> {
        // As the statement that it calls vacuum, which no public function runs.
        let sql = "DELETE FROM apalis.jobs WHERE status = 'Done'";
        Ok(sqlx::query(sql).execute(&self.pool().await?).await?.rows_affected())
    }
}

pub(crate) struct Enqueuer(PostgresStorage<Noop>);

impl Producer for Enqueuer {
    async fn one(&mut self, number: usize, pad: String) -> Outcome {
        Ok(self.0.push(Noop { number, pad }).await?)
    }

    async fn many(&mut self, count: usize, pad: String) -> Outcome {
        let jobs = (0..count).map(|number| Noop { number, pad: pad.clone() });
        Ok(self.0.push_bulk(jobs.collect()).await?)
    }
}
