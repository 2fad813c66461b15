//! [`Case`]: one test of the suite, and how it is run.

use std::{future::Future, panic::resume_unwind, pin::Pin, sync::Arc, time::Duration};

use taskharbor_core::{Admin, AnyDriver, Driver, DriverError};

use tokio::time::timeout;

use crate::{catalogue::cases, driver_under_test::DriverUnderTest};

/// One test of the suite.
#[derive(Clone, Copy)]
pub struct Case {
    /// The group it belongs to.
    pub group: &'static str,
    /// What it shows, as a sentence.
    pub name: &'static str,
    /// The clauses of `SEMANTICS.md` that it proves.
    pub clauses: &'static [&'static str],
    /// What a driver must keep for the case to concern it.
    pub level: Level,
    pub(crate) body: fn(DriverUnderTest) -> BoxFuture<()>,
}

/// What a driver keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Single jobs.
    Jobs,
    /// Flows as well.
    Flows,
}

pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Opens a driver on an empty store of its own, as often as it is called.
pub(crate) type Opener = Arc<dyn Fn() -> BoxFuture<AnyDriver> + Send + Sync>;

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}::{} {:?}", self.group, self.name, self.clauses)
    }
}

impl Case {
    /// Runs the case on a driver that `open` opens on an empty store, then lets the store check
    /// itself.
    ///
    /// # Panics
    ///
    /// If the driver does not satisfy the clauses.
    pub async fn run<F>(&self, open: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = AnyDriver> + Send + 'static,
    {
        let _citation = Citation(self.clauses);
        let driver = open().await;
        let open: Opener = Arc::new(move || Box::pin(open()));
        (self.body)(DriverUnderTest::new(driver.clone(), open)).await;
        match driver.check().await {
            Ok(found) => assert!(found.is_empty(), "after the case, the store found: {found:?}"),
            // A case may have closed the driver.
            Err(error) => assert!(
                matches!(error, DriverError::Closed),
                "after the case, check failed: {error}"
            ),
        }
        driver.close().await.expect("a driver can be closed, and closed again");
    }
}

/// Says, when a case fails, which clauses it was about.
struct Citation(&'static [&'static str]);

impl Drop for Citation {
    #[expect(clippy::print_stderr, reason = "a failing test explains itself there")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this case proves {} of docs/SEMANTICS.md", self.0.join(", "));
        }
    }
}

/// How a case reaches the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Through {
    /// As it is.
    Plain,
    /// Through a handle that checks its answers.
    Handle,
}

impl Through {
    fn reach(self, driver: impl Driver + Admin) -> AnyDriver {
        match self {
            Self::Plain => AnyDriver::unchecked(driver),
            Self::Handle => AnyDriver::new(driver),
        }
    }
}

/// How long a case may take before it fails: a driver that hangs must not stall the suite.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// How long each random script may take, where the environment asks for many.
const SCRIPT_LIMIT: Duration = Duration::from_millis(500);

fn time_limit() -> Duration {
    let scripts = std::env::var("TASKHARBOR_SCRIPTS").ok().and_then(|count| count.parse().ok());
    TIME_LIMIT.max(SCRIPT_LIMIT.saturating_mul(scripts.unwrap_or(0)))
}

/// Runs one case, on a runtime of its own, on drivers that `open` makes.
///
/// # Panics
///
/// If there is no such case, if the driver does not satisfy it, or if it takes longer than five
/// minutes.
pub fn run<D, F>(
    group: &str,
    name: &str,
    through: Through,
    open: impl Fn() -> F + Clone + Send + Sync + 'static,
) where
    D: Driver + Admin,
    F: Future<Output = D> + Send + 'static,
{
    let case = cases()
        .find(|case| case.group == group && case.name == name)
        .unwrap_or_else(|| panic!("there is no case {group}::{name}"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be built");
    let run = case.run(move || {
        let driver = open();
        async move { through.reach(driver.await) }
    });
    let limit = time_limit();
    let outcome = runtime.block_on(async { timeout(limit, tokio::spawn(run)).await });
    // A thread that the driver blocks is left behind.
    runtime.shutdown_background();
    match outcome {
        Ok(Ok(())) => {}
        Ok(Err(failed)) => match failed.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(error) => panic!("the case did not end: {error}"),
        },
        Err(_) => panic!("the case took longer than {} s", limit.as_secs()),
    }
}
