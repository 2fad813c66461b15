//! River for Rust, driven by the benchmarks: `taskharbor-bench-riverqueue <url> <schema>`. The schema is not used,
//! since each side has a database of its own. The URL of a file begins with `sqlite:`.

use std::{str::FromStr, sync::Arc, time::Duration};

use riverqueue::{
    BoxError, Client, Job, JobArgs, QueueConfig, RunHandle, WorkContext, WorkOutcome, Workers,
    database::SqliteDatabase,
    migrate::{PostgresMigrator, SqliteMigrator},
    sqlx::{
        self, PgPool, SqlitePool,
        postgres::PgPoolOptions,
        sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
    },
};
use serde::{Deserialize, Serialize};
use taskharbor_bench_protocol::{Outcome, Probe, Producer, Running, Setting, System, serve};
use tokio::sync::OnceCell;

/// As the example of its documents.
const FEW: usize = 10;
/// From 1,000 workers on it fetches the next jobs while it completes the last ones.
const MANY: usize = 2_000;
/// Its least delay between two fetches.
const COOLDOWN: Duration = Duration::from_millis(1);
const CONNECTIONS: u32 = 20;

#[derive(Clone, Debug, Deserialize, JobArgs, Serialize)]
#[river(kind = "noop")]
struct Noop {
    number: usize,
    pad: String,
}

fn main() -> Outcome {
    let usage = "usage: taskharbor-bench-riverqueue <url> <schema>";
    let url = std::env::args().nth(1).ok_or(usage)?;
    serve(&River { url: url.into(), watch: Arc::default() })
}

#[derive(Clone)]
struct River {
    url: Arc<str>,
    watch: Arc<OnceCell<Pool>>,
}

#[derive(Clone)]
enum Pool {
    Postgres(PgPool),
    Sqlite(SqlitePool),
}

impl River {
    async fn pool(&self) -> Outcome<Pool> {
        if !self.url.starts_with("sqlite:") {
            let options = PgPoolOptions::new().max_connections(CONNECTIONS);
            return Ok(Pool::Postgres(options.connect(&self.url).await?));
        }
        // As its documents advise, and as durable as the other sides.
        let options = SqliteConnectOptions::from_str(&self.url)?
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(Duration::from_secs(5));
        Ok(Pool::Sqlite(SqlitePoolOptions::new().max_connections(5).connect_with(options).await?))
    }

    async fn client(&self) -> Outcome<Client> {
        Ok(match self.pool().await? {
            Pool::Postgres(pool) => Client::builder(pool).build()?,
            Pool::Sqlite(pool) => Client::builder(SqliteDatabase::new(pool)).build()?,
        })
    }
}

impl System for River {
    type Producer = Enqueuer;
    type Running = Worker;

    async fn migrate(&self) -> Outcome {
        match self.pool().await? {
            Pool::Postgres(pool) => drop(PostgresMigrator::new(pool).migrate_up().await?),
            Pool::Sqlite(pool) => drop(SqliteMigrator::new(pool).migrate_up().await?),
        }
        Ok(())
    }

    async fn producer(&self) -> Outcome<Enqueuer> {
        Ok(Enqueuer(self.client().await?))
    }

    async fn start(&self, setting: Setting, probe: Arc<Probe>) -> Outcome<Worker> {
        let mut workers = Workers::new();
        workers.add_fn(move |_: WorkContext, job: Job<Noop>| {
            let probe = Arc::clone(&probe);
            async move {
                probe.handle(job.args.number).await;
                Ok::<_, BoxError>(WorkOutcome::Complete)
            }
        })?;
        let builder = match self.pool().await? {
            Pool::Postgres(pool) => Client::builder(pool),
            Pool::Sqlite(pool) => Client::builder(SqliteDatabase::new(pool)),
        };
        let config = QueueConfig::new(setting.handlers_or(FEW, MANY));
        let mut builder = builder.workers(workers).queue("default", config);
        if setting.is_best {
            builder = builder.fetch_cooldown(COOLDOWN);
        }
        Ok(Worker(builder.build()?.start()?))
    }

    async fn is_drained(&self) -> Outcome<bool> {
        let sql = "SELECT NOT EXISTS (SELECT FROM river_job WHERE state <> 'completed')";
        let sqlite = "SELECT NOT EXISTS (SELECT 1 FROM river_job WHERE state <> 'completed')";
        Ok(match self.watch.get_or_try_init(|| self.pool()).await? {
            Pool::Postgres(pool) => sqlx::query_scalar(sql).fetch_one(pool).await?,
            Pool::Sqlite(pool) => sqlx::query_scalar(sqlite).fetch_one(pool).await?,
        })
    }

    async fn prune(&self) -> Outcome<u64> {
        // As its job cleaner does after the retention.
        let sql = "DELETE FROM river_job WHERE state = 'completed'";
        Ok(match self.pool().await? {
            Pool::Postgres(pool) => sqlx::query(sql).execute(&pool).await?.rows_affected(),
            Pool::Sqlite(pool) => sqlx::query(sql).execute(&pool).await?.rows_affected(),
        })
    }
}

struct Enqueuer(Client);

impl Producer for Enqueuer {
    async fn one(&mut self, number: usize, pad: String) -> Outcome {
        self.0.insert(Noop { number, pad }).await?;
        Ok(())
    }

    async fn many(&mut self, count: usize, pad: String) -> Outcome {
        let jobs = (0..count).map(|number| Noop { number, pad: pad.clone() });
        self.0.insert_many(jobs).await?;
        Ok(())
    }
}

struct Worker(RunHandle);

impl Running for Worker {
    async fn stop(mut self) -> Outcome {
        Ok(self.0.stop().await?)
    }
}
