//! graphile_worker, driven by the benchmarks: `taskharbor-bench-graphile_worker <url> <schema>`.
//!
//! The best setting is the fastest for jobs that do nothing, of those that were tried: 24 to 2,000 handlers, local
//! queues of 500 to 5,000 jobs, one and two of them, completions that are batched for 1 to 5 ms.

use std::{fmt, sync::Arc, time::Duration};

use graphile_worker::{
    Database, IntoTaskHandlerResult, JobSpec, LocalQueueConfig, TaskHandler, Worker, WorkerContext,
    WorkerOptions, WorkerUtils, tokio_postgres::TokioPostgresDatabase,
};
use serde::{Deserialize, Serialize};
use taskharbor_bench_protocol::{Outcome, Probe, Producer, Running, Setting, System, serve};
use tokio::{sync::OnceCell, task::JoinHandle};
use tokio_postgres::{Client, NoTls};

/// As many connections as graphile_worker opens by default.
const CONNECTIONS: usize = 20;
const HANDLERS: usize = 48;
/// Jobs that are fetched ahead.
const LOCAL: usize = 2_000;
/// Completions are batched for so long.
const DELAY: Duration = Duration::from_millis(5);
const POLL: Duration = Duration::from_millis(5);

#[derive(Clone, Serialize, Deserialize)]
struct Noop {
    number: usize,
    pad: String,
}

/// What handlers find in their context.
#[derive(Clone)]
struct Shared(Arc<Probe>);

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

impl TaskHandler for Noop {
    const IDENTIFIER: &'static str = "noop";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        let Some(Shared(probe)) = context.get_ext::<Shared>() else {
            return Err("no probe".to_owned());
        };
        probe.handle(self.number).await;
        Ok(())
    }
}

fn main() -> Outcome {
    let usage = "usage: taskharbor-bench-graphile_worker <url> <schema>";
    let mut arguments = std::env::args().skip(1);
    let (url, schema) = (arguments.next().ok_or(usage)?, arguments.next().ok_or(usage)?);
    serve(&Graphile { url: url.into(), schema: schema.into(), watch: Arc::default() })
}

#[derive(Clone)]
struct Graphile {
    url: Arc<str>,
    schema: Arc<str>,
    watch: Arc<OnceCell<Client>>,
}

impl Graphile {
    fn database(&self, connections: usize) -> Outcome<Database> {
        Ok(TokioPostgresDatabase::from_url(&self.url, connections)?.into())
    }

    fn utils(&self) -> Outcome<WorkerUtils> {
        Ok(WorkerUtils::new(self.database(1)?, &*self.schema))
    }

    async fn watch(&self) -> Outcome<&Client> {
        let connect = async || {
            let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await?;
            tokio::spawn(connection);
            Outcome::Ok(client)
        };
        self.watch.get_or_try_init(connect).await
    }
}

impl System for Graphile {
    type Producer = Enqueuer;
    type Running = Started;

    async fn migrate(&self) -> Outcome {
        Ok(self.utils()?.migrate().await?)
    }

    async fn producer(&self) -> Outcome<Enqueuer> {
        let utils = self.utils()?;
        // Opens the connection.
        utils.migrate().await?;
        Ok(Enqueuer(utils))
    }

    async fn start(&self, setting: Setting, probe: Arc<Probe>) -> Outcome<Started> {
        let mut options = WorkerOptions::default()
            .database(self.database(CONNECTIONS)?)
            .schema(&*self.schema)
            .listen_os_shutdown_signals(false)
            .add_extension(Shared(probe))
            .define_job::<Noop>();
        if let Some(handlers) = setting.handlers.or(setting.is_best.then_some(HANDLERS)) {
            options = options.concurrency(handlers);
        }
        if setting.is_best {
            options = options
                .local_queue(LocalQueueConfig::default().with_size(LOCAL))
                .complete_job_batch_delay(DELAY)
                .poll_interval(POLL);
        }
        let worker = Arc::new(options.init().await?);
        let running = Arc::clone(&worker);
        let task = tokio::spawn(async move { Ok(running.run().await?) });
        Ok(Started { worker, task })
    }

    async fn is_drained(&self) -> Outcome<bool> {
        let sql = format!("SELECT NOT EXISTS (SELECT FROM {}._private_jobs)", self.schema);
        Ok(self.watch().await?.query_one(&sql, &[]).await?.get(0))
    }

    async fn prune(&self) -> Outcome<u64> {
        Ok(0)
    }
}

struct Enqueuer(WorkerUtils);

impl Producer for Enqueuer {
    async fn one(&mut self, number: usize, pad: String) -> Outcome {
        self.0.add_job(Noop { number, pad }, JobSpec::default()).await?;
        Ok(())
    }

    async fn many(&mut self, count: usize, pad: String) -> Outcome {
        let spec = JobSpec::default();
        let jobs = (0..count).map(|number| (Noop { number, pad: pad.clone() }, &spec));
        let jobs: Vec<_> = jobs.collect();
        let stored = self.0.add_jobs::<Noop>(&jobs).await?.len();
        if stored < count {
            return Err(format!("{stored} of {count} jobs were stored").into());
        }
        Ok(())
    }
}

struct Started {
    worker: Arc<Worker>,
    task: JoinHandle<Outcome>,
}

impl Running for Started {
    async fn stop(self) -> Outcome {
        self.worker.request_shutdown();
        self.task.await?
    }
}
