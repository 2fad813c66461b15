//! Drivers that are not broken, and differ from ours within the contract.

use taskharbor_core::{
    DriverError, State, Timestamp,
    admin::{Counts, Manage, Prune, QueueCounts},
    driver::{Answers, ExtendLeases, Extended, LeaseToken, Limits, Reserve, Reserved},
    error::{Denied, Refusal},
};

use crate::{model::Model, reference::Behaviour};

/// Every extension changes the token.
pub(super) struct RotatesTokens;

impl Behaviour for RotatesTokens {
    fn extend(&self, model: &mut Model, request: ExtendLeases) -> Answers<Extended, Refusal> {
        let ids: Vec<_> = request.items.iter().map(|item| item.id.clone()).collect();
        let mut answers = model.extend(request)?;
        for (id, answer) in ids.iter().zip(&mut answers) {
            if let Ok(extended) = answer {
                extended.lease.token = LeaseToken::random()?;
                model.adopt(id, extended.lease.token);
            }
        }
        Ok(answers)
    }
}

/// Asks its callers to come back sooner than they need to.
pub(super) struct WakesEarly;

impl Behaviour for WakesEarly {
    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        let reserved = model.reserve(&request)?;
        // RES-10
        let soon = request.now.saturating_add(std::time::Duration::from_millis(10));
        Ok(Reserved::new(reserved.jobs, reserved.next_due.map(|due| due.min(soon))))
    }
}

/// A reclaimed job stands where it stood at its last grant.
pub(super) struct ReclaimedKeepPosition;

impl Behaviour for ReclaimedKeepPosition {
    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        model.reserve_by(&request, |life| Some(life.grantable_at()?.min(life.due_at)))
    }
}

/// A reclaimed job stands in the middle of what is allowed.
pub(super) struct ReclaimedBetween;

impl Behaviour for ReclaimedBetween {
    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        model.reserve_by(&request, |life| {
            let (from, to) = (life.due_at.as_micros(), life.grantable_at()?.as_micros());
            let from = from.min(to);
            Timestamp::from_micros(from + (to - from) / 2).ok()
        })
    }
}

/// Stops counting at the cap.
pub(super) struct CountsUpToCap;

impl Behaviour for CountsUpToCap {
    fn counts(&self, model: &Model, request: Counts) -> Result<Vec<QueueCounts>, DriverError> {
        let mut counts = model.counts(request)?;
        let cap = request.at_most.unwrap_or(usize::MAX);
        for queue in &mut counts {
            for &state in State::ALL {
                let count = queue.states.get_mut(state);
                *count = cap.min(*count);
            }
        }
        Ok(counts)
    }
}

/// Forgets the turn of a queue that has no jobs.
pub(super) struct ForgetsTurns;

impl ForgetsTurns {
    fn forget(model: &mut Model) {
        let jobs = &model.jobs;
        model.turns.retain(|queue, _| jobs.iter().any(|job| job.new.queue == *queue));
    }
}

impl Behaviour for ForgetsTurns {
    fn manage(&self, model: &mut Model, request: Manage) -> Answers<State, Denied> {
        let answers = model.manage(&request);
        Self::forget(model);
        answers
    }

    fn prune(&self, model: &mut Model, request: Prune) -> Result<usize, DriverError> {
        let removed = model.prune(&request);
        Self::forget(model);
        removed
    }
}

/// Keeps single jobs only.
pub(super) struct WithoutFlows;

impl Behaviour for WithoutFlows {
    fn limits(&self) -> Limits {
        Limits::default().without_flows()
    }
}
