//! Granting leases and extending them.

use taskharbor_core::{
    Aftermath, Demand, DriverError, ExtendLeases, Extended, Extension, Job, Lease, LeaseToken,
    Leased, Refusal, Reserve, Reserved, Timestamp,
};

use crate::store::{Slot, Store, Wakes};

impl Store {
    pub(crate) fn reserve(
        &mut self,
        request: &Reserve,
        wakes: &mut Wakes,
    ) -> Result<Reserved, DriverError> {
        let expires_at = request.check()?;
        let wanted: usize = request.demands.iter().map(|demand| demand.limit).sum();
        // Drawn before anything changes, so that a failure leaves nothing half done.
        let mut tokens = LeaseToken::random_many(wanted.min(self.jobs.len()))?.into_iter();
        let (mut jobs, mut next_due) = (Vec::with_capacity(tokens.len()), None);
        // All are taken back before any is granted: one that ends may let others go anywhere.
        for demand in &request.demands {
            self.reclaim(demand, request.now, wakes);
        }
        for demand in &request.demands {
            let Some(queue) = self.open_queue(demand) else { continue };
            let best = self.queues[queue].best(demand.limit, request.now);
            let unmet = best.len() < demand.limit;
            for (slot, token) in best.into_iter().zip(&mut tokens) {
                let lease = Lease::new(token, expires_at);
                jobs.push(self.grant(slot, lease, request));
            }
            if unmet {
                next_due = earlier(next_due, self.queues[queue].next_due());
            }
        }
        Ok(Reserved::new(jobs, next_due))
    }

    fn open_queue(&self, demand: &Demand) -> Option<usize> {
        let queue = *self.queue_ids.get(&demand.queue)?;
        self.queues[queue].paused_since.is_none().then_some(queue)
    }

    fn reclaim(&mut self, demand: &Demand, now: Timestamp, wakes: &mut Wakes) {
        let Some(queue) = self.open_queue(demand) else { return };
        while let Some(slot) = self.queues[queue].first_expired(now) {
            if self.change(slot, |_, life| life.reclaim(now)) == Aftermath::Failed {
                self.spread_failure(slot, now, wakes);
            }
        }
    }

    fn grant(&mut self, slot: Slot, lease: Lease, request: &Reserve) -> Leased {
        self.change(slot, |_, life| life.grant(lease, request.holder.clone(), request.now));
        let entry = &self.jobs[slot];
        Leased::new(Job::assemble(&entry.new, entry.created_at, &entry.life), lease)
    }

    pub(crate) fn extend(
        &mut self,
        request: ExtendLeases,
    ) -> Result<Vec<Result<Extended, Refusal>>, DriverError> {
        let (expires_at, now) = (request.check()?, request.now);
        let extend = |item: Extension| {
            let slot = self.slot(&item.id).ok_or(Refusal::JobNotFound)?;
            self.jobs[slot].life.authorize(item.token, now)?;
            self.change(slot, |_, life| life.extend(item.token, item.progress, expires_at, now))
        };
        Ok(request.items.into_iter().map(extend).collect())
    }
}

fn earlier(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    [a, b].into_iter().flatten().min()
}
