//! What the end of a job means for others, and what they read of it.

use taskharbor_core::{
    State, Timestamp,
    driver::{Answers, Limits, OutputEntry, OutputOf, OutputPage, Outputs},
    error::Refusal,
    job::{FailurePolicy, JobKind, KeyHold},
    life::Stage,
};

use super::{Kept, Model, Tie};

impl Model {
    /// The job is done: those who wait for it wait for one less.
    pub(crate) fn succeeded(&mut self, serial: u64, now: Timestamp) {
        self.release_keys(serial);
        self.let_go(serial, &Tie::Closed, now);
    }

    /// The job is dead-lettered or cancelled: look for jobs that have to be cancelled because of
    /// it until there are none, then let go of those that failed members release.
    pub(crate) fn failed(&mut self, serial: u64, now: Timestamp) {
        let Some(at) = self.by_serial(serial) else { return };
        let root = self.jobs[at].new.id.clone();
        let mut failed = vec![serial];
        while let Some(next) = self.next_to_cancel(&failed) {
            self.jobs[next].life.cancel_after_failure(&root, now);
            failed.push(self.jobs[next].serial);
        }
        for serial in failed {
            let at = self.by_serial(serial).expect("nothing is removed here");
            if self.jobs[at].new.on_failure == FailurePolicy::Continue {
                self.release(at, now);
            }
        }
    }

    /// A job that has not started and must not, because one of `failed` did.
    fn next_to_cancel(&self, failed: &[u64]) -> Option<usize> {
        let has_not_started =
            |job: &Kept| matches!(job.life.stage, Stage::Blocked | Stage::Waiting);
        let is_stopped_by = |job: &Kept, cause: &Kept| match cause.new.on_failure {
            FailurePolicy::Continue => false,
            FailurePolicy::Block if failed[0] == cause.serial => false,
            FailurePolicy::Block | FailurePolicy::Cancel => job.waits_for(cause.serial),
            FailurePolicy::FailFast => job.life.flow.is_some() && job.life.flow == cause.life.flow,
        };
        let causes: Vec<&Kept> =
            self.jobs.iter().filter(|job| failed.contains(&job.serial)).collect();
        self.jobs.iter().position(|job| {
            has_not_started(job) && causes.iter().any(|cause| is_stopped_by(job, cause))
        })
    }

    /// The job has failed, and nobody waits for it any longer, whatever becomes of it.
    pub(crate) fn release(&mut self, at: usize, now: Timestamp) {
        let job = &self.jobs[at];
        let fate = Tie::Spent(job.life.state(now), job.life.reason.clone());
        self.let_go(job.serial, &fate, now);
    }

    fn let_go(&mut self, serial: u64, tie: &Tie, now: Timestamp) {
        let waiting = self.jobs.iter().filter(|job| job.waits_for(serial));
        for dependant in waiting.map(|job| job.serial).collect::<Vec<_>>() {
            let at = self.by_serial(dependant).expect("found just now");
            let job = &mut self.jobs[at];
            for parent in job.parents.iter_mut().filter(|parent| parent.0 == serial) {
                parent.1 = tie.clone();
            }
            if job.life.unblock(job.new.kind, now) == Some(State::Done) {
                self.succeeded(dependant, now);
            }
        }
    }

    /// A key held until its job is done is given up when the job is, and whatever it grew into.
    fn release_keys(&mut self, serial: u64) {
        let flow = self.flows.iter().find(|flow| flow.tail == serial).map(|flow| flow.id.clone());
        for job in &mut self.jobs {
            if job.new.key_hold == KeyHold::UntilDone
                && (job.serial == serial || Some(&job.new.id) == flow.as_ref())
            {
                job.holds_key = false;
            }
        }
    }

    pub(crate) fn outputs(&self, request: &Outputs) -> Answers<OutputPage, Refusal> {
        request.check()?;
        let answer = |query: &taskharbor_core::driver::OutputQuery| {
            let at = self.find(&query.id).ok_or(Refusal::JobNotFound)?;
            let all = match query.of {
                OutputOf::Itself => vec![self.output(self.jobs[at].serial)],
                OutputOf::Parents => self.inputs(at),
            };
            Ok(page(all, query.from, request.limit))
        };
        Ok(request.items.iter().map(answer).collect())
    }

    fn inputs(&self, at: usize) -> Vec<OutputEntry> {
        let input = |(parent, tie): &(u64, Tie)| match tie {
            Tie::Open | Tie::Closed => self.output(*parent),
            Tie::Spent(state, reason) => {
                OutputEntry::Failed { state: *state, reason: reason.clone() }
            }
        };
        self.jobs[at].parents.iter().map(input).collect()
    }

    fn output(&self, serial: u64) -> OutputEntry {
        let Some(at) = self.by_serial(serial) else { return OutputEntry::Missing };
        let job = &self.jobs[at];
        if let Some(next) = job.grown {
            return self.output(next);
        }
        match job.life.state(Timestamp::MAX) {
            State::Done if job.new.kind == JobKind::Join => {
                OutputEntry::List { join: job.new.id.clone(), len: job.parents.len() }
            }
            State::Done => OutputEntry::Done(job.life.output.clone()),
            state @ (State::Dlq | State::Cancelled) => {
                OutputEntry::Failed { state, reason: job.life.reason.clone() }
            }
            _ => OutputEntry::Pending,
        }
    }
}

fn page(all: Vec<OutputEntry>, from: usize, limit: usize) -> OutputPage {
    let total = all.len();
    let mut bytes = 0;
    let mut entries: Vec<OutputEntry> = Vec::new();
    for entry in all.into_iter().skip(from).take(limit) {
        if let OutputEntry::Done(Some(output)) = &entry {
            bytes += output.len();
        }
        if bytes > Limits::PAGE_BYTES && !entries.is_empty() {
            break;
        }
        entries.push(entry);
    }
    let end = from.saturating_add(entries.len());
    OutputPage::new(entries, (end < total).then_some(end))
}
