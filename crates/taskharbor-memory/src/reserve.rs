//! Granting leases and extending them.

use std::cmp::Reverse;

use taskharbor_core::{
    DriverError, Timestamp,
    driver::{
        Demand, ExtendLeases, Extended, Extension, Lease, LeaseToken, Leased, Reserve, Reserved,
        Settled,
    },
    error::Refusal,
    graph,
    job::JobView,
    life::Consequence,
};

use crate::store::{JobSlot, Store};

impl Store {
    pub(crate) fn reserve(&mut self, request: &Reserve) -> Result<Reserved, DriverError> {
        let expires_at = request.check()?;
        let wanted: usize = request.demands.iter().map(|demand| demand.limit).sum();
        // RES-8. Drawn before anything changes, so that a failure leaves nothing half done.
        let mut tokens = LeaseToken::random_many(wanted.min(self.jobs.len()))?.into_iter();
        let (mut jobs, mut next_due) = (Vec::with_capacity(tokens.len()), None);
        // RES-5
        for demand in &request.demands {
            let Some(queue) = self.open_queue(demand) else { continue };
            let mut granted = Vec::new();
            while granted.len() < demand.limit
                && let Some(slot) = self.next_to_grant(queue, request.now)
                && let Some(token) = tokens.next()
            {
                let leased = self.grant(slot, Lease::new(token, expires_at), request);
                let standing = (Reverse(leased.job.priority), leased.job.available_at);
                granted.push((standing, self.jobs[slot].seq, leased));
            }
            let queue = &mut self.queues[queue];
            if granted.len() < demand.limit {
                // RES-7
                next_due = earlier(next_due, queue.next_due(request.now));
                // WAK-3
                queue.gate.is_starved = queue.is_starved(request.now);
            }
            granted.sort_by_key(|(standing, seq, _)| (*standing, *seq));
            jobs.extend(granted.into_iter().map(|(.., leased)| leased));
        }
        Ok(Reserved::new(jobs, next_due))
    }

    fn open_queue(&self, demand: &Demand) -> Option<usize> {
        let queue = *self.queue_ids.get(&demand.queue)?;
        // PAU-1
        self.queues[queue].paused_since.is_none().then_some(queue)
    }

    /// The best job of a queue, reclaimed if its lease has ended. Jobs that a reclaim cancels are passed
    /// by.
    fn next_to_grant(&mut self, queue: usize, now: Timestamp) -> Option<JobSlot> {
        loop {
            let slot = self.queues[queue].best(now)?;
            if !self.jobs[slot].life.is_expired(now) {
                return Some(slot);
            }
            // LEA-3
            if self.change_life(slot, |life| life.reclaim(now)) == Consequence::Failed {
                let Ok(()) = graph::failed(self, slot, now);
            }
        }
    }

    fn grant(&mut self, slot: JobSlot, lease: Lease, request: &Reserve) -> Leased {
        self.change_life(slot, |life| life.grant(lease, request.holder.clone(), request.now));
        let entry = &self.jobs[slot];
        self.queues[entry.queue].gate.charge(&entry.new.lane, request.now);
        Leased::new(JobView::assemble(&entry.new, entry.created_at, &entry.life), lease)
    }

    pub(crate) fn extend(
        &mut self,
        request: ExtendLeases,
    ) -> Result<Vec<Result<Extended, Refusal>>, DriverError> {
        let (expires_at, now) = (request.check()?, request.now);
        let extend = |item: Extension| {
            // REF-2, LEA-8
            let slot = self.slot(&item.id).ok_or(Refusal::JobNotFound)?;
            if self.jobs[slot].life.authorize(item.token, now)? == Settled::AlreadyTerminal {
                // SET-7
                return Err(Refusal::JobNotInflight);
            }
            self.change_life(slot, |life| life.extend(item, expires_at, now))
        };
        Ok(request.items.into_iter().map(extend).collect())
    }
}

fn earlier(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    [a, b].into_iter().flatten().min()
}
