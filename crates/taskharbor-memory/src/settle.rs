//! Recording the outcomes of inflight jobs.

use taskharbor_core::{
    Timestamp,
    driver::{Settle, Settled, Settlement, Transition},
    error::{InvalidTransition, Refusal, Rejected},
    graph::{self, Graph},
    life::Consequence,
};

use crate::store::Store;

impl Store {
    pub(crate) fn settle(&mut self, request: Settle) -> Vec<Result<Settled, Refusal>> {
        let now = request.now;
        request.items.into_iter().map(|item| self.settle_one(item, now)).collect()
    }

    fn settle_one(&mut self, item: Settlement, now: Timestamp) -> Result<Settled, Refusal> {
        let edges = item.transition.check(&self.limits)?;
        let slot = self.slot(&item.id).ok_or(Refusal::JobNotFound)?;
        let life = &self.jobs[slot].life;
        if life.may_settle(item.token, &item.transition, now)? == Settled::AlreadyTerminal {
            return Ok(Settled::AlreadyTerminal);
        }
        // CAN-5, EXP-3
        if let Transition::Expand(expansion) = &item.transition
            && life.will_apply(&item.transition)
            && let Some(job) = expansion.jobs.iter().find(|job| self.by_id.contains_key(&job.id))
        {
            let overlap = Rejected::Overlap { job: job.id.clone() };
            return Err(InvalidTransition::Expansion(overlap).into());
        }
        let consequence =
            self.change_life(slot, |life| life.settle(item.token, &item.transition, now))?;
        // WAK-3. The watches are woken once and look again, which shows whether a job still waits.
        let queue = &mut self.queues[self.jobs[slot].queue];
        if std::mem::take(&mut queue.gate.is_starved) {
            self.wakes.push(queue.name.clone());
        }
        let Ok(()) = match (consequence, item.transition, edges) {
            (Consequence::Expanded, Transition::Expand(expansion), Some(edges)) => {
                graph::expanded(self, slot, expansion, &edges, now)
            }
            (Consequence::Done, ..) => graph::succeeded(self, slot, now),
            (Consequence::Failed, ..) => graph::failed(self, slot, now),
            (Consequence::Waits, ..) => self.wake(slot),
            (Consequence::None | Consequence::Expanded, ..) => Ok(()),
        };
        Ok(consequence.answer())
    }
}
