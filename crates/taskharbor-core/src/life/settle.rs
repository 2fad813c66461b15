//! The operations of the holder of a lease on its job: extending the lease, and settling the job.

use super::{Consequence, Finish, Life, LifeStep, Stage};
use crate::{
    State, Timestamp,
    driver::{Extended, Extension, LeaseToken, Settled, Transition},
    error::Refusal,
};

impl Life {
    /// Whether `token` may change the job at `now`: yes, or not any more because it ended it, or
    /// a refusal.
    ///
    /// # Errors
    ///
    /// [`Refusal::JobNotInflight`], then [`Refusal::LeaseMismatch`], then
    /// [`Refusal::LeaseExpired`].
    pub fn authorize(&self, token: LeaseToken, now: Timestamp) -> Result<Settled, Refusal> {
        // REF-1, LEA-1, LEA-10, SET-8. Nothing but the lease decides: WRK-6.
        match &self.stage {
            Stage::Inflight(hold) if hold.lease.token != token => Err(Refusal::LeaseMismatch),
            Stage::Inflight(hold) if hold.lease.expires_at <= now => Err(Refusal::LeaseExpired),
            Stage::Inflight(_) => Ok(Settled::Applied),
            Stage::Finished(Finish { by: Some(lease), .. }) if lease.token == token => {
                Ok(Settled::AlreadyTerminal)
            }
            Stage::Blocked | Stage::Waiting | Stage::Finished(_) => Err(Refusal::JobNotInflight),
        }
    }

    /// Extends the lease to `expires_at` unless it lasts longer already, and notes what the holder says.
    ///
    /// # Errors
    ///
    /// As [`Life::authorize`]; a terminal job is [`Refusal::JobNotInflight`] to every token.
    pub fn extend(
        &mut self,
        item: Extension,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> Result<Extended, Refusal> {
        self.authorize(item.token, now)?;
        let Stage::Inflight(hold) = &mut self.stage else {
            return Err(Refusal::JobNotInflight);
        };
        // LEA-7
        hold.lease.expires_at = hold.lease.expires_at.max(expires_at);
        // LEA-11
        hold.mark = item.mark.or(hold.mark);
        if item.progress.is_some() {
            self.progress = item.progress;
        }
        Ok(Extended::new(hold.lease, hold.cancel_requested))
    }

    /// Whether `token` may record `transition` at `now`: yes, or it is recorded already, or a
    /// refusal.
    ///
    /// # Errors
    ///
    /// As [`Life::authorize`]; [`Refusal::JobNotInflight`] also for the token that ended the job, if
    /// `transition` contradicts what it recorded.
    pub fn may_settle(
        &self,
        token: LeaseToken,
        transition: &Transition,
        now: Timestamp,
    ) -> Result<Settled, Refusal> {
        let answer = self.authorize(token, now)?;
        // SET-6, SET-7
        if answer == Settled::AlreadyTerminal && !self.repeats(transition) {
            return Err(Refusal::JobNotInflight);
        }
        Ok(answer)
    }

    /// Whether `transition` agrees with the recorded end of a terminal job.
    fn repeats(&self, transition: &Transition) -> bool {
        let Some(finish) = self.finish() else { return false };
        match transition {
            Transition::Ack { .. } => finish.state == State::Done && self.expanded_into.is_none(),
            // EXP-6
            Transition::Expand(_) => {
                self.expanded_into.is_some() || finish.state == State::Cancelled
            }
            Transition::Fail { .. } => matches!(finish.state, State::Dlq | State::Cancelled),
            Transition::Retry { .. } | Transition::Release { .. } => {
                finish.state == State::Cancelled
            }
        }
    }

    /// Whether `transition` would be applied as it is, and not as a cancellation.
    #[must_use]
    pub fn will_apply(&self, transition: &Transition) -> bool {
        // CAN-3, CAN-4
        matches!(transition, Transition::Ack { .. })
            || self.active_lease().is_some_and(|hold| !hold.cancel_requested)
    }

    /// Settles the job.
    ///
    /// If its cancellation was asked for, everything but an ack ends as cancelled.
    ///
    /// # Errors
    ///
    /// As [`Life::may_settle`].
    pub fn settle(
        &mut self,
        token: LeaseToken,
        transition: &Transition,
        now: Timestamp,
    ) -> Result<Consequence, Refusal> {
        if self.may_settle(token, transition, now)? == Settled::AlreadyTerminal {
            return Ok(Consequence::None);
        }
        let by = self.active_lease().map(|hold| hold.lease);
        let as_asked = self.will_apply(transition);
        if let Transition::Retry { failure, .. } | Transition::Fail { failure, .. } = transition {
            self.note(failure);
        }
        let step = if as_asked { transition.step() } else { LifeStep::Abandon };
        match State::Inflight.after(step) {
            Some(state) if state.is_terminal() => self.end(state, by, now),
            _ => {}
        }
        Ok(match transition {
            _ if !as_asked => Consequence::Failed,
            // SET-1
            Transition::Ack { output } => {
                self.output.clone_from(output);
                Consequence::Done
            }
            Transition::Expand(_) => Consequence::Expanded,
            // SET-2, SET-13, LEA-6
            Transition::Retry { run_at, .. } => {
                self.expirations = 0;
                self.released = None;
                self.run_at = *run_at;
                self.wait_until(*run_at, now);
                Consequence::Waits
            }
            // SET-3
            Transition::Fail { reason, .. } => {
                self.reason = Some(reason.clone());
                Consequence::Failed
            }
            // SET-4, SET-12, LEA-6
            Transition::Release { run_at, started, note } => {
                if note.is_some() {
                    self.released.clone_from(note);
                }
                if *started {
                    self.expirations = 0;
                }
                if run_at.is_some() {
                    self.run_at = *run_at;
                    self.wait_until(*run_at, now);
                } else {
                    self.stage = Stage::Waiting;
                }
                Consequence::Waits
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Blob, JobId, JobType, NewJob, QueueName, Text,
        driver::{Lease, LeaseMark},
        flow::Expansion,
        job::FailedAttempt,
        name::Holder,
    };

    const NOW: Timestamp = Timestamp::EPOCH;

    fn inflight() -> (Life, LeaseToken) {
        let queue = QueueName::new("q").unwrap();
        let id = JobId::new("a").unwrap();
        let job = NewJob::new(id, queue, JobType::new("work").unwrap(), &[]);
        let mut life = Life::new(&job, 0, None, NOW);
        let end = NOW.saturating_add(std::time::Duration::from_secs(60));
        let lease = Lease::new(LeaseToken::from_bits(7), end);
        assert!(life.grant(lease, Holder::new("h").unwrap(), NOW));
        (life, lease.token)
    }

    fn transitions() -> [Transition; 5] {
        let failure = FailedAttempt::new(1, "it failed", NOW);
        [
            Transition::Ack { output: Some(Blob::from(b"out")) },
            Transition::Expand(Expansion::new(Vec::new())),
            Transition::Retry { failure: failure.clone(), run_at: None },
            Transition::Fail { failure, reason: Text::new("no more") },
            Transition::Release { run_at: None, started: false, note: None },
        ]
    }

    /// What the token that ended the job is told when it settles again in each way.
    fn repeated(life: &Life, token: LeaseToken) -> [bool; 5] {
        transitions().map(|transition| match life.may_settle(token, &transition, NOW) {
            Ok(Settled::AlreadyTerminal) => true,
            Err(Refusal::JobNotInflight) => false,
            other => panic!("{other:?}"),
        })
    }

    fn seconds(count: u64) -> Timestamp {
        NOW.saturating_add(std::time::Duration::from_secs(count))
    }

    #[test]
    fn an_evicted_holder_is_refused_and_the_job_is_reclaimed() {
        let (mut life, token) = inflight();
        let (granted, holder) = (life.clone(), Holder::new("h").unwrap());
        // EVI-2
        assert!(!life.evict(&Holder::new("H").unwrap(), seconds(9)));
        assert!(!life.evict(&holder, seconds(60)), "it is over then");
        assert_eq!(life, granted);
        assert!(life.evict(&holder, seconds(9)));
        // EVI-1
        assert_eq!(life.authorize(token, seconds(9)), Err(Refusal::LeaseExpired));
        assert_eq!(life.grantable_at(), Some(seconds(9)));
        assert!(!life.evict(&holder, seconds(9)), "it is over now");
        assert_eq!(life.state(seconds(9)), State::Inflight);
        assert_eq!(life.reclaim(seconds(9)), Consequence::Waits);
        assert_eq!((life.expirations, life.due_at), (1, seconds(9)));
        assert!(!life.evict(&holder, seconds(9)), "nothing is leased");
    }

    #[test]
    fn an_evicted_life_keeps_its_mark_and_the_wish_to_cancel_it() {
        let holder = Holder::new("h").unwrap();
        for (mark, expirations) in
            [(None, 2), (Some(LeaseMark::Started), 3), (Some(LeaseMark::Leaving), 0)]
        {
            let (mut life, token) = inflight();
            life.expirations = 2;
            let mut extension = Extension::new(JobId::new("a").unwrap(), token);
            extension.mark = mark;
            life.extend(extension, seconds(900), NOW).unwrap();
            assert!(life.evict(&holder, seconds(9)));
            assert_eq!(life.reclaim(seconds(9)), Consequence::Waits);
            assert_eq!(life.expirations, expirations, "{mark:?}");
        }
        let (mut life, _) = inflight();
        life.cancel(NOW).unwrap();
        assert!(life.evict(&holder, seconds(9)));
        assert_eq!(life.reclaim(seconds(9)), Consequence::Failed);
        assert_eq!(life.state(seconds(9)), State::Cancelled);
    }

    #[test]
    fn an_eviction_leaves_a_settled_life_as_it_was() {
        let [ack, _, retry, ..] = transitions();
        for transition in [ack, retry] {
            let (mut life, token) = inflight();
            life.settle(token, &transition, NOW).unwrap();
            let settled = life.clone();
            assert!(!life.evict(&Holder::new("h").unwrap(), NOW));
            assert_eq!(life, settled);
        }
    }

    #[test]
    fn only_what_was_recorded_can_be_repeated() {
        let [ack, expand, _, fail, _] = transitions();
        let (mut done, token) = inflight();
        done.settle(token, &ack, NOW).unwrap();
        assert_eq!(repeated(&done, token), [true, false, false, false, false]);

        let (mut expanded, token) = inflight();
        expanded.settle(token, &expand, NOW).unwrap();
        expanded.expand_into(JobId::new("tail").unwrap(), JobId::new("a").unwrap());
        assert_eq!(repeated(&expanded, token), [false, true, false, false, false]);

        let (mut dead, token) = inflight();
        dead.settle(token, &fail, NOW).unwrap();
        assert_eq!(repeated(&dead, token), [false, false, false, true, false]);

        let (mut cancelled, token) = inflight();
        cancelled.cancel(NOW).unwrap();
        cancelled.settle(token, &fail, NOW).unwrap();
        assert_eq!(repeated(&cancelled, token), [false, true, true, true, true]);
    }
}
