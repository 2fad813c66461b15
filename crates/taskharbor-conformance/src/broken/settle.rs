//! Mistakes in settling.

use std::sync::atomic::{AtomicUsize, Ordering};

use taskharbor_core::{
    State, Timestamp,
    driver::{Answers, Settle, Settled, Settlement, Transition},
    error::Refusal,
    job::FailedAttempt,
    life::{Finish, Life, Stage},
};

use crate::{model::Model, reference::Behaviour};

fn life<'a>(model: &'a Model, item: &Settlement) -> Option<&'a Life> {
    model.find(&item.id).map(|at| &model.jobs[at].life)
}

fn life_mut<'a>(model: &'a mut Model, item: &Settlement) -> Option<&'a mut Life> {
    model.find(&item.id).map(|at| &mut model.jobs[at].life)
}

fn before(instant: Timestamp) -> Timestamp {
    instant.saturating_sub(std::time::Duration::from_micros(1))
}

/// The caller that settles a job is taken for its holder.
pub(super) struct TokenNotCompared;

impl Behaviour for TokenNotCompared {
    fn settle(&self, model: &mut Model, mut request: Settle) -> Answers<Settled, Refusal> {
        for item in &mut request.items {
            if let Some(hold) = life(model, item).and_then(Life::active_lease) {
                item.token = hold.lease.token;
            }
        }
        model.settle(request)
    }
}

/// A lease lasts until another worker has the job.
pub(super) struct ExpiryNotCompared;

impl Behaviour for ExpiryNotCompared {
    fn settle(&self, model: &mut Model, request: Settle) -> Answers<Settled, Refusal> {
        request.check()?;
        let settle = |item: &Settlement| {
            let end =
                life(model, item).and_then(Life::active_lease).map(|hold| hold.lease.expires_at);
            let now = end.map_or(request.now, |end| request.now.min(before(end)));
            model.settle_one(item, now)
        };
        Ok(request.items.iter().map(settle).collect())
    }
}

/// `now <= expires_at` where `now < expires_at` was meant.
pub(super) struct AcceptedAtExpiry;

impl Behaviour for AcceptedAtExpiry {
    fn settle(&self, model: &mut Model, request: Settle) -> Answers<Settled, Refusal> {
        request.check()?;
        let settle = |item: &Settlement| {
            let end =
                life(model, item).and_then(Life::active_lease).map(|hold| hold.lease.expires_at);
            let now = if end == Some(request.now) { before(request.now) } else { request.now };
            model.settle_one(item, now)
        };
        Ok(request.items.iter().map(settle).collect())
    }
}

/// An ack removes the job, then looks at the token.
pub(super) struct AckDeletesFirst;

impl Behaviour for AckDeletesFirst {
    fn settle(&self, model: &mut Model, request: Settle) -> Answers<Settled, Refusal> {
        let answers = model.settle(request.clone())?;
        for (item, answer) in request.items.iter().zip(&answers) {
            if matches!(item.transition, Transition::Ack { .. })
                && *answer == Err(Refusal::LeaseMismatch)
            {
                model.jobs.retain(|job| job.new.id != item.id);
            }
        }
        Ok(answers)
    }
}

/// Dead-lettering does not look at what the job is already.
pub(super) struct FailOverwritesDone;

impl Behaviour for FailOverwritesDone {
    fn settle(&self, model: &mut Model, request: Settle) -> Answers<Settled, Refusal> {
        let (now, items) = (request.now, request.items.clone());
        let answers = model.settle(request)?;
        for item in items.iter().filter(|item| matches!(item.transition, Transition::Fail { .. })) {
            if let Some(life) = life_mut(model, item)
                && let Some(by) = life.finish().map(|finish| finish.by)
            {
                life.stage = Stage::Finished(Finish::new(State::Dlq, now, by));
            }
        }
        Ok(answers)
    }
}

/// The failure is written before the lease is looked at.
pub(super) struct RefusedRetryCounts;

impl Behaviour for RefusedRetryCounts {
    fn settle(&self, model: &mut Model, request: Settle) -> Answers<Settled, Refusal> {
        let items = request.items.clone();
        let answers = model.settle(request)?;
        for (item, answer) in items.iter().zip(&answers) {
            if let (Transition::Retry { failure, .. }, Err(_)) = (&item.transition, answer)
                && let Some(life) = life_mut(model, item)
            {
                life.attempts = failure.attempts;
            }
        }
        Ok(answers)
    }
}

/// One refused item ends the batch.
pub(super) struct StopsAtFirstError;

impl Behaviour for StopsAtFirstError {
    fn settle(&self, model: &mut Model, request: Settle) -> Answers<Settled, Refusal> {
        request.check()?;
        let mut stopped = false;
        let settle = |item: &Settlement| {
            if stopped {
                return Err(Refusal::JobNotFound);
            }
            let answer = model.settle_one(item, request.now);
            stopped = answer.is_err();
            answer
        };
        Ok(request.items.iter().map(settle).collect())
    }
}

/// The last of several answers is lost.
pub(super) struct ForgetsLastAnswer;

impl Behaviour for ForgetsLastAnswer {
    fn settle(&self, model: &mut Model, request: Settle) -> Answers<Settled, Refusal> {
        let mut answers = model.settle(request)?;
        if answers.len() > 1 {
            answers.pop();
        }
        Ok(answers)
    }
}

/// A released job has no lease, and only jobs whose lease has ended are looked for.
pub(super) struct ReleasedForever;

impl Behaviour for ReleasedForever {
    fn settle(&self, model: &mut Model, request: Settle) -> Answers<Settled, Refusal> {
        let items = request.items.clone();
        let answers = model.settle(request)?;
        for (item, answer) in items.iter().zip(&answers) {
            if let (Transition::Release { .. }, Ok(Settled::Applied)) = (&item.transition, answer)
                && let Some(life) = life_mut(model, item)
            {
                life.due_at = Timestamp::MAX;
            }
        }
        Ok(answers)
    }
}

/// Giving a job back counts as a failure.
pub(super) struct ReleaseCharges;

impl Behaviour for ReleaseCharges {
    fn settle(&self, model: &mut Model, mut request: Settle) -> Answers<Settled, Refusal> {
        let now = request.now;
        for item in &mut request.items {
            let attempts = life(model, item).map_or(0, |life| life.attempts);
            if let Transition::Release { run_at, .. } = item.transition {
                let failure = FailedAttempt::new(attempts + 1, "released", now);
                item.transition = Transition::Retry { failure, run_at };
            }
        }
        model.settle(request)
    }
}

/// A release says no more than when the job is due.
pub(super) struct ForgetsReleaseNote;

impl Behaviour for ForgetsReleaseNote {
    fn settle(&self, model: &mut Model, mut request: Settle) -> Answers<Settled, Refusal> {
        for item in &mut request.items {
            if let Transition::Release { note, .. } = &mut item.transition {
                *note = None;
            }
        }
        model.settle(request)
    }
}

/// A job that was run and released is still suspected of the crashes before that.
pub(super) struct StartedLikeUnstarted;

impl Behaviour for StartedLikeUnstarted {
    fn settle(&self, model: &mut Model, mut request: Settle) -> Answers<Settled, Refusal> {
        for item in &mut request.items {
            if let Transition::Release { started, .. } = &mut item.transition {
                *started = false;
            }
        }
        model.settle(request)
    }
}

/// A terminal job answers every token with success.
pub(super) struct AnyTokenRepeats;

impl Behaviour for AnyTokenRepeats {
    fn settle(&self, model: &mut Model, mut request: Settle) -> Answers<Settled, Refusal> {
        for item in &mut request.items {
            let finish = life(model, item).and_then(Life::finish);
            if let Some(lease) = finish.and_then(|finish| finish.by) {
                item.token = lease.token;
            }
        }
        model.settle(request)
    }
}

/// A retried job keeps the place it had.
pub(super) struct RetryToTheFront;

impl Behaviour for RetryToTheFront {
    fn settle(&self, model: &mut Model, request: Settle) -> Answers<Settled, Refusal> {
        let items = request.items.clone();
        let places: Vec<_> =
            items.iter().map(|item| life(model, item).map(|life| life.due_at)).collect();
        let answers = model.settle(request)?;
        for (item, place) in items.iter().zip(places) {
            if let (Transition::Retry { run_at: None, .. }, Some(place)) = (&item.transition, place)
                && let Some(life) = life_mut(model, item)
            {
                life.due_at = place;
            }
        }
        Ok(answers)
    }
}

/// A retry puts a job back although its cancellation was asked for.
pub(super) struct ForgetsCancelMark;

impl Behaviour for ForgetsCancelMark {
    fn settle(&self, model: &mut Model, request: Settle) -> Answers<Settled, Refusal> {
        for item in &request.items {
            if let Transition::Retry { .. } = item.transition
                && let Some(life) = life_mut(model, item)
                && let Stage::Inflight(hold) = &mut life.stage
            {
                hold.cancel_requested = false;
            }
        }
        model.settle(request)
    }
}

/// Every seventh settlement is refused for no reason, as by a lock that could not be had.
#[derive(Default)]
pub(super) struct RefusesAtTimes {
    calls: AtomicUsize,
}

impl Behaviour for RefusesAtTimes {
    fn settle(&self, model: &mut Model, request: Settle) -> Answers<Settled, Refusal> {
        if self.calls.fetch_add(1, Ordering::Relaxed) % 7 == 6 {
            request.check()?;
            return Ok(vec![Err(Refusal::LeaseMismatch); request.items.len()]);
        }
        model.settle(request)
    }
}

/// The token that ended a job may settle it again in any way.
pub(super) struct ContradictionRecognised;

impl Behaviour for ContradictionRecognised {
    fn settle(&self, model: &mut Model, request: Settle) -> Answers<Settled, Refusal> {
        let is_ended_by = |item: &Settlement| {
            let finish = life(model, item).and_then(Life::finish);
            finish.and_then(|finish| finish.by).is_some_and(|lease| lease.token == item.token)
        };
        let ended: Vec<bool> = request.items.iter().map(is_ended_by).collect();
        let mut answers = model.settle(request)?;
        for (answer, ended) in answers.iter_mut().zip(ended) {
            if ended && *answer == Err(Refusal::JobNotInflight) {
                *answer = Ok(Settled::AlreadyTerminal);
            }
        }
        Ok(answers)
    }
}
