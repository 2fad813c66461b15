//! Mistakes in flows.

use taskharbor_core::{
    JobId, State, Timestamp,
    driver::{Answers, OutputPage, Outputs, Settle, Settled, Settlement, Transition},
    error::Refusal,
    export::EdgeState,
    job::JobKind,
    life::Stage,
};

use crate::{model::Model, reference::Behaviour};

fn is_done(model: &Model, serial: u64) -> bool {
    model.by_serial(serial).is_some_and(|at| {
        model.jobs[at].life.finish().is_some_and(|finish| finish.state == State::Done)
    })
}

fn serial(model: &Model, id: &JobId) -> Option<u64> {
    model.find(id).map(|at| model.jobs[at].serial)
}

/// Every ack lowers the count, also one that was counted before.
pub(super) struct RepeatUnblocks;

impl Behaviour for RepeatUnblocks {
    fn settle(&self, model: &mut Model, request: Settle) -> Answers<Settled, Refusal> {
        let (now, items) = (request.now, request.items.clone());
        let answers = model.settle(request)?;
        for (item, answer) in items.iter().zip(&answers) {
            let Some(parent) = serial(model, &item.id) else { continue };
            if *answer == Ok(Settled::AlreadyTerminal) {
                let waits = |job: &&mut crate::model::Kept| {
                    job.parents.iter().any(|(serial, _)| *serial == parent)
                };
                for job in model.jobs.iter_mut().filter(waits) {
                    job.life.unblock(job.new.kind, now);
                }
            }
        }
        Ok(answers)
    }
}

/// Each ack looks whether all parents are done, and starts their dependants.
pub(super) struct CheckThenFire;

impl Behaviour for CheckThenFire {
    fn after_settle(&self, model: &mut Model, settled: &[JobId], _now: Timestamp) {
        let settled: Vec<u64> = settled.iter().filter_map(|id| serial(model, id)).collect();
        for at in 0..model.jobs.len() {
            let parents = &model.jobs[at].parents;
            let concerned = parents.iter().any(|(parent, _)| settled.contains(parent));
            let all_done = parents.iter().all(|(parent, _)| is_done(model, *parent));
            let is_work = model.jobs[at].new.kind == JobKind::Work;
            if concerned && all_done && is_work && !model.jobs[at].is_over() {
                model.jobs[at].life.stage = Stage::Waiting;
            }
        }
    }
}

/// A job starts when the first of its parents is done.
pub(super) struct FirstParentIsEnough;

impl Behaviour for FirstParentIsEnough {
    fn after_settle(&self, model: &mut Model, _settled: &[JobId], now: Timestamp) {
        for at in 0..model.jobs.len() {
            let parents = &model.jobs[at].parents;
            let one_done = parents.iter().any(|(parent, _)| is_done(model, *parent));
            if one_done && model.jobs[at].life.stage == Stage::Blocked {
                model.jobs[at].life.stage = Stage::Waiting;
                model.jobs[at].life.due_at = now;
            }
        }
    }
}

/// A job that expands is done, and its dependants are unblocked.
pub(super) struct ExpansionForgets;

impl Behaviour for ExpansionForgets {
    fn settle(&self, model: &mut Model, request: Settle) -> Answers<Settled, Refusal> {
        request.check()?;
        let settle = |item: &Settlement| {
            let waiting: Vec<(u64, usize)> = match (&item.transition, serial(model, &item.id)) {
                (Transition::Expand(_), Some(expanded)) => model
                    .jobs
                    .iter()
                    .filter(|job| job.waits_for(expanded))
                    .map(|job| (job.serial, job.life.pending))
                    .collect(),
                _ => Vec::new(),
            };
            let answer = model.settle_one(item, request.now)?;
            for (dependant, _) in waiting {
                let at = model.by_serial(dependant).expect("nothing is removed here");
                let kind = model.jobs[at].new.kind;
                model.jobs[at].life.unblock(kind, request.now);
            }
            Ok(answer)
        };
        Ok(request.items.iter().map(settle).collect())
    }
}

/// A member that failed and unblocked its dependants does so again when it succeeds after all.
pub(super) struct FailedUnblocksTwice;

impl Behaviour for FailedUnblocksTwice {
    fn settle(&self, model: &mut Model, request: Settle) -> Answers<Settled, Refusal> {
        let (now, items) = (request.now, request.items.clone());
        let answers = model.settle(request)?;
        for (item, answer) in items.iter().zip(&answers) {
            let Some(at) = model.find(&item.id) else { continue };
            let (parent, epoch) = (model.jobs[at].serial, model.jobs[at].life.epoch);
            if *answer == Ok(Settled::Applied) && epoch > 0 && is_done(model, parent) {
                for job in model.jobs.iter_mut().filter(|job| {
                    job.parents
                        .iter()
                        .any(|(serial, tie)| *serial == parent && *tie != EdgeState::Open)
                }) {
                    job.life.unblock(job.new.kind, now);
                }
            }
        }
        Ok(answers)
    }
}

/// Only the direct dependants of the failed job are cancelled.
pub(super) struct CancelsOnlyDirect;

impl Behaviour for CancelsOnlyDirect {
    fn settle(&self, model: &mut Model, request: Settle) -> Answers<Settled, Refusal> {
        let failed: Vec<u64> =
            request.items.iter().filter_map(|item| serial(model, &item.id)).collect();
        let before = model.jobs.clone();
        let answers = model.settle(request)?;
        for was in before.iter().filter(|was| was.life.stage == Stage::Blocked) {
            let Some(at) = model.by_serial(was.serial) else { continue };
            let job = &mut model.jobs[at];
            let cancelled = job.life.finish().is_some_and(|it| it.state == State::Cancelled);
            if cancelled && !was.parents.iter().any(|(parent, _)| failed.contains(parent)) {
                job.life = was.life.clone();
            }
        }
        Ok(answers)
    }
}

/// Outputs are read in the order in which the parents are stored.
pub(super) struct OutputsUnordered;

impl Behaviour for OutputsUnordered {
    fn outputs(&self, model: &Model, request: Outputs) -> Answers<OutputPage, Refusal> {
        let mut answers = model.outputs(&request)?;
        for page in answers.iter_mut().flatten() {
            page.entries.reverse();
        }
        Ok(answers)
    }
}
