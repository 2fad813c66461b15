//! Mistakes with failure jobs.

use taskharbor_core::{
    State, Timestamp,
    driver::{Answers, Settle, Settled},
    error::Refusal,
    job::FailurePolicy,
    life::Stage,
};

use crate::{
    model::{Kept, Model},
    reference::Behaviour,
};

/// Settles, and then does something to every failure job of which `was` the state before.
fn settle_and_mend(
    model: &mut Model,
    request: Settle,
    mend: impl Fn(&Model, &Kept, &mut Kept),
) -> Answers<Settled, Refusal> {
    let before = model.jobs.clone();
    let answers = model.settle(request)?;
    let then = model.clone();
    for (was, job) in before.iter().zip(&mut model.jobs) {
        if was.is_failure_job() && was.life.stage == Stage::Blocked {
            mend(&then, was, job);
        }
    }
    Ok(answers)
}

fn was_cancelled(job: &Kept) -> bool {
    job.life.finish().is_some_and(|finish| finish.state == State::Cancelled)
}

fn run(job: &mut Kept, now: Timestamp) {
    job.life.stage = Stage::Waiting;
    (job.life.due_at, job.life.pending, job.life.reason) = (now, 0, None);
}

/// A failure job runs when its parent has ended, however that was.
pub(super) struct RunsAnyway;

impl Behaviour for RunsAnyway {
    fn settle(&self, model: &mut Model, request: Settle) -> Answers<Settled, Refusal> {
        let now = request.now;
        settle_and_mend(model, request, |_, _, job| {
            if was_cancelled(job) {
                run(job, now);
            }
        })
    }
}

/// A failure job whose parent is done waits for ever.
pub(super) struct NeverDropped;

impl Behaviour for NeverDropped {
    fn settle(&self, model: &mut Model, request: Settle) -> Answers<Settled, Refusal> {
        settle_and_mend(model, request, |_, was, job| {
            if was_cancelled(job) {
                job.life = was.life.clone();
            }
        })
    }
}

/// Fail-fast stops the failure jobs too.
pub(super) struct FailFastStopsHandlers;

impl Behaviour for FailFastStopsHandlers {
    fn settle(&self, model: &mut Model, request: Settle) -> Answers<Settled, Refusal> {
        let now = request.now;
        settle_and_mend(model, request, |model, _, job| {
            let stopped = model.jobs.iter().any(|other| {
                let failed = other.life.finish().is_some_and(|it| it.state == State::Dlq);
                failed
                    && other.new.on_failure == FailurePolicy::FailFast
                    && other.life.flow == job.life.flow
                    && other.life.flow.is_some()
            });
            if stopped {
                job.life.cancel_after_failure(&job.new.id.clone(), now);
            }
        })
    }
}
