//! A move whose source fails for a moment, or for longer.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use taskharbor::{AnyDriver, Client, DriverError};
use taskharbor_testkit::{Answer, Call, Hook, Intercept, Next, Op};

use super::*;

/// Fails the calls for which this is so.
#[derive(Clone)]
struct Fails(Arc<dyn Fn(Op) -> bool + Send + Sync>);

impl Hook<AnyDriver> for Fails {
    async fn around(&self, call: Call, next: Next<'_, AnyDriver>) -> Result<Answer, DriverError> {
        if (self.0)(call.op()) {
            return Err(DriverError::unavailable("the server restarts"));
        }
        next.make(call).await
    }
}

/// Two stores, of which the first has this many jobs.
struct Stores {
    from: AnyDriver,
    to: AnyDriver,
}

impl Stores {
    async fn with(jobs: usize) -> Self {
        let from = taskharbor::connect("memory:").await.unwrap();
        let client = Client::new(&from);
        for _ in 0..jobs {
            client.enqueue_raw("work", b"{}".to_vec()).await.unwrap();
        }
        Self { from, to: taskharbor::connect("memory:").await.unwrap() }
    }

    /// Moves all jobs, while these calls of the source fail. It may be unavailable for this long.
    async fn transfer(
        &self,
        outage_limit: Duration,
        fails: impl Fn(Op) -> bool + Send + Sync + 'static,
    ) -> Outcome<Report> {
        let from = AnyDriver::new(Intercept::new(self.from.clone(), Fails(Arc::new(fails))));
        let source = Side::new(from, "source", "here".to_owned(), outage_limit);
        let to = self.to.clone();
        let destination = Side::new(to, "destination", "there".to_owned(), outage_limit);
        transfer(&source, &destination, true, &Hold::begin()).await
    }

    /// The queues that are paused in both stores, without those that moves are known by.
    async fn paused(&self) -> [Vec<String>; 2] {
        let mut paused = [Vec::new(), Vec::new()];
        for (driver, paused) in [&self.from, &self.to].into_iter().zip(&mut paused) {
            let side = Side::new(driver.clone(), "", String::new(), Duration::ZERO);
            let names = side.pauses().await.unwrap().into_keys().map(|name| name.to_string());
            paused.extend(names.filter(|name| !name.starts_with("taskharbor-move")));
        }
        paused
    }
}

#[tokio::test]
async fn a_source_that_fails_for_a_moment_is_moved() {
    let stores = Stores::with(150).await;
    let failed = Mutex::new(HashSet::new());
    let moved =
        stores.transfer(Duration::from_secs(10), move |op| failed.lock().unwrap().insert(op));
    assert_eq!(moved.await.unwrap().moved, 150);
    assert_eq!(stores.paused().await, [vec!["default".to_owned()], vec![]]);
}

#[tokio::test]
async fn a_move_that_gives_up_before_the_first_job_says_that_queues_may_stay_paused() {
    let stores = Stores::with(1).await;
    let is_reached = AtomicBool::new(false);
    let failure = stores.transfer(Duration::ZERO, move |op| {
        let before = is_reached.fetch_or(op == Op::Export, Ordering::SeqCst);
        before || op == Op::Export
    });
    let failure = failure.await.unwrap_err();
    assert!(failure.text.starts_with("the source, here: "), "{}", failure.text);
    assert!(failure.text.contains("nothing was moved; some queues may stay paused"), "{failure:?}");
    assert_eq!(stores.paused().await, [vec!["default".to_owned()], vec![]]);
    // Repeated, it continues.
    assert_eq!(stores.transfer(Duration::ZERO, |_| false).await.unwrap().moved, 1);
}

#[tokio::test]
async fn a_move_that_gives_up_amid_the_jobs_says_what_stays_paused() {
    let stores = Stores::with(150).await;
    let exports = AtomicUsize::new(0);
    let failure = stores.transfer(Duration::ZERO, move |op| {
        let count = usize::from(op == Op::Export);
        exports.fetch_add(count, Ordering::SeqCst) + count > 1
    });
    let failure = failure.await.unwrap_err();
    let text = &failure.text;
    assert!(text.contains("100 jobs arrived; these queues stay paused in both stores"), "{text}");
    assert!(text.contains("move again to go on"), "{text}");
    let queue = vec!["default".to_owned()];
    assert_eq!(stores.paused().await, [queue.clone(), queue]);
    let report = stores.transfer(Duration::ZERO, |_| false).await.unwrap();
    assert_eq!((report.moved, report.existed, report.compared), (50, 100, 150));
}
