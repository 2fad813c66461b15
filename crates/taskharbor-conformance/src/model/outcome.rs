//! What the end of a job means for others, and what they read of it.

use taskharbor_core::{
    Answers, FailurePolicy, JobKind, KeyHold, Limits, OutputEntry, OutputOf, OutputPage, Outputs,
    Refusal, Stage, State, Timestamp,
};

use super::{Kept, Model};

impl Model {
    /// The job is done: those who wait for it wait for one less.
    pub(crate) fn succeeded(&mut self, serial: u64, now: Timestamp) {
        self.release_keys(serial);
        self.let_go(serial, now);
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
            if self.jobs[at].new.on_failure == FailurePolicy::Release {
                self.let_go(serial, now);
            }
        }
    }

    /// A job that has not started and must not, because one of `failed` did.
    fn next_to_cancel(&self, failed: &[u64]) -> Option<usize> {
        let has_not_started =
            |job: &Kept| matches!(job.life.stage, Stage::Blocked | Stage::Waiting);
        let is_stopped_by = |job: &Kept, cause: &Kept| match cause.new.on_failure {
            FailurePolicy::Release => false,
            FailurePolicy::Hold if failed[0] == cause.serial => false,
            FailurePolicy::Hold | FailurePolicy::Cancel => {
                job.parents.contains(&(cause.serial, true))
            }
            FailurePolicy::FailFast => job.life.flow.is_some() && job.life.flow == cause.life.flow,
        };
        let causes: Vec<&Kept> =
            self.jobs.iter().filter(|job| failed.contains(&job.serial)).collect();
        self.jobs.iter().position(|job| {
            has_not_started(job) && causes.iter().any(|cause| is_stopped_by(job, cause))
        })
    }

    fn waiting_for(&self, serial: u64) -> Vec<u64> {
        let waits = |job: &&Kept| job.parents.contains(&(serial, true));
        self.jobs.iter().filter(waits).map(|job| job.serial).collect()
    }

    /// Nobody waits for this job any longer.
    pub(crate) fn let_go(&mut self, serial: u64, now: Timestamp) {
        for dependant in self.waiting_for(serial) {
            let at = self.by_serial(dependant).expect("found just now");
            let job = &mut self.jobs[at];
            for parent in &mut job.parents {
                parent.1 &= parent.0 != serial;
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
        let answer = |query: &taskharbor_core::OutputQuery| {
            let at = self.find(&query.id).ok_or(Refusal::JobNotFound)?;
            let mut all = Vec::new();
            match query.of {
                OutputOf::Itself => self.write_output(self.jobs[at].serial, &mut all),
                OutputOf::Parents => self.write_parents(at, &mut all),
            }
            Ok(page(all, query.from, request.limit))
        };
        Ok(request.items.iter().map(answer).collect())
    }

    fn write_parents(&self, at: usize, all: &mut Vec<OutputEntry>) {
        let parents = &self.jobs[at].parents;
        all.push(OutputEntry::List(parents.len()));
        for (parent, _) in parents {
            self.write_output(*parent, all);
        }
    }

    fn write_output(&self, serial: u64, all: &mut Vec<OutputEntry>) {
        let Some(at) = self.by_serial(serial) else {
            all.push(OutputEntry::Missing);
            return;
        };
        let job = &self.jobs[at];
        if let Some(next) = job.life.grown_into.as_ref().and_then(|id| self.find(id)) {
            return self.write_output(self.jobs[next].serial, all);
        }
        let entry = match job.life.state(Timestamp::MAX) {
            State::Done if job.new.kind == JobKind::Join => return self.write_parents(at, all),
            State::Done => OutputEntry::Done(job.life.output.clone()),
            state @ (State::Dlq | State::Cancelled) => {
                OutputEntry::Failed { state, reason: job.life.reason.clone() }
            }
            _ => OutputEntry::Pending,
        };
        all.push(entry);
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
