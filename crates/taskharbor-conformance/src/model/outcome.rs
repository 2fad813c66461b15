//! The effects of the end of a job on other jobs.

use taskharbor_core::{
    JobId, State, Timestamp,
    export::EdgeState,
    job::{FailurePolicy, KeyHold},
    life::Stage,
};

use super::{Kept, Model};

impl Model {
    /// The job is done: dependants that wait for its success wait for one job less, and those that
    /// wait for its failure are not needed.
    pub(crate) fn succeeded(&mut self, serial: u64, now: Timestamp) {
        self.free_keys(serial, State::Done);
        let Some(at) = self.by_serial(serial) else { return };
        let id = self.jobs[at].new.id.clone();
        for dependant in self.dependants(serial) {
            if self.close_edge(dependant, serial, &EdgeState::Closed) {
                let at = self.by_serial(dependant).expect("found just now");
                self.jobs[at].life.cancel_as_not_needed(&id, now);
            } else {
                self.wait_for_one_less(dependant, now);
            }
        }
    }

    /// The job is dead-lettered or cancelled: look for jobs that have to be cancelled because of
    /// it until there are none, then unblock the dependants of those that failed.
    pub(crate) fn failed(&mut self, serial: u64, now: Timestamp) {
        let Some(at) = self.by_serial(serial) else { return };
        let root = self.jobs[at].new.id.clone();
        self.free_keys(serial, self.jobs[at].life.state(now));
        let mut failed = vec![serial];
        while let Some(next) = self.next_to_cancel(&failed) {
            self.jobs[next].life.cancel_after_failure(&root, now);
            let serial = self.jobs[next].serial;
            self.free_keys(serial, State::Cancelled);
            failed.push(serial);
        }
        for serial in failed {
            let at = self.by_serial(serial).expect("nothing is removed here");
            let continues = self.jobs[at].new.on_failure == FailurePolicy::Continue;
            self.spend_edges(serial, now, |dependant| continues || dependant.is_failure_job());
        }
    }

    /// A job that has not started and must not, because one of `failed` did.
    fn next_to_cancel(&self, failed: &[u64]) -> Option<usize> {
        let may_be_cancelled = |job: &Kept| {
            matches!(job.life.stage, Stage::Blocked | Stage::Waiting) && !job.is_failure_job()
        };
        let is_stopped_by = |job: &Kept, cause: &Kept| match cause.new.on_failure {
            FailurePolicy::Continue => false,
            FailurePolicy::Block if failed[0] == cause.serial => false,
            FailurePolicy::Block | FailurePolicy::Cancel => job.waits_for(cause.serial),
            FailurePolicy::FailFast => job.life.flow.is_some() && job.life.flow == cause.life.flow,
        };
        let causes: Vec<&Kept> =
            self.jobs.iter().filter(|job| failed.contains(&job.serial)).collect();
        self.jobs.iter().position(|job| {
            may_be_cancelled(job) && causes.iter().any(|cause| is_stopped_by(job, cause))
        })
    }

    /// The job has failed. These dependants no longer wait for it, even if it is requeued.
    pub(crate) fn spend_edges(
        &mut self,
        serial: u64,
        now: Timestamp,
        is_unblocked: impl Fn(&Kept) -> bool,
    ) {
        let at = self.by_serial(serial).expect("it has just failed");
        let life = &self.jobs[at].life;
        let spent = EdgeState::Spent { state: life.state(now), reason: life.reason.clone() };
        for dependant in self.dependants(serial) {
            let at = self.by_serial(dependant).expect("found just now");
            if is_unblocked(&self.jobs[at]) {
                self.close_edge(dependant, serial, &spent);
                self.wait_for_one_less(dependant, now);
            }
        }
    }

    /// The serials of the jobs that wait for this one.
    fn dependants(&self, serial: u64) -> Vec<u64> {
        self.jobs.iter().filter(|job| job.waits_for(serial)).map(|job| job.serial).collect()
    }

    /// Closes the edge between two jobs; whether the dependant is a failure job.
    fn close_edge(&mut self, dependant: u64, parent: u64, state: &EdgeState) -> bool {
        let at = self.by_serial(dependant).expect("it is stored");
        let job = &mut self.jobs[at];
        for edge in job.parents.iter_mut().filter(|edge| edge.0 == parent) {
            edge.1 = state.clone();
        }
        job.is_failure_job()
    }

    fn wait_for_one_less(&mut self, serial: u64, now: Timestamp) {
        let at = self.by_serial(serial).expect("it is stored");
        let job = &mut self.jobs[at];
        if job.life.unblock(job.new.kind, now) == Some(State::Done) {
            self.succeeded(serial, now);
        }
    }

    /// The job ended in `state`: it gives up its key if it holds it no longer than that. So does the
    /// job under whose id its flow began, if this one is the flow's tail.
    pub(crate) fn free_keys(&mut self, serial: u64, state: State) {
        for at in self.keys_of(serial) {
            if self.jobs[at].new.key_hold.is_freed_by(state) {
                self.jobs[at].holds_key = false;
            }
        }
    }

    /// The jobs whose keys are held until this one ends.
    pub(crate) fn keys_of(&self, serial: u64) -> Vec<usize> {
        let flow = self.flows.iter().find(|flow| flow.tail == serial).map(|flow| &flow.id);
        let stands_for = |job: &Kept| {
            job.new.idempotency_key.is_some() && (job.serial == serial || Some(&job.new.id) == flow)
        };
        (0..self.jobs.len()).filter(|&at| stands_for(&self.jobs[at])).collect()
    }

    /// The jobs whose keys a requeue of this one takes again; the holder of one of them if it is
    /// taken.
    pub(crate) fn keys_to_take(&self, serial: u64, now: Timestamp) -> Result<Vec<usize>, JobId> {
        let mut keys = self.keys_of(serial);
        keys.retain(|&at| self.jobs[at].new.key_hold == KeyHold::UntilTerminal);
        for &at in &keys {
            if let Some(holder) = self.key_holder(&self.jobs[at].new, now)
                && holder != self.jobs[at].new.id
            {
                return Err(holder);
            }
        }
        Ok(keys)
    }
}
