//! One way to reserve, of those that the contract allows: what the model does as a driver.

use taskharbor_core::{
    DriverError, QueueName, Timestamp,
    driver::{Lease, LeaseToken, Leased, Reserve, Reserved},
    life::{Consequence, Life},
};

use super::Model;

impl Model {
    /// Reserves; a reclaimed job stands where its lease ended.
    pub(crate) fn reserve(&mut self, request: &Reserve) -> Result<Reserved, DriverError> {
        self.reserve_by(request, Life::grantable_at)
    }

    /// Reserves; a job whose lease is over stands where `position` puts it.
    pub(crate) fn reserve_by(
        &mut self,
        request: &Reserve,
        position: impl Fn(&Life) -> Option<Timestamp>,
    ) -> Result<Reserved, DriverError> {
        let expires_at = request.check()?;
        let (mut jobs, mut waits) = (Vec::new(), Vec::new());
        for demand in &request.demands {
            if self.paused.contains_key(&demand.queue) {
                continue;
            }
            let mut left = demand.limit;
            while left > 0
                && let Some((position, at)) = self.first(&demand.queue, request.now, &position)
            {
                match self.jobs[at].life.reclaim(request.now) {
                    Consequence::Failed => {
                        self.failed(self.jobs[at].serial, request.now);
                        continue;
                    }
                    Consequence::Waits => self.jobs[at].life.due_at = position,
                    _ => {}
                }
                let lease = Lease::new(LeaseToken::random()?, expires_at);
                // A position that lies ahead must not keep a broken driver from granting.
                let now = request.now.max(position);
                self.jobs[at].life.grant(lease, request.holder.clone(), now);
                self.jobs[at].life.started_at = Some(request.now);
                jobs.push(Leased::new(self.jobs[at].job(), lease));
                left -= 1;
            }
            if left > 0 {
                waits.extend(self.next_due(&demand.queue));
            }
        }
        Ok(Reserved::new(jobs, waits.into_iter().min()))
    }

    /// The first of the available jobs of a queue, and its position.
    fn first(
        &self,
        queue: &QueueName,
        now: Timestamp,
        position: impl Fn(&Life) -> Option<Timestamp>,
    ) -> Option<(Timestamp, usize)> {
        let in_order = self.available(queue, now).filter_map(|at| {
            let job = &self.jobs[at];
            let is_expired = job.life.is_expired(now);
            let position = if is_expired { position(&job.life)? } else { job.life.due_at };
            Some(((-i32::from(job.life.priority), position, job.serial), (position, at)))
        });
        in_order.min().map(|(_, first)| first)
    }
}
