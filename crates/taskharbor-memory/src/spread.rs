//! What the end of one job means for those that wait for it.
//!
//! All of it happens in the step that ended the job. Each link is closed at most once, so nobody
//! is let go twice.

use taskharbor_core::{
    State, Timestamp,
    job::{FailurePolicy, KeyHold},
};

use crate::store::{Slot, Store, Tie, Wakes};

impl Store {
    /// The job is done: those who wait for it wait for one less.
    pub(crate) fn spread_success(&mut self, slot: Slot, now: Timestamp, wakes: &mut Wakes) {
        // Most jobs have no dependants, and for them there is nothing to remember.
        self.release_key_when_done(slot);
        let mut done = Vec::new();
        self.close_links(slot, &Tie::Closed, &mut done, now, wakes);
        while let Some(slot) = done.pop() {
            self.release_key_when_done(slot);
            self.close_links(slot, &Tie::Closed, &mut done, now, wakes);
        }
    }

    /// The job failed, and nobody waits for it any longer, whatever becomes of it.
    pub(crate) fn release_dependants(&mut self, slot: Slot, now: Timestamp, wakes: &mut Wakes) {
        let life = &self.jobs[slot].life;
        let (state, reason) = (life.state(now), life.reason.clone());
        let mut done = Vec::new();
        self.close_links(slot, &Tie::Spent { state, reason }, &mut done, now, wakes);
        for slot in done {
            self.spread_success(slot, now, wakes);
        }
    }

    /// The job is dead-lettered or cancelled: its policy applies, and those of the jobs that are
    /// cancelled because of it.
    ///
    /// All that is to be cancelled is cancelled before anybody is let go, so that the order in
    /// which dependants are looked at makes no difference.
    pub(crate) fn spread_failure(&mut self, slot: Slot, now: Timestamp, wakes: &mut Wakes) {
        let root = self.jobs[slot].new.id.clone();
        let mut failed = vec![slot];
        let mut next = 0;
        while let Some(&slot) = failed.get(next) {
            let because_of_another = next > 0;
            next += 1;
            for slot in self.doomed_with(slot, because_of_another) {
                if self.change(slot, |_, life| life.cancel_after_failure(&root, now)) {
                    failed.push(slot);
                }
            }
        }
        for slot in failed {
            if self.jobs[slot].new.on_failure == FailurePolicy::Continue {
                self.release_dependants(slot, now, wakes);
            }
        }
    }

    /// Who has to be cancelled because this job failed, if not over or started.
    fn doomed_with(&self, slot: Slot, because_of_another: bool) -> Vec<Slot> {
        let entry = &self.jobs[slot];
        match entry.new.on_failure {
            FailurePolicy::Block if !because_of_another => Vec::new(),
            FailurePolicy::Continue => Vec::new(),
            FailurePolicy::Block | FailurePolicy::Cancel => {
                let waits = |(dependant, order): &&(Slot, usize)| {
                    self.jobs[*dependant].links[*order].tie == Tie::Open
                };
                entry.dependants.iter().filter(waits).map(|(dependant, _)| *dependant).collect()
            }
            FailurePolicy::FailFast => {
                let flow = entry.flow.map(|flow| &self.flows[flow]);
                flow.iter().flat_map(|flow| flow.not_started.values()).copied().collect()
            }
        }
    }

    /// Passes on the success of members that are done as soon as they are stored, and wakes the
    /// queues of the others that need not wait for anybody.
    pub(crate) fn start_members(&mut self, slots: &[Slot], now: Timestamp, wakes: &mut Wakes) {
        let is_done = |slot: &&Slot| self.jobs[**slot].is_over();
        let done: Vec<Slot> = slots.iter().filter(is_done).copied().collect();
        for &slot in slots {
            if self.jobs[slot].life.pending == 0 {
                wakes.push(self.jobs[slot].new.queue.clone());
            }
        }
        for slot in done {
            self.spread_success(slot, now, wakes);
        }
    }

    /// Closes every open link to this job; joins that are done by that are added to `done`.
    fn close_links(
        &mut self,
        slot: Slot,
        tie: &Tie,
        done: &mut Vec<Slot>,
        now: Timestamp,
        wakes: &mut Wakes,
    ) {
        for (dependant, order) in self.jobs[slot].dependants.clone() {
            let link = &mut self.jobs[dependant].links[order];
            if link.tie != Tie::Open {
                continue;
            }
            link.tie = tie.clone();
            match self.change(dependant, |new, life| life.unblock(new.kind, now)) {
                Some(State::Done) => done.push(dependant),
                Some(_) => wakes.push(self.jobs[dependant].new.queue.clone()),
                None => {}
            }
        }
    }

    /// Gives up the keys that were held until this job is done: its own, and that of the job whose
    /// output it has produced in the end.
    fn release_key_when_done(&mut self, slot: Slot) {
        let flow = self.jobs[slot].flow.map(|flow| &self.flows[flow]);
        let begun_as = flow.filter(|flow| flow.tail == slot).and_then(|flow| self.slot(&flow.id));
        for slot in [Some(slot), begun_as].into_iter().flatten() {
            if self.jobs[slot].new.key_hold == KeyHold::UntilDone {
                self.release_key(slot);
            }
        }
    }
}
