//! The steps of a script that are about workers and their eviction.

use std::time::Duration;

use taskharbor_core::{
    Admin, Driver, DriverError, Timestamp,
    admin::{Evict, ListWorkers, WorkerRecord},
    driver::{Announce, Incarnation},
    name::Holder,
};

use super::{
    compare::{both, same},
    replay::Replay,
};

impl Replay<'_> {
    pub(super) async fn announce(
        &mut self,
        (holder, incarnation): (u8, u8),
        info: u8,
        valid_for: Duration,
        now: Timestamp,
    ) -> Result<(), String> {
        let info = vec![info; usize::from(info)].into();
        let (holder, incarnation) = (holder_name(holder), incarnation_of(incarnation));
        let request = Announce::new(holder, incarnation, info, valid_for, now);
        let model = self.model.announce(request.clone());
        both("announce", self.driver.announce(request).await, model).map(|_| ())
    }

    /// Reads the workers to their end, in pages of this size.
    pub(super) async fn workers(
        &self,
        (valid, overdue): (bool, bool),
        limit: usize,
        now: Timestamp,
    ) -> Result<(), String> {
        let mut request = ListWorkers::new(limit, now);
        (request.valid, request.overdue) = (valid, overdue);
        loop {
            let failed = |error: DriverError| error.to_string();
            let page = self.driver.workers(request.clone()).await.map_err(failed)?;
            let expected = self.model.list_workers(&request).map_err(failed)?;
            same(&format!("workers {request:?}"), &page.items, &expected.items)?;
            same("workers: another page", &page.next.is_some(), &expected.next.is_some())?;
            match page.next {
                Some(cursor) => request = request.after(cursor),
                None => return Ok(()),
            }
        }
    }

    pub(super) async fn evict(
        &mut self,
        holder: u8,
        incarnation: Option<u8>,
        now: Timestamp,
    ) -> Result<(), String> {
        let mut request = Evict::new(holder_name(holder), now);
        request.incarnation = incarnation.map(incarnation_of);
        let expected = self.model.evict(&request);
        let evicted = self.driver.evict(request).await.map_err(|error| error.to_string())?;
        for grant in &mut self.grants {
            let job = self.model.find(&grant.id).map(|at| &self.model.jobs[at]);
            if let Some(hold) = job.and_then(|job| job.life.active_lease())
                && hold.lease.token == grant.token
            {
                grant.expires_at = hold.lease.expires_at;
            }
        }
        same("evict", &evicted, &expected)
    }

    /// Withdraws everything that workers have announced.
    pub(super) async fn wipe_workers(&mut self) -> Result<(), String> {
        let left: Vec<WorkerRecord> = self.model.workers.clone();
        for worker in left {
            let request = Announce::withdraw(worker.holder, worker.incarnation, Timestamp::EPOCH);
            let model = self.model.announce(request.clone());
            both("withdraw", self.driver.announce(request).await, model)?;
        }
        self.workers((true, true), 1_000, Timestamp::EPOCH).await
    }
}

/// Names that differ in few bytes.
pub(super) fn holder_name(number: u8) -> Holder {
    let names = ["worker", "Worker", "worker "];
    Holder::new(names[usize::from(number) % names.len()]).expect("a valid holder")
}

/// Their order is not that of the numbers as signed ones.
fn incarnation_of(number: u8) -> Incarnation {
    Incarnation::from_bits(u64::from(number) << 62 | 9)
}
