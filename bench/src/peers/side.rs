//! TaskHarbor as one of the sides that are compared: `taskharbor-bench peers-side <url> <schema>`.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use taskharbor::{
    AnyDriver, Client, Context, Handlers, Job, JobResult, Running as Started, Worker,
};
use taskharbor_core::{
    Admin,
    admin::{Counts, Prune},
};
use taskharbor_postgres::{Config, PostgresDriver, SchemaName};
use taskharbor_sqlite::SqliteDriver;
use tokio::sync::OnceCell;

use super::protocol::{Outcome, Probe, Producer, Running, Setting, System, serve};

/// The handlers of a worker as the README shows it.
const FEW: usize = 16;
/// The fastest for jobs that do nothing, of 16 to 5,000.
const MANY: usize = 2_000;
const QUEUE: &str = "default";
const BULK: usize = 1_000;
/// Longer than any lease of the benchmark.
const LEASES: Duration = Duration::from_secs(3_600);

#[derive(Serialize, Deserialize, Job)]
#[job(type = "noop")]
struct Noop {
    number: usize,
    pad: String,
}

/// Obeys the lines on the standard input.
pub(crate) fn run(arguments: &[&str]) -> Outcome {
    let [url, schema] = *arguments else {
        return Err("usage: peers-side <url> <schema>".into());
    };
    serve(&Side { url: url.into(), schema: schema.into(), watch: Arc::default() })
}

#[derive(Clone)]
struct Side {
    url: Arc<str>,
    schema: Arc<str>,
    /// A process opens a file once. On a server, producers and workers have connections of their own.
    watch: Arc<OnceCell<AnyDriver>>,
}

impl Side {
    async fn driver(&self) -> Outcome<AnyDriver> {
        if self.url.starts_with("sqlite:") {
            return Ok(self.watch().await?.clone());
        }
        self.open().await
    }

    async fn watch(&self) -> Outcome<&AnyDriver> {
        self.watch.get_or_try_init(|| self.open()).await
    }

    async fn open(&self) -> Outcome<AnyDriver> {
        if let Some(path) = self.url.strip_prefix("sqlite:") {
            let config = taskharbor_sqlite::Config::new(path).create(true);
            return Ok(AnyDriver::new(SqliteDriver::open_with(config).await?));
        }
        let config = Config::from_url(&self.url)?.schema(SchemaName::new(&*self.schema)?);
        Ok(AnyDriver::new(PostgresDriver::open(config).await?))
    }
}

impl System for Side {
    type Producer = Enqueuer;
    type Running = Working;

    async fn migrate(&self) -> Outcome {
        Ok(self.driver().await?.migrate().await?)
    }

    async fn producer(&self) -> Outcome<Enqueuer> {
        Ok(Enqueuer(Client::new(&self.driver().await?)))
    }

    async fn start(&self, setting: Setting, probe: Arc<Probe>) -> Outcome<Working> {
        let noop = move |job: Noop, _: Context| {
            let probe = Arc::clone(&probe);
            async move {
                probe.handle(job.number).await;
                JobResult::Ok(())
            }
        };
        let worker = Worker::builder(&self.driver().await?)
            .handlers(Handlers::new().on(noop))
            .queue(QUEUE, setting.handlers_or(FEW, MANY));
        Ok(Working(worker.build()?.start()))
    }

    async fn is_drained(&self) -> Outcome<bool> {
        let driver = self.watch().await?;
        let counts = driver.counts(Counts::new(driver.now().await?).at_most(1)).await?;
        Ok(counts.iter().all(|it| it.states.ready == 0 && it.states.inflight == 0))
    }

    async fn prune(&self) -> Outcome<u64> {
        let driver = self.watch().await?;
        // What is over is kept for as long as its lease would have lasted.
        let later = driver.now().await?.saturating_add(LEASES);
        let mut removed = 0;
        loop {
            let count = driver.prune(Prune::new(BULK, later).done_before(later)).await?;
            removed += u64::try_from(count)?;
            if count < BULK {
                return Ok(removed);
            }
        }
    }
}

struct Enqueuer(Client);

impl Producer for Enqueuer {
    async fn one(&mut self, number: usize, pad: String) -> Outcome {
        self.0.enqueue(Noop { number, pad }).await?;
        Ok(())
    }

    async fn many(&mut self, count: usize, pad: String) -> Outcome {
        let jobs = (0..count).map(|number| Noop { number, pad: pad.clone() });
        self.0.enqueue_many(jobs).await?;
        Ok(())
    }
}

struct Working(Started);

impl Running for Working {
    async fn stop(self) -> Outcome {
        Ok(self.0.shutdown().await?)
    }
}
