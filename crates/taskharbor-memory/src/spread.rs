//! What the end of one job means for those that wait for it.
//!
//! All of it happens in the step that ended the job. Each link is closed at most once, so nobody
//! is let go twice.

use taskharbor_core::{FailurePolicy, JobId, KeyHold, State, Timestamp};

use crate::store::{Slot, Store, Wakes};

/// The end of one job, still to be passed on to its dependants.
enum News {
    Success(Slot),
    Failure(Slot, Cause),
}

/// Why a job failed.
#[derive(Clone)]
enum Cause {
    /// By itself.
    Own,
    /// Because this one did.
    Other(JobId),
}

impl Store {
    pub(crate) fn spread_success(&mut self, slot: Slot, now: Timestamp, wakes: &mut Wakes) {
        self.spread(News::Success(slot), now, wakes);
    }

    pub(crate) fn spread_failure(&mut self, slot: Slot, now: Timestamp, wakes: &mut Wakes) {
        self.spread(News::Failure(slot, Cause::Own), now, wakes);
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

    fn spread(&mut self, first: News, now: Timestamp, wakes: &mut Wakes) {
        let mut news = vec![first];
        while let Some(next) = news.pop() {
            match next {
                News::Success(slot) => {
                    self.release_key_when_done(slot);
                    self.let_go(slot, &mut news, now, wakes);
                }
                News::Failure(slot, cause) => self.fail(slot, cause, &mut news, now, wakes),
            }
        }
    }

    fn fail(
        &mut self,
        slot: Slot,
        cause: Cause,
        news: &mut Vec<News>,
        now: Timestamp,
        wakes: &mut Wakes,
    ) {
        let entry = &self.jobs[slot];
        let (policy, own_id) = (entry.new.on_failure, entry.new.id.clone());
        match (policy, cause) {
            (FailurePolicy::Hold, Cause::Own) => {}
            (FailurePolicy::Release, _) => self.let_go(slot, news, now, wakes),
            (FailurePolicy::FailFast, Cause::Own) => self.sweep(slot, &own_id, now),
            (FailurePolicy::FailFast, Cause::Other(root)) => self.sweep(slot, &root, now),
            (FailurePolicy::Cancel, Cause::Own) => self.stop(slot, &own_id, news, now),
            (FailurePolicy::Hold | FailurePolicy::Cancel, Cause::Other(root)) => {
                self.stop(slot, &root, news, now);
            }
        }
    }

    /// Closes every open link to this job.
    fn let_go(&mut self, slot: Slot, news: &mut Vec<News>, now: Timestamp, wakes: &mut Wakes) {
        for (dependant, order) in self.jobs[slot].dependants.clone() {
            let link = &mut self.jobs[dependant].links[order];
            if !std::mem::replace(&mut link.open, false) {
                continue;
            }
            match self.change(dependant, |new, life| life.unblock(new.kind, now)) {
                Some(State::Done) => news.push(News::Success(dependant)),
                Some(_) => wakes.push(self.jobs[dependant].new.queue.clone()),
                None => {}
            }
        }
    }

    /// Cancels those that wait for this job.
    fn stop(&mut self, slot: Slot, root: &JobId, news: &mut Vec<News>, now: Timestamp) {
        for (dependant, order) in self.jobs[slot].dependants.clone() {
            if self.jobs[dependant].links[order].open
                && self.change(dependant, |_, life| life.cancel_after_failure(root, now))
            {
                news.push(News::Failure(dependant, Cause::Other(root.clone())));
            }
        }
    }

    /// Cancels all in the flow that has not started.
    fn sweep(&mut self, slot: Slot, root: &JobId, now: Timestamp) {
        let Some(flow) = self.jobs[slot].flow else {
            return;
        };
        let members: Vec<Slot> = self.flows[flow].members.values().copied().collect();
        for member in members {
            self.change(member, |_, life| life.cancel_after_failure(root, now));
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
