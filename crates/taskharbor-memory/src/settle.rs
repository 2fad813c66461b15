//! Recording what became of inflight jobs.

use taskharbor_core::{
    Timestamp,
    driver::{Settle, Settled, Settlement, Transition},
    error::{InvalidTransition, Refusal, Rejected},
    flow::{Expansion, ResolvedEdges},
    life::Consequence,
};

use crate::store::{Slot, Store, Tie, Wakes};

impl Store {
    pub(crate) fn settle(
        &mut self,
        request: Settle,
        wakes: &mut Wakes,
    ) -> Vec<Result<Settled, Refusal>> {
        let now = request.now;
        request.items.into_iter().map(|item| self.settle_one(item, now, wakes)).collect()
    }

    fn settle_one(
        &mut self,
        item: Settlement,
        now: Timestamp,
        wakes: &mut Wakes,
    ) -> Result<Settled, Refusal> {
        let shape = item.transition.check(&self.limits)?;
        let slot = self.slot(&item.id).ok_or(Refusal::JobNotFound)?;
        let life = &self.jobs[slot].life;
        if life.authorize(item.token, now)? == Settled::AlreadyTerminal {
            return Ok(Settled::AlreadyTerminal);
        }
        if let Transition::Expand(expansion) = &item.transition
            && life.will_apply(&item.transition)
            && let Some(job) = expansion.jobs.iter().find(|job| self.by_id.contains_key(&job.id))
        {
            let overlap = Rejected::Overlap { job: job.id.clone() };
            return Err(InvalidTransition::Expansion(overlap).into());
        }
        let aftermath =
            self.change(slot, |_, life| life.settle(item.token, &item.transition, now))?;
        match (aftermath, item.transition, shape) {
            (Consequence::Expanded, Transition::Expand(expansion), Some(shape)) => {
                self.grow(slot, expansion, &shape, now, wakes);
            }
            (Consequence::Done, ..) => self.spread_success(slot, now, wakes),
            (Consequence::Failed, ..) => self.spread_failure(slot, now, wakes),
            (Consequence::Waits, ..) => wakes.push(self.jobs[slot].new.queue.clone()),
            (Consequence::None | Consequence::Expanded, ..) => {}
        }
        Ok(aftermath.answer())
    }

    fn grow(
        &mut self,
        grower: Slot,
        expansion: Expansion,
        shape: &ResolvedEdges,
        now: Timestamp,
        wakes: &mut Wakes,
    ) {
        let flow = self.flow_of(grower, now);
        let mut jobs = expansion.jobs;
        // Whoever waits for the grower cares about its policy, and waits for the tail from now on.
        jobs[shape.tail].on_failure = self.jobs[grower].new.on_failure;
        let slots = self.insert_members(jobs, shape, flow, now);
        self.step_aside(grower, slots[shape.tail], flow);
        if self.flows[flow].tail == grower {
            self.set_tail(flow, slots[shape.tail]);
        }
        self.start_members(&slots, now, wakes);
    }

    /// The flow of a job, which becomes one if it has none.
    fn flow_of(&mut self, slot: Slot, now: Timestamp) -> usize {
        if let Some(flow) = self.jobs[slot].flow {
            return flow;
        }
        let id = self.jobs[slot].new.id.clone();
        let flow = self.begin_flow(id, None, slot, now);
        self.unindex(slot);
        self.jobs[slot].flow = Some(flow);
        self.index(slot);
        self.join_flow(slot, flow);
        flow
    }

    /// Puts the expansion's tail in the grower's place, for those who wait and for those who read.
    fn step_aside(&mut self, grower: Slot, tail: Slot, flow: usize) {
        let (tail_id, place) = (self.jobs[tail].new.id.clone(), self.place_of(tail));
        for (dependant, order) in std::mem::take(&mut self.jobs[grower].dependants) {
            let entry = &mut self.jobs[dependant];
            if entry.links[order].tie == Tie::Open {
                entry.new.parents[order] = tail_id.clone();
                entry.links[order].parent = place;
                self.jobs[tail].dependants.push((dependant, order));
            } else {
                self.jobs[grower].dependants.push((dependant, order));
            }
        }
        let entry = &mut self.jobs[grower];
        entry.grown = Some(place);
        entry.life.expand_into(tail_id, self.flows[flow].id.clone());
    }
}
