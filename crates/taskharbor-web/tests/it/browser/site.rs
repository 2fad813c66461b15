//! A server with a store that a test fills, and the one browser that all scenarios share.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use taskharbor::{AnyDriver, Blob, Client, Driver, JobId, JobType, QueueName, Text, Timestamp};
use taskharbor_core::{
    NewJob,
    driver::Enqueue,
    job::{FailedAttempt, JobSet},
    name::Holder,
};
use taskharbor_memory::MemoryDriver;
use taskharbor_testkit::{
    Answer, Call, Hook, Intercept, Next,
    browser::{Browser, Page},
};
use taskharbor_web::{Access, Role, StoreKind, Stores, Web, router};
use tokio::{
    net::TcpListener,
    sync::{OnceCell, oneshot},
    task::JoinHandle,
};

static BROWSER: OnceCell<Browser> = OnceCell::const_new();

/// A page of its own for a scenario.
pub(super) async fn page() -> Page {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    BROWSER.get_or_init(|| Browser::start(dir)).await.page().await
}

/// Lets a store go away and come back.
#[derive(Clone, Default)]
pub(super) struct Outage(Arc<AtomicBool>);

impl Outage {
    pub(super) fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl<D: taskharbor::Driver + taskharbor::Admin> Hook<D> for Outage {
    async fn around(
        &self,
        call: Call,
        next: Next<'_, D>,
    ) -> Result<Answer, taskharbor::DriverError> {
        if self.0.load(Ordering::Relaxed) {
            return Err(taskharbor::DriverError::unavailable("the secret host db-7 is away"));
        }
        next.make(call).await
    }
}

/// A server on a port of its own, until it is dropped.
pub(super) struct Site {
    pub(super) url: String,
    pub(super) driver: AnyDriver,
    pub(super) client: Client,
    pub(super) outage: Outage,
    address: SocketAddr,
    server: Server,
}

/// A server, until it is dropped.
struct Server {
    end: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Server {
    fn start(listener: TcpListener, stores: Stores, web: Web) -> Self {
        let (end, ended) = oneshot::channel();
        let serving = tokio::spawn(async move {
            let ended = async {
                // A site that is dropped ends as one that is told to.
                let _ = ended.await;
            };
            taskharbor_web::serve(listener, stores, web, ended).await.unwrap();
        });
        Self { end, serving }
    }

    /// Ends it and all its connections.
    async fn stop(self) {
        // It may have ended.
        let _ = self.end.send(());
        self.serving.await.unwrap();
    }
}

impl Site {
    /// One whose callers may do everything.
    pub(super) async fn open() -> Self {
        Self::with_access(Access::new("test", Role::Admin).with_payloads()).await
    }

    pub(super) async fn with_access(access: Access) -> Self {
        Self::with(Web::new().anonymous(access)).await
    }

    pub(super) async fn with(web: Web) -> Self {
        let outage = Outage::default();
        let driver = AnyDriver::new(Intercept::new(MemoryDriver::new(), outage.clone()));
        Self::of(driver, StoreKind::Memory, web, outage).await
    }

    pub(super) async fn of(driver: AnyDriver, kind: StoreKind, web: Web, outage: Outage) -> Self {
        let stores = Stores::new().add("main", kind, &driver).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::start(listener, stores, web);
        let client = Client::new(&driver);
        Self { url: format!("http://{address}/"), driver, client, outage, address, server }
    }

    /// A page that shows this address: `jobs?state=dlq`, say.
    pub(super) async fn visit(&self, place: &str) -> Page {
        let page = page().await;
        page.open(&format!("{}#/main/{place}", self.url)).await;
        page
    }

    /// Ends the server; what comes back starts another one at the same address.
    pub(super) async fn stop(self) -> Stopped {
        let Self { url, driver, client, outage, address, server } = self;
        server.stop().await;
        Stopped { url, driver, client, outage, address }
    }

    pub(super) async fn now(&self) -> Timestamp {
        self.driver.now().await.unwrap()
    }

    /// Stores jobs of this type and queue, with a number in each payload; answers their ids.
    pub(super) async fn enqueue(&self, queue: &str, job_type: &str, count: usize) -> Vec<JobId> {
        let payload = |n: usize| Blob::from(format!("{{\"number\":{n}}}").into_bytes());
        let mut ids = Vec::new();
        for from in (0..count).step_by(500) {
            let now = self.now().await;
            let jobs: Vec<_> = (from..count.min(from + 500))
                .map(|n| {
                    let id = JobId::generate(now).unwrap();
                    NewJob::new(
                        id,
                        QueueName::new(queue).unwrap(),
                        JobType::new(job_type).unwrap(),
                        payload(n),
                    )
                })
                .collect();
            ids.extend(jobs.iter().map(|job| job.id.clone()));
            let sets = jobs.into_iter().map(JobSet::from).collect();
            for stored in self.driver.enqueue(Enqueue::new(sets, now)).await.unwrap() {
                stored.unwrap();
            }
        }
        ids
    }

    /// Dead-letters the next jobs of a queue, each with this error and its own number in it.
    pub(super) async fn fail_all(&self, queue: &str, error: &str) {
        let mut number = 0_u32;
        while let Some(leased) = self.reserve(queue).await {
            number += 1;
            let text = error.replace("{n}", &number.to_string());
            let now = self.now().await;
            let failure = FailedAttempt::new(leased.job.attempts + 1, text.as_str(), now);
            self.driver.fail(&leased, failure, Text::new(text), now).await.unwrap();
        }
    }

    /// Takes the next job of a queue.
    pub(super) async fn reserve(&self, queue: &str) -> Option<taskharbor_core::driver::Leased> {
        let (queue, holder) = (QueueName::new(queue).unwrap(), Holder::new("worker-1").unwrap());
        let lease = Duration::from_secs(60);
        self.driver.reserve_job(queue, holder, self.now().await, lease).await.unwrap()
    }
}

/// A site whose server has ended.
pub(super) struct Stopped {
    url: String,
    driver: AnyDriver,
    client: Client,
    outage: Outage,
    address: SocketAddr,
}

impl Stopped {
    /// Starts another server at the same address.
    pub(super) async fn restart(self, web: Web) -> Site {
        let Self { url, driver, client, outage, address } = self;
        let stores = Stores::new().add("main", StoreKind::Memory, &driver).unwrap();
        let listener = TcpListener::bind(address).await.unwrap();
        let server = Server::start(listener, stores, web);
        Site { url, driver, client, outage, address, server }
    }
}

/// Serves stores until the test ends; answers the address.
pub(super) async fn serve_stores(stores: Stores, web: Web) -> String {
    serve_router(router(stores, web)).await
}

/// Serves a router until the test ends; answers the address.
pub(super) async fn serve_router(app: axum::Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    format!("http://{address}/")
}
