//! Mistakes with keys and with export and import.

use taskharbor_core::{
    DriverError, State,
    admin::{Action, Manage, Prune},
    driver::{Answers, LeaseToken, Settle, Settled},
    error::Denied,
    error::Refusal,
    export::{ExportUnit, ImportRefused, Imported},
    job::KeyHold,
    life::Stage,
};

use crate::{model::Model, reference::Behaviour};

/// A dead-lettered job keeps a key that is held until it is terminal.
pub(super) struct DeadLetterKeepsKey;

impl Behaviour for DeadLetterKeepsKey {
    fn settle(&self, model: &mut Model, request: Settle) -> Answers<Settled, Refusal> {
        let before = model.jobs.clone();
        let answers = model.settle(request)?;
        for (was, job) in before.iter().zip(&mut model.jobs) {
            let is_dlq = job.life.finish().is_some_and(|it| it.state == State::Dlq);
            if was.holds_key && is_dlq && !was.is_over() {
                job.holds_key = true;
            }
        }
        Ok(answers)
    }
}

/// A requeue does not look whether its key is taken.
pub(super) struct RequeueIgnoresKey;

impl Behaviour for RequeueIgnoresKey {
    fn manage(&self, model: &mut Model, request: Manage) -> Answers<State, Denied> {
        if !matches!(request.action, Action::Requeue(_)) {
            return model.manage(&request);
        }
        let keys: Vec<_> = model.jobs.iter().map(|job| job.holds_key).collect();
        model.jobs.iter_mut().for_each(|job| job.holds_key = false);
        let outlived = std::mem::take(&mut model.keys);
        let answers = model.manage(&request);
        model.keys = outlived;
        for (job, held) in model.jobs.iter_mut().zip(keys) {
            job.holds_key |= held;
        }
        answers
    }
}

/// A key is removed with the record of its job, even if it was to be held for longer.
pub(super) struct TimedKeyDiesWithRecord;

impl Behaviour for TimedKeyDiesWithRecord {
    fn manage(&self, model: &mut Model, request: Manage) -> Answers<State, Denied> {
        let answers = model.manage(&request);
        model.keys.clear();
        answers
    }

    fn prune(&self, model: &mut Model, request: Prune) -> Result<usize, DriverError> {
        let removed = model.prune(&request);
        model.keys.clear();
        removed
    }
}

/// A key that is held for a time is held for as long as the job's record is there.
pub(super) struct TimeOfKeyIgnored;

impl Behaviour for TimeOfKeyIgnored {
    fn enqueue(
        &self,
        model: &mut Model,
        mut request: taskharbor_core::driver::Enqueue,
    ) -> Answers<Vec<taskharbor_core::driver::Enqueued>, taskharbor_core::error::Rejected> {
        for job in request.sets.iter_mut().flat_map(|set| &mut set.jobs) {
            if let KeyHold::For(time) = &mut job.key_hold
                && !time.is_zero()
                && time.as_secs() < 1_000_000
                && time.subsec_nanos() == 0
            {
                *time *= 1_000;
            }
        }
        model.enqueue(request)
    }
}

/// A flow with a fault in it is imported as far as the fault.
pub(super) struct HalfImported;

impl Behaviour for HalfImported {
    fn import(
        &self,
        model: &mut Model,
        units: Vec<ExportUnit>,
    ) -> Answers<Imported, ImportRefused> {
        let copies = units.clone();
        let answers = model.import(units)?;
        for (unit, answer) in copies.into_iter().zip(&answers) {
            if answer.is_err() {
                for mut job in unit.jobs {
                    job.life.flow = None;
                    job.new.parents.clear();
                    job.edges.clear();
                    model.import(vec![ExportUnit::job(job)])?;
                }
            }
        }
        Ok(answers)
    }
}

/// Tokens are not exported, so that the importing store makes new ones.
pub(super) struct ImportForgetsToken;

impl Behaviour for ImportForgetsToken {
    fn import(
        &self,
        model: &mut Model,
        mut units: Vec<ExportUnit>,
    ) -> Answers<Imported, ImportRefused> {
        for job in units.iter_mut().flat_map(|unit| &mut unit.jobs) {
            if let Stage::Inflight(hold) = &mut job.life.stage {
                hold.lease.token = LeaseToken::random()?;
            }
        }
        model.import(units)
    }
}

/// An import overwrites what is stored.
pub(super) struct ImportOverwrites;

impl Behaviour for ImportOverwrites {
    fn import(
        &self,
        model: &mut Model,
        units: Vec<ExportUnit>,
    ) -> Answers<Imported, ImportRefused> {
        let copies = units.clone();
        let answers = model.import(units)?;
        for job in copies.into_iter().flat_map(|unit| unit.jobs) {
            if let Some(at) = model.find(&job.new.id) {
                model.jobs[at].life = job.life;
            }
        }
        Ok(answers)
    }
}
