//! worklane, driven by the benchmarks: `taskharbor-bench-worklane <url> <schema>`. The schema is not used, since
//! each side has a database of its own. The URL of a file begins with `sqlite:`.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use taskharbor_bench_protocol::{Outcome, Probe, Producer, Running, Setting, System, serve};
use tokio::{
    sync::{OnceCell, oneshot},
    task::JoinHandle,
};
use tokio_postgres::NoTls;
use worklane::{
    Broker, Client, DEFAULT_MAX_ATTEMPTS, HandlerResult, Job, JobContext, Lane, NewJob, Worker,
    async_trait, to_payload,
};
use worklane_postgres::PostgresBroker;
use worklane_sqlite::{SqliteBroker, rusqlite};

/// Workers in the process, with a connection for each handler. One worker reserves one job after another.
const WORKERS: usize = 8;
const HANDLERS: usize = 4;
const POLL: Duration = Duration::from_millis(5);
const FILE: &str = "sqlite:";
const LEFT: &str = "SELECT count(*) FROM jobs";

#[derive(Debug, Deserialize, Serialize)]
struct Payload {
    number: usize,
    pad: String,
}

struct Noop(Arc<Probe>);

#[async_trait]
impl Job for Noop {
    type Payload = Payload;
    type Output = ();
    const KIND: &'static str = "noop";

    async fn run(&self, _: JobContext, payload: Payload) -> HandlerResult<()> {
        self.0.handle(payload.number).await;
        Ok(())
    }
}

fn main() -> Outcome {
    let usage = "usage: taskharbor-bench-worklane <url> <schema>";
    let url = std::env::args().nth(1).ok_or(usage)?;
    serve(&Worklane { url: url.into(), watch: Arc::default() })
}

#[derive(Clone)]
struct Worklane {
    url: Arc<str>,
    watch: Arc<OnceCell<tokio_postgres::Client>>,
}

impl Worklane {
    /// With as many connections as it opens by default if no number is given.
    async fn broker(&self, connections: Option<usize>) -> Outcome<Arc<dyn Broker>> {
        Ok(match (self.url.strip_prefix(FILE), connections) {
            (Some(path), None) => Arc::new(SqliteBroker::open(path)?),
            (Some(path), Some(size)) => {
                Arc::new(SqliteBroker::open_with_pool_size(path, u32::try_from(size)?)?)
            }
            (None, None) => Arc::new(PostgresBroker::connect(&self.url).await?),
            (None, Some(size)) => {
                Arc::new(PostgresBroker::connect_with_pool(&self.url, "public", size).await?)
            }
        })
    }

    async fn watch(&self) -> Outcome<&tokio_postgres::Client> {
        let connect = async || {
            let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await?;
            tokio::spawn(connection);
            Outcome::Ok(client)
        };
        self.watch.get_or_try_init(connect).await
    }
}

impl System for Worklane {
    type Producer = Enqueuer;
    type Running = Workers;

    async fn migrate(&self) -> Outcome {
        self.broker(None).await.map(drop)
    }

    async fn producer(&self) -> Outcome<Enqueuer> {
        let broker = self.broker(None).await?;
        Ok(Enqueuer { client: Client::new(Arc::clone(&broker)), broker })
    }

    async fn start(&self, setting: Setting, probe: Arc<Probe>) -> Outcome<Workers> {
        let handlers = setting.handlers_or(1, WORKERS * HANDLERS);
        let workers = if setting.is_best { WORKERS.min(handlers) } else { 1 };
        let broker = self.broker(setting.is_best.then_some(handlers)).await?;
        let mut running = Vec::new();
        for _ in 0..workers {
            let mut worker = Worker::new(Arc::clone(&broker));
            if setting.is_best {
                worker = worker.with_concurrency(handlers / workers).with_poll_interval(POLL);
            } else if handlers > 1 {
                worker = worker.with_concurrency(handlers);
            }
            worker.register(Noop(Arc::clone(&probe)))?;
            let worker = worker.build()?;
            let (stop, stopped) = oneshot::channel::<()>();
            let task = tokio::spawn(async move {
                worker.run(async move { drop(stopped.await) }).await.map_err(Into::into)
            });
            running.push((stop, task));
        }
        Ok(Workers(running))
    }

    async fn is_drained(&self) -> Outcome<bool> {
        let left: i64 = match self.url.strip_prefix(FILE) {
            Some(path) => {
                rusqlite::Connection::open(path)?.query_row(LEFT, [], |row| row.get(0))?
            }
            None => self.watch().await?.query_one(LEFT, &[]).await?.get(0),
        };
        Ok(left == 0)
    }

    async fn prune(&self) -> Outcome<u64> {
        Ok(0)
    }
}

struct Enqueuer {
    client: Client,
    broker: Arc<dyn Broker>,
}

impl Producer for Enqueuer {
    async fn one(&mut self, number: usize, pad: String) -> Outcome {
        self.client.enqueue::<Noop>(Payload { number, pad }).await?;
        Ok(())
    }

    async fn many(&mut self, count: usize, pad: String) -> Outcome {
        let batch = self.broker.batch_enqueue().ok_or("no batches")?;
        let mut jobs = Vec::with_capacity(count);
        for number in 0..count {
            let payload = to_payload(&Payload { number, pad: pad.clone() })?;
            jobs.push(NewJob::new(Lane::default(), "noop", payload, DEFAULT_MAX_ATTEMPTS));
        }
        batch.enqueue_batch(jobs).await?;
        Ok(())
    }
}

struct Workers(Vec<(oneshot::Sender<()>, JoinHandle<Outcome>)>);

impl Running for Workers {
    async fn stop(self) -> Outcome {
        let (stops, tasks): (Vec<_>, Vec<_>) = self.0.into_iter().unzip();
        for stop in stops {
            let _ = stop.send(());
        }
        for task in tasks {
            task.await??;
        }
        Ok(())
    }
}
