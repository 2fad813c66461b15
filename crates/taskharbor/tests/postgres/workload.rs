//! Clients and workers that run while their server is being broken, and a ledger of what happened.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use taskharbor::{
    Admin, AnyDriver, Client, Context, Event, Handlers, Job, JobId, Running, State, Worker,
    WorkerBuilder,
};
use taskharbor_postgres::{Config, PostgresDriver};
use tokio::{
    sync::Notify,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_postgres::NoTls;

/// Takes so long, and says nothing.
#[derive(Serialize, Deserialize, Job)]
#[job(type = "chore")]
pub(crate) struct Chore {
    pub(crate) name: String,
    pub(crate) millis: u64,
}

/// The name of a chore that takes until the test lets it go.
pub(crate) const HELD: &str = "held";

/// What happened, as seen from outside of the store.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// How often each job was begun, and how often each was done.
    begun: Mutex<HashMap<String, usize>>,
    pub(crate) done: AtomicUsize,
    /// Lets a chore called [`HELD`] end.
    pub(crate) finish: Notify,
    /// The jobs whose leases were lost.
    pub(crate) lost: Mutex<Vec<String>>,
    /// What the store was unavailable with.
    pub(crate) errors: Mutex<Vec<String>>,
    /// Errors of the store that say that trying again is of no use.
    pub(crate) hopeless: Mutex<Vec<String>>,
}

impl Ledger {
    pub(crate) fn begun(&self, name: &str) -> usize {
        self.begun.lock().unwrap().get(name).copied().unwrap_or(0)
    }

    /// How often a job was begun once more than once.
    pub(crate) fn repeated(&self) -> usize {
        self.begun.lock().unwrap().values().map(|times| times - 1).sum()
    }

    pub(crate) fn done(&self) -> usize {
        self.done.load(Ordering::SeqCst)
    }

    fn note(&self, event: &Event<'_>) {
        match event {
            Event::LeaseLost { job, .. } => {
                self.lost.lock().unwrap().push(job.id.as_str().to_owned());
            }
            Event::StoreUnavailable { error, .. } => {
                let said = format!("{error:?}");
                if !matches!(error, taskharbor_core::DriverError::Unavailable(_)) {
                    self.hopeless.lock().unwrap().push(said.clone());
                }
                self.errors.lock().unwrap().push(said);
            }
            _ => {}
        }
    }
}

/// How a driver of a test reaches its server.
pub(crate) fn config(url: &str) -> Config {
    Config::from_url(url).unwrap().pool_size(4).call_deadline(Duration::from_secs(5))
}

pub(crate) async fn open(config: Config) -> AnyDriver {
    let driver = PostgresDriver::open(config).await.unwrap();
    driver.migrate().await.unwrap();
    AnyDriver::new(driver)
}

/// A worker with eight slots that keeps the ledger.
pub(crate) fn worker(driver: &AnyDriver, ledger: &Arc<Ledger>) -> WorkerBuilder {
    let (book, log) = (Arc::clone(ledger), Arc::clone(ledger));
    let chore = move |job: Chore, _: Context| {
        let book = Arc::clone(&book);
        async move {
            let is_held = job.name == HELD;
            *book.begun.lock().unwrap().entry(job.name).or_default() += 1;
            match is_held {
                true => book.finish.notified().await,
                false => sleep(Duration::from_millis(job.millis)).await,
            }
            book.done.fetch_add(1, Ordering::SeqCst);
            Ok::<(), std::io::Error>(())
        }
    };
    Worker::builder(driver)
        .handlers(Handlers::new().on(chore))
        .queue("default", 8)
        .lease(Duration::from_secs(5))
        .observer(move |event: &Event<'_>| log.note(event))
}

/// Enqueues until it is told to stop, each job again and again until that is acknowledged.
pub(crate) struct Producer {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Vec<JobId>>,
}

impl Producer {
    pub(crate) fn start(driver: &AnyDriver, millis: u64) -> Self {
        let (client, stop) = (Client::new(driver), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let mut acknowledged = Vec::new();
            while !stopped.load(Ordering::SeqCst) {
                let id = JobId::new(format!("chore-{}", acknowledged.len())).unwrap();
                let chore = || Chore { name: id.as_str().to_owned(), millis };
                while client.enqueue(chore()).id(id.clone()).await.is_err() {
                    sleep(Duration::from_millis(20)).await;
                }
                acknowledged.push(id);
                sleep(Duration::from_millis(3)).await;
            }
            acknowledged
        });
        Self { stop, task }
    }

    /// All that were acknowledged.
    pub(crate) async fn stop(self) -> Vec<JobId> {
        self.stop.store(true, Ordering::SeqCst);
        timeout(Duration::from_secs(30), self.task).await.expect("it can enqueue").unwrap()
    }
}

/// Waits until something holds, for no longer than this; answers how long it took.
pub(crate) async fn until(
    what: &str,
    limit: Duration,
    mut holds: impl AsyncFnMut() -> bool,
) -> Duration {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        sleep(Duration::from_millis(10)).await;
    }
    start.elapsed()
}

/// Waits until each of these jobs is done, and was begun; then all is well with the store.
pub(crate) async fn all_done(driver: &AnyDriver, ledger: &Ledger, jobs: &[JobId], limit: Duration) {
    let start = Instant::now();
    for id in jobs {
        let mut state = None;
        let left = limit.saturating_sub(start.elapsed());
        until(id.as_str(), left, async || {
            let now = driver.now().await.unwrap();
            state = driver.inspect(id.clone(), now).await.unwrap().map(|it| it.state);
            state.is_none_or(|state| state == State::Done)
        })
        .await;
        assert_eq!(state, Some(State::Done), "{id:?}");
        assert!(ledger.begun(id.as_str()) > 0, "{id:?} was never begun");
    }
    assert_eq!(driver.check().await.unwrap(), []);
}

pub(crate) async fn still_working(workers: &[Running]) {
    for worker in workers {
        let ended = timeout(Duration::from_millis(1), worker.ended()).await;
        assert!(ended.is_err(), "a worker has ended: {ended:?}");
    }
}

/// A connection of the test's own.
pub(crate) async fn sql(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Ends the sessions of an application; answers how many there were.
pub(crate) async fn terminate(client: &tokio_postgres::Client, application: &str) -> usize {
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1";
    client.query(kill, &[&application]).await.unwrap().len()
}
