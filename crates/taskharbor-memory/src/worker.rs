//! Workers that have announced themselves, and their eviction.

use std::ops::Bound;

use taskharbor_core::{
    Timestamp,
    admin::{Evict, Evicted, ListWorkers, Page, WorkerRecord},
    driver::{Announce, Limits},
    error::InvalidRequest,
};

use crate::store::Store;

impl Store {
    pub(crate) fn announce(&mut self, request: Announce) -> Result<(), InvalidRequest> {
        let key = (request.holder.clone(), request.incarnation);
        let Some(expires_at) = request.check()? else {
            // WRK-3
            self.workers.remove(&key);
            return Ok(());
        };
        // WRK-1
        let started_at = self.workers.get(&key).map_or(request.now, |it| it.started_at);
        self.workers.insert(key, WorkerRecord::new(request, started_at, expires_at));
        Ok(())
    }

    pub(crate) fn list_workers(
        &self,
        request: &ListWorkers,
    ) -> Result<Page<WorkerRecord>, InvalidRequest> {
        let begin = request.begin()?.map_or(Bound::Unbounded, Bound::Excluded);
        // WRK-2
        let mut workers = self
            .workers
            .range((begin, Bound::Unbounded))
            .map(|(_, worker)| worker)
            .filter(|worker| request.wants(worker));
        let page: Vec<_> = workers.by_ref().take(request.limit).cloned().collect();
        let next = page.last().map(WorkerRecord::cursor).filter(|_| workers.next().is_some());
        Ok(Page::new(page, next))
    }

    pub(crate) fn evict(&mut self, request: &Evict) -> Evicted {
        let (holder, now) = (&request.holder, request.now);
        let is_other = |worker: &WorkerRecord| {
            request.incarnation.is_some_and(|meant| worker.incarnation != meant)
        };
        // EVI-4
        if self.workers.values().any(|it| it.holder == *holder && is_other(it) && it.is_valid(now))
        {
            return Evicted::Replaced;
        }
        // EVI-3
        self.workers.retain(|_, worker| worker.holder != *holder || is_other(worker));
        let slots: Vec<_> = self.jobs.iter().map(|(slot, _)| slot).collect();
        let mut leases = 0;
        for slot in slots {
            let lease = self.jobs[slot].life.active_lease();
            if lease.is_some_and(|lease| lease.holder == *holder)
                && self.change_life(slot, |life| life.evict(holder, now))
            {
                leases += 1;
                // EVI-5
                let queue = self.jobs[slot].new.queue.clone();
                self.wakes.push(queue);
            }
        }
        Evicted::Leases(leases)
    }

    /// Forgets workers whose announcement ended long ago. WRK-4.
    pub(crate) fn forget_workers(&mut self, now: Timestamp) {
        let before = now.saturating_sub(Limits::OVERDUE_WORKERS_KEPT);
        self.workers.retain(|_, worker| worker.expires_at > before);
    }
}
