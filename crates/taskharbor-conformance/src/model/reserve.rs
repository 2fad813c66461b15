//! One way to reserve, of those that the contract allows: what the model does as a driver.

use std::{cmp::Reverse, collections::BTreeSet};

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

    /// Reserves; a job whose lease has ended stands where `position` puts it.
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
            let (mut left, mut granted) = (demand.limit, Vec::new());
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
                self.take_turn(at, request.now);
                let job = &self.jobs[at];
                let standing = (Reverse(job.life.priority), position, job.serial);
                granted.push((standing, Leased::new(job.job(), lease)));
                left -= 1;
            }
            granted.sort_by_key(|(standing, _)| *standing);
            jobs.extend(granted.into_iter().map(|(_, leased)| leased));
            if left > 0 {
                waits.extend(self.next_due(&demand.queue, request.now));
            }
        }
        Ok(Reserved::new(jobs, waits.into_iter().min()))
    }

    /// A job was granted: its lane has used a part of its turn and of its rate.
    fn take_turn(&mut self, at: usize, now: Timestamp) {
        let (queue, lane) = (self.jobs[at].new.queue.clone(), self.jobs[at].new.lane.clone());
        let turn = self.turns_of(&queue).pop_first().flatten();
        let turn = self.turn_after(&queue, &turn, &lane);
        self.turns.insert(queue.clone(), BTreeSet::from([turn]));
        self.charge(&queue, &lane, now);
    }

    /// The first of the available jobs of a queue, and its position.
    fn first(
        &self,
        queue: &QueueName,
        now: Timestamp,
        position: impl Fn(&Life) -> Option<Timestamp>,
    ) -> Option<(Timestamp, usize)> {
        let available: Vec<usize> = self.available(queue, now).collect();
        let turn = self.turns_of(queue).pop_first().flatten();
        let (priority, lane) = self.next_lane(queue, &turn, &available, now)?;
        let in_lane = self.of_lane(&available, priority, &lane).into_iter();
        let in_order = in_lane.filter_map(|at| {
            let job = &self.jobs[at];
            let is_expired = job.life.is_expired(now);
            let position = if is_expired { position(&job.life)? } else { job.life.due_at };
            Some(((position, job.serial), (position, at)))
        });
        in_order.min().map(|(_, first)| first)
    }
}
