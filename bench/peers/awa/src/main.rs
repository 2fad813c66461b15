//! awa, driven by the benchmarks: `taskharbor-bench-awa <url> <schema>`. The schema is not used, since each side
//! has a database of its own.

use std::{sync::Arc, time::Duration};

use awa::{
    Client, InsertOpts, InsertParams, JobArgs, JobError, JobResult, QueueConfig, QueueStorage,
    QueueStorageConfig, model::insert::params,
};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, postgres::PgPoolOptions};
use taskharbor_bench_protocol::{Outcome, Probe, Producer, Running, Setting, System, serve};
use tokio::{runtime::Handle, sync::OnceCell, task::spawn_blocking};

const QUEUE: &str = "default";
const CONNECTIONS: u32 = 20;
/// Jobs that the best setting runs at once.
const HANDLERS: u32 = 1_000;
/// Loops that fetch, and jobs that each of them fetches in one call.
const CLAIMERS: u16 = 2;
const BATCH: usize = 500;
/// As in its own benchmarks.
const POLL: Duration = Duration::from_millis(50);
const SHUTDOWN: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, Serialize, Deserialize, JobArgs)]
struct Noop {
    number: usize,
    pad: String,
}

fn main() -> Outcome {
    let usage = "usage: taskharbor-bench-awa <url> <schema>";
    let url = std::env::args().nth(1).ok_or(usage)?;
    serve(&Awa { url: url.into(), watch: Arc::default() })
}

#[derive(Clone)]
struct Awa {
    url: Arc<str>,
    watch: Arc<OnceCell<PgPool>>,
}

impl Awa {
    async fn pool(&self) -> Outcome<PgPool> {
        Ok(PgPoolOptions::new().max_connections(CONNECTIONS).connect(&self.url).await?)
    }

    fn client(&self, pool: PgPool, config: QueueConfig, probe: Arc<Probe>) -> Outcome<Client> {
        let handler = move |job: Noop, _: &awa::JobContext| {
            let probe = Arc::clone(&probe);
            async move {
                probe.handle(job.number).await;
                Ok::<_, JobError>(JobResult::Completed)
            }
        };
        let client = Client::builder(pool).queue(QUEUE, config);
        Ok(client.register::<Noop, _, _>(handler).build()?)
    }
}

impl System for Awa {
    type Producer = Enqueuer;
    type Running = Worker;

    async fn migrate(&self) -> Outcome {
        let pool = self.pool().await?;
        // Its future cannot be moved between threads.
        let (runtime, migrated) = (Handle::current(), pool.clone());
        let migrate = move || runtime.block_on(awa::migrations::run(&migrated));
        spawn_blocking(migrate).await??;
        // The first client of a new database switches to the queue storage of 0.6.
        let client = self.client(pool, QueueConfig::default(), Arc::default())?;
        client.start().await?;
        client.shutdown(SHUTDOWN).await;
        Ok(())
    }

    async fn producer(&self) -> Outcome<Enqueuer> {
        let store = QueueStorage::new(QueueStorageConfig::default())?;
        Ok(Enqueuer { pool: self.pool().await?, store })
    }

    async fn start(&self, setting: Setting, probe: Arc<Probe>) -> Outcome<Worker> {
        let mut config = QueueConfig::default();
        if setting.is_best {
            config.max_workers = HANDLERS;
            config.claimers = CLAIMERS;
            config.claim_batch_size = BATCH;
            config.poll_interval = POLL;
            // Its short path, for jobs without a deadline.
            config.deadline_duration = Duration::ZERO;
        }
        if let Some(handlers) = setting.handlers {
            config.max_workers = u32::try_from(handlers)?;
        }
        let client = self.client(self.pool().await?, config, probe)?;
        client.start().await?;
        Ok(Worker(client))
    }

    async fn is_drained(&self) -> Outcome<bool> {
        let store = QueueStorage::new(QueueStorageConfig::default())?;
        let pool = self.watch.get_or_try_init(|| self.pool()).await?;
        let counts = store.queue_counts(pool, QUEUE).await?;
        Ok(counts.available == 0 && counts.running == 0)
    }

    async fn prune(&self) -> Outcome<u64> {
        // Its worker rotates partitions and truncates the old ones while it runs.
        Ok(0)
    }
}

struct Enqueuer {
    pool: PgPool,
    store: QueueStorage,
}

impl Producer for Enqueuer {
    async fn one(&mut self, number: usize, pad: String) -> Outcome {
        awa::insert_with(&self.pool, &Noop { number, pad }, InsertOpts::default()).await?;
        Ok(())
    }

    async fn many(&mut self, count: usize, pad: String) -> Outcome {
        let jobs = (0..count).map(|number| params(&Noop { number, pad: pad.clone() }));
        let jobs: Vec<InsertParams> = jobs.collect::<Result<_, _>>()?;
        let stored = self.store.enqueue_params_copy(&self.pool, &jobs).await?;
        if stored < count {
            return Err(format!("{stored} of {count} jobs were stored").into());
        }
        Ok(())
    }
}

struct Worker(Client);

impl Running for Worker {
    async fn stop(self) -> Outcome {
        self.0.shutdown(SHUTDOWN).await;
        Ok(())
    }
}
