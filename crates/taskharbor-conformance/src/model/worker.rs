//! Workers that announce themselves, and their eviction.

use taskharbor_core::{
    DriverError, Timestamp,
    admin::{Evict, Evicted, ListWorkers, Page, WorkerRecord},
    driver::{Announce, Limits},
    life::Stage,
};

use super::Model;

impl Model {
    pub(crate) fn announce(&mut self, request: Announce) -> Result<(), DriverError> {
        let ends_at = request.check()?;
        let (holder, incarnation) = (request.holder.clone(), request.incarnation);
        let is_same = |it: &WorkerRecord| it.holder == holder && it.incarnation == incarnation;
        let started_at = self.workers.iter().find(|it| is_same(it)).map(|it| it.started_at);
        self.workers.retain(|it| !is_same(it));
        if let Some(ends_at) = ends_at {
            let started_at = started_at.unwrap_or(request.now);
            self.workers.push(WorkerRecord::new(request, started_at, ends_at));
        }
        Ok(())
    }

    pub(crate) fn list_workers(
        &self,
        request: &ListWorkers,
    ) -> Result<Page<WorkerRecord>, DriverError> {
        request.check()?;
        let order = |holder: &str, incarnation: String| (holder.as_bytes().to_vec(), incarnation);
        let of = |it: &WorkerRecord| order(it.holder.as_str(), it.incarnation.to_string());
        let after = request.begin()?;
        let after =
            after.map(|(holder, incarnation)| order(holder.as_str(), incarnation.to_string()));
        let mut left: Vec<WorkerRecord> = self.workers.clone();
        left.retain(|it| {
            let is_valid = request.now < it.expires_at;
            is_valid && request.valid || !is_valid && request.overdue
        });
        left.retain(|it| after.as_ref().is_none_or(|after| of(it) > *after));
        left.sort_by_key(of);
        let is_last = left.len() <= request.limit;
        left.truncate(request.limit);
        let next = left.last().map(WorkerRecord::cursor).filter(|_| !is_last);
        Ok(Page::new(left, next))
    }

    pub(crate) fn evict(&mut self, request: &Evict) -> Evicted {
        let now = request.now;
        let is_meant = |it: &WorkerRecord| {
            it.holder == request.holder
                && request.incarnation.is_none_or(|meant| meant == it.incarnation)
        };
        let mut others = self.workers.iter().filter(|it| it.holder == request.holder);
        if others.any(|it| !is_meant(it) && now < it.expires_at) {
            return Evicted::Replaced;
        }
        self.workers.retain(|it| !is_meant(it));
        let mut ended = 0;
        for job in &mut self.jobs {
            if let Stage::Inflight(hold) = &mut job.life.stage
                && hold.holder == request.holder
                && now < hold.lease.expires_at
            {
                hold.lease.expires_at = now;
                ended += 1;
            }
        }
        Evicted::Leases(ended)
    }

    /// Forgets announcements that ended a day ago.
    pub(super) fn forget_workers(&mut self, now: Timestamp) {
        let until = now.saturating_sub(Limits::OVERDUE_WORKERS_KEPT);
        self.workers.retain(|it| it.expires_at > until);
    }
}
