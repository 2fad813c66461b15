//! [`Life`]: the mutable half of a job, and the rules that change it.
//!
//! This is the reference: pure, without a clock, a store or randomness. The memory driver keeps
//! one `Life` per job, and so does the model that every other driver is tested against. Rules over
//! several jobs are in [`graph`](crate::graph).

mod settle;
mod stage;

pub use crate::state::LifeStep;
pub use stage::{ActiveLease, Consequence, Finish, Stage};

use crate::{
    Blob, JobId, NewJob, State, Text, Timestamp,
    admin::Requeue,
    driver::{Lease, LeaseMark, Limits},
    error::Denied,
    job::{FailedAttempt, JobKind, ReleaseNote},
    name::Holder,
};

/// The mutable half of a job.
///
/// The fields are public so that a driver can read a life from its store and write it back; the
/// rules are in the methods. A driver that reads one starts with [`Life::in_stage`] and sets what
/// its store has, so a field that is added later does not break it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Life {
    /// The stage of the job.
    pub stage: Stage,
    /// The earliest time it may run, if one was set and no lease has run out since.
    pub run_at: Option<Timestamp>,
    /// Its position: never before the instant at which it was set.
    pub due_at: Timestamp,
    /// Higher runs first.
    pub priority: i16,
    /// How many executions have failed.
    pub attempts: u32,
    /// Replaces the job's own maximum after a requeue that kept the attempts.
    pub attempt_limit: Option<u32>,
    /// The newest failures, oldest first.
    pub errors: Vec<FailedAttempt>,
    /// How often it was granted.
    pub deliveries: u32,
    /// When it was granted last.
    pub started_at: Option<Timestamp>,
    /// How often in a row its lease ran out and a worker may have crashed running it.
    pub expirations: u32,
    /// How often it was requeued.
    pub epoch: u32,
    /// What was noted when it was last released, if it was not settled in another way and no lease ran out
    /// since.
    pub released: Option<ReleaseNote>,
    /// How many parents it waits for.
    pub pending: usize,
    /// What its worker reported in this delivery.
    pub progress: Option<Text>,
    /// Its output.
    pub output: Option<Blob>,
    /// Why it was dead-lettered or cancelled.
    pub reason: Option<Text>,
    /// The flow it belongs to.
    pub flow: Option<JobId>,
    /// The job whose output replaces its own.
    pub expanded_into: Option<JobId>,
}

impl Life {
    /// The life of a job stored at `now` that waits for `pending` parents.
    ///
    /// A join without parents is done at once.
    #[must_use]
    pub fn new(job: &NewJob, pending: usize, flow: Option<JobId>, now: Timestamp) -> Self {
        // ENQ-1, ORD-3
        let due_at = job.run_at.map_or(now, |at| at.max(now));
        let mut life = Self::in_stage(Stage::Blocked, due_at);
        life.run_at = job.run_at;
        life.priority = job.priority;
        life.pending = pending;
        life.flow = flow;
        life.leave_blocked(job.kind, now);
        life
    }

    /// A life in this stage with this position and nothing else: the start for a driver that reads
    /// one from its store.
    #[must_use]
    pub const fn in_stage(stage: Stage, due_at: Timestamp) -> Self {
        Self {
            stage,
            run_at: None,
            due_at,
            priority: 0,
            attempts: 0,
            attempt_limit: None,
            errors: Vec::new(),
            deliveries: 0,
            started_at: None,
            expirations: 0,
            epoch: 0,
            released: None,
            pending: 0,
            progress: None,
            output: None,
            reason: None,
            flow: None,
            expanded_into: None,
        }
    }

    /// The state at `now`.
    #[must_use]
    pub fn state(&self, now: Timestamp) -> State {
        match &self.stage {
            Stage::Blocked => State::Blocked,
            Stage::Waiting if self.due_at <= now => State::Ready,
            Stage::Waiting => State::Scheduled,
            Stage::Inflight(_) => State::Inflight,
            Stage::Finished(finish) => finish.state,
        }
    }

    /// The lease and its holder, while the job is inflight.
    #[must_use]
    pub const fn active_lease(&self) -> Option<&ActiveLease> {
        match &self.stage {
            Stage::Inflight(hold) => Some(hold),
            Stage::Blocked | Stage::Waiting | Stage::Finished(_) => None,
        }
    }

    /// How the job ended, if it is terminal.
    #[must_use]
    pub const fn finish(&self) -> Option<&Finish> {
        match &self.stage {
            Stage::Finished(finish) => Some(finish),
            Stage::Blocked | Stage::Waiting | Stage::Inflight(_) => None,
        }
    }

    /// The job's position among those of its queue and priority: while it is inflight, the one at
    /// which it was granted. `None` if it is blocked or terminal.
    #[must_use]
    pub const fn position(&self) -> Option<Timestamp> {
        match &self.stage {
            Stage::Waiting | Stage::Inflight(_) => Some(self.due_at),
            Stage::Blocked | Stage::Finished(_) => None,
        }
    }

    /// Whether the job has a lease that has ended at `now`.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.active_lease().is_some_and(|hold| hold.lease.expires_at <= now)
    }

    /// The first instant at which the record may be pruned with no retention at all: when it
    /// ended, or when the lease under which it ended would have run out, whichever is later.
    #[must_use]
    pub fn kept_until(&self) -> Option<Timestamp> {
        let finish = self.finish()?;
        // PRU-2
        Some(finish.by.map_or(finish.at, |lease| lease.expires_at.max(finish.at)))
    }

    /// Leases the job; `false` if it is not ready at `now`.
    pub fn grant(&mut self, lease: Lease, holder: Holder, now: Timestamp) -> bool {
        // RES-4, SET-5
        if self.state(now).after(LifeStep::Grant).is_none() {
            return false;
        }
        // JOB-6, LEA-9
        self.deliveries = self.deliveries.saturating_add(1);
        self.started_at = Some(now);
        self.progress = None;
        // RES-3
        self.stage = Stage::Inflight(ActiveLease::new(lease, holder, false));
        true
    }

    /// The first instant at which Reserve may grant the job: when it falls due, or when its lease
    /// ends. `None` if time alone does not make it grantable.
    #[must_use]
    pub fn grantable_at(&self) -> Option<Timestamp> {
        match &self.stage {
            Stage::Waiting => Some(self.due_at),
            Stage::Inflight(hold) => Some(hold.lease.expires_at),
            Stage::Blocked | Stage::Finished(_) => None,
        }
    }

    /// Ends the lease of this holder at `now`, as if it had expired; `false` if the holder has no
    /// valid lease on the job.
    pub fn evict(&mut self, holder: &Holder, now: Timestamp) -> bool {
        // EVI-1, EVI-2
        match &mut self.stage {
            Stage::Inflight(lease) if lease.holder == *holder && lease.lease.expires_at > now => {
                lease.lease.expires_at = now;
                true
            }
            Stage::Blocked | Stage::Waiting | Stage::Inflight(_) | Stage::Finished(_) => false,
        }
    }

    /// Reclaims the job from a holder whose lease has ended. Its position is then the end of the
    /// lease. If its cancellation was requested, it is cancelled instead.
    pub fn reclaim(&mut self, now: Timestamp) -> Consequence {
        let (ended_at, mark) = match &self.stage {
            Stage::Inflight(hold) if hold.lease.expires_at <= now => {
                (hold.lease.expires_at, hold.mark)
            }
            Stage::Blocked | Stage::Waiting | Stage::Inflight(_) | Stage::Finished(_) => {
                return Consequence::None;
            }
        };
        // LEA-12: without a mark, the answer to Reserve may have been lost.
        self.expirations = match mark {
            Some(LeaseMark::Started) => self.expirations.saturating_add(1),
            Some(LeaseMark::Leaving) => 0,
            None => self.expirations.max(1),
        };
        // LEA-4
        self.run_at = None;
        // SET-13
        self.released = None;
        // LEA-5
        if self.active_lease().is_some_and(|hold| hold.cancel_requested) {
            self.end(State::Cancelled, None, now);
            return Consequence::Failed;
        }
        // LEA-2: any position from the old one to the end of the lease would do.
        self.due_at = ended_at;
        self.stage = Stage::Waiting;
        Consequence::Waits
    }

    /// Waits for one parent less; the state it leaves `Blocked` for, if it does.
    pub fn unblock(&mut self, kind: JobKind, now: Timestamp) -> Option<State> {
        self.pending = self.pending.saturating_sub(1);
        self.leave_blocked(kind, now)
    }

    /// Cancels the job, or asks its worker to if it is inflight; the state it is in now.
    ///
    /// A holder whose lease has ended is not asked.
    ///
    /// # Errors
    ///
    /// [`Denied::WrongState`] if it is terminal.
    pub fn cancel(&mut self, now: Timestamp) -> Result<State, Denied> {
        let state = self.state(now);
        let next = state.after(LifeStep::Cancel).ok_or(Denied::WrongState(state))?;
        // CAN-1, CAN-6
        if next == State::Cancelled || self.is_expired(now) {
            self.end(State::Cancelled, None, now);
            return Ok(State::Cancelled);
        }
        // CAN-2
        if let Stage::Inflight(hold) = &mut self.stage {
            hold.cancel_requested = true;
        }
        Ok(next)
    }

    /// Cancels the job because `failed`, in the same flow, was dead-lettered or cancelled; `false`
    /// if it is inflight or terminal and so is not changed.
    pub fn cancel_after_failure(&mut self, failed: &JobId, now: Timestamp) -> bool {
        if !matches!(self.stage, Stage::Blocked | Stage::Waiting) {
            return false;
        }
        self.end(State::Cancelled, None, now);
        // POL-5
        self.reason = Some(Text::new(format!("job {failed} of the same flow failed")));
        true
    }

    /// Waits for one parent less, since `done` succeeded, and so cancels a failure job that is
    /// blocked; `false` if it was not.
    pub fn cancel_as_not_needed(&mut self, done: &JobId, now: Timestamp) -> bool {
        self.pending = self.pending.saturating_sub(1);
        if self.stage != Stage::Blocked {
            return false;
        }
        // FAI-2
        self.end(State::Cancelled, None, now);
        self.reason = Some(Text::new(format!("not needed: job {done} succeeded")));
        true
    }

    /// Requeues a dead-lettered or cancelled job; returns its new state.
    ///
    /// # Errors
    ///
    /// [`Denied::WrongState`] from any other state.
    pub fn requeue(
        &mut self,
        request: &Requeue,
        kind: JobKind,
        now: Timestamp,
    ) -> Result<State, Denied> {
        let state = self.state(now);
        state.after(LifeStep::Requeue).ok_or(Denied::WrongState(state))?;
        // REQ-1, LEA-6
        self.epoch = self.epoch.saturating_add(1);
        self.expirations = 0;
        self.reason = None;
        // REQ-2
        if request.reset_attempts {
            self.attempts = 0;
            self.attempt_limit = None;
        } else if state == State::Dlq {
            self.attempt_limit = Some(self.attempts.saturating_add(1).min(Limits::MAX_ATTEMPTS));
        }
        self.run_at = request.run_at;
        // REQ-3, REQ-8
        self.stage = Stage::Blocked;
        self.leave_blocked(kind, now);
        Ok(self.state(now))
    }

    /// Takes a terminal job out of its flow: it waits for no parent.
    pub fn detach(&mut self) {
        self.flow = None;
        self.pending = 0;
    }

    /// The tail of an expansion in `flow` stands for this job.
    pub fn expand_into(&mut self, tail: JobId, flow: JobId) {
        self.expanded_into = Some(tail);
        self.flow = Some(flow);
    }

    /// Makes the job due now; returns its new state.
    ///
    /// # Errors
    ///
    /// [`Denied::WrongState`] if it is inflight or terminal.
    pub fn run_now(&mut self, now: Timestamp) -> Result<State, Denied> {
        let state = self.state(now);
        state.after(LifeStep::RunNow).ok_or(Denied::WrongState(state))?;
        // ADM-5
        self.run_at = None;
        self.due_at = self.due_at.min(now);
        Ok(self.state(now))
    }

    /// Changes the priority; the state it is in.
    ///
    /// # Errors
    ///
    /// [`Denied::WrongState`] if it is terminal.
    pub fn set_priority(&mut self, priority: i16, now: Timestamp) -> Result<State, Denied> {
        let state = self.state(now);
        if state.is_terminal() {
            return Err(Denied::WrongState(state));
        }
        self.priority = priority;
        Ok(state)
    }

    /// Leaves `Blocked` if no parent is left to wait for.
    fn leave_blocked(&mut self, kind: JobKind, now: Timestamp) -> Option<State> {
        if self.stage != Stage::Blocked || self.pending > 0 {
            return None;
        }
        let step = match kind {
            JobKind::Work => LifeStep::Unblock,
            JobKind::Join(_) => LifeStep::Join,
        };
        let next = State::Blocked.after(step)?;
        if next.is_terminal() {
            self.end(next, None, now);
        } else {
            self.wait_until(self.run_at, now);
        }
        Some(self.state(now))
    }

    /// Gives the job a position. It never lies before `now`, however far in the past `run_at` lies:
    /// no job gains by failing.
    fn wait_until(&mut self, run_at: Option<Timestamp>, now: Timestamp) {
        // ORD-3
        self.due_at = run_at.map_or(now, |at| at.max(now));
        self.stage = Stage::Waiting;
    }

    fn end(&mut self, state: State, by: Option<Lease>, now: Timestamp) {
        // SET-13
        self.released = None;
        self.stage = Stage::Finished(Finish { state, at: now, by });
    }

    fn note(&mut self, failure: &FailedAttempt) {
        self.attempts = failure.attempts;
        // JOB-7
        self.errors.push(failure.clone());
        if self.errors.len() > Limits::ERRORS_KEPT {
            self.errors.remove(0);
        }
    }
}
