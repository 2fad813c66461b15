//! Short calls about workers and their eviction, for cases: part of [`DriverUnderTest`].

use std::time::Duration;

use taskharbor_core::{
    Admin, Driver, Timestamp,
    admin::{Evict, Evicted, ListWorkers, WorkerRecord},
    driver::{Announce, Demand, Incarnation, Leased, Reserve},
    name::Holder,
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{LEASE, queue},
};

/// How long announcements are valid where it does not matter.
pub(crate) const VALID: Duration = Duration::from_secs(30);

pub(crate) fn worker(name: &str) -> Holder {
    Holder::new(name).expect("a valid holder")
}

pub(crate) const fn start(number: u64) -> Incarnation {
    Incarnation::from_bits(number)
}

/// The announcement of a start of a worker, which says its name.
pub(crate) fn announcement(name: &str, number: u64, now: Timestamp) -> Announce {
    Announce::new(worker(name), start(number), name.as_bytes().into(), VALID, now)
}

/// The names of workers and their starts.
pub(crate) fn names(workers: &[WorkerRecord]) -> Vec<(String, Incarnation)> {
    workers.iter().map(|it| (it.holder.to_string(), it.incarnation)).collect()
}

impl DriverUnderTest {
    /// Announces a start of a worker.
    pub(crate) async fn announce(&self, name: &str, number: u64, now: Timestamp) {
        self.driver.announce(announcement(name, number, now)).await.expect("announce");
    }

    /// Withdraws what a start of a worker announced.
    pub(crate) async fn withdraw(&self, name: &str, number: u64, now: Timestamp) {
        let withdrawn = Announce::withdraw(worker(name), start(number), now);
        self.driver.announce(withdrawn).await.expect("announce");
    }

    /// The workers whose announcement is valid.
    pub(crate) async fn workers(&self, now: Timestamp) -> Vec<WorkerRecord> {
        self.all_workers(ListWorkers::new(1_000, now)).await
    }

    /// The workers whose announcement is stored, valid or not.
    pub(crate) async fn stored_workers(&self, now: Timestamp) -> Vec<WorkerRecord> {
        self.all_workers(ListWorkers::new(1_000, now).with_overdue()).await
    }

    /// All workers of a list, page by page.
    pub(crate) async fn all_workers(&self, mut request: ListWorkers) -> Vec<WorkerRecord> {
        let mut all = Vec::new();
        loop {
            let page = self.driver.workers(request.clone()).await.expect("workers");
            assert!(page.items.len() <= request.limit, "more than a page");
            all.extend(page.items);
            assert!(all.len() <= 100_000, "the list does not end");
            match page.next {
                Some(cursor) => request = request.after(cursor),
                None => return all,
            }
        }
    }

    /// Evicts all that holds leases under this name; how many leases that ended.
    pub(crate) async fn evict(&self, name: &str, now: Timestamp) -> usize {
        match self.driver.evict(Evict::new(worker(name), now)).await.expect("evict") {
            Evicted::Leases(leases) => leases,
            Evicted::Replaced => panic!("no start of {name} was named"),
        }
    }

    /// Evicts one start of a worker.
    pub(crate) async fn evict_start(&self, name: &str, number: u64, now: Timestamp) -> Evicted {
        let request = Evict::new(worker(name), now).incarnation(start(number));
        self.driver.evict(request).await.expect("evict")
    }

    /// A worker reserves at most this many jobs of a queue.
    pub(crate) async fn take_as(
        &self,
        name: &str,
        from: &str,
        limit: usize,
        now: Timestamp,
    ) -> Vec<Leased> {
        let demands = vec![Demand::new(queue(from), limit)];
        let request = Reserve::new(demands, worker(name), now, LEASE);
        self.driver.reserve(request).await.expect("reserve").jobs
    }

    /// A worker reserves the next job of the queue `q`, which must be this one.
    pub(crate) async fn take_the_as(&self, name: &str, text: &str, now: Timestamp) -> Leased {
        let mut jobs = self.take_as(name, "q", 1, now).await;
        let leased = jobs.pop().unwrap_or_else(|| panic!("{text} is not granted"));
        assert_eq!(leased.job.id.as_str(), text, "another job is granted");
        leased
    }
}
