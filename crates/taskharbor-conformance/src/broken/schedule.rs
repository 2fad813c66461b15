//! Mistakes with schedules.

use taskharbor_core::{
    DriverError,
    admin::{Change, Configure},
    driver::{Answers, Due, DueSchedules, Enqueue, Enqueued, Fire},
    error::{Denied, FireRefused},
};

use crate::{model::Model, reference::Behaviour};

/// The revision is not compared.
pub(super) struct RevisionNotCompared;

impl Behaviour for RevisionNotCompared {
    fn fire(&self, model: &mut Model, mut request: Fire) -> Answers<Vec<Enqueued>, FireRefused> {
        for item in &mut request.items {
            let stored = model.schedules.iter().find(|it| it.name == item.name);
            item.revision = stored.map_or(item.revision, |it| it.revision);
        }
        model.fire(request)
    }
}

/// The schedule moves on, and its jobs are forgotten.
pub(super) struct MovesWithoutJob;

impl Behaviour for MovesWithoutJob {
    fn fire(&self, model: &mut Model, request: Fire) -> Answers<Vec<Enqueued>, FireRefused> {
        let mut fired = model.clone();
        let answers = fired.fire(request)?;
        model.schedules = fired.schedules;
        model.last_serial = fired.last_serial;
        Ok(answers)
    }
}

/// The jobs are stored, and the schedule does not move.
pub(super) struct JobWithoutMove;

impl Behaviour for JobWithoutMove {
    fn fire(&self, model: &mut Model, request: Fire) -> Answers<Vec<Enqueued>, FireRefused> {
        let schedules = model.schedules.clone();
        let answers = model.fire(request);
        model.schedules = schedules;
        answers
    }
}

/// Jobs are stored before it is known whether the schedule may be fired.
pub(super) struct StoresBeforeItLooks;

impl Behaviour for StoresBeforeItLooks {
    fn fire(&self, model: &mut Model, request: Fire) -> Answers<Vec<Enqueued>, FireRefused> {
        request.check()?;
        let sets = request.items.iter().flat_map(|item| &item.slots).map(|slot| slot.set.clone());
        let mut stored = model.clone();
        let all_stored = stored.enqueue(Enqueue::new(sets.collect(), request.now))?;
        let answers = model.fire(request)?;
        if answers.iter().any(Result::is_err) && all_stored.iter().all(Result::is_ok) {
            let (schedules, last_serial) = (model.schedules.clone(), model.last_serial);
            *model = stored;
            (model.schedules, model.last_serial) = (schedules, last_serial.max(model.last_serial));
        }
        Ok(answers)
    }
}

/// A paused schedule is fired by a caller that knows its revision.
pub(super) struct FiresWhilePaused;

impl Behaviour for FiresWhilePaused {
    fn fire(&self, model: &mut Model, request: Fire) -> Answers<Vec<Enqueued>, FireRefused> {
        let paused: Vec<_> = model.schedules.iter_mut().map(|it| it.paused_since.take()).collect();
        let answers = model.fire(request);
        for (schedule, paused) in model.schedules.iter_mut().zip(paused) {
            schedule.paused_since = paused;
        }
        answers
    }
}

/// A paused schedule is answered as due.
pub(super) struct PausedIsDue;

impl Behaviour for PausedIsDue {
    fn due_schedules(&self, model: &Model, request: DueSchedules) -> Result<Due, DriverError> {
        let mut resumed = model.clone();
        resumed.schedules.iter_mut().for_each(|it| it.paused_since = None);
        let mut due = resumed.due_schedules(&request)?;
        for record in &mut due.schedules {
            let stored = model.schedules.iter().find(|it| it.name == record.name);
            record.paused_since = stored.and_then(|it| it.paused_since);
        }
        Ok(due)
    }
}

/// A redeploy with the same definition starts over with the next slot of the request.
pub(super) struct EqualDefinitionResets;

impl Behaviour for EqualDefinitionResets {
    fn configure(&self, model: &mut Model, request: Configure) -> Answers<(), Denied> {
        let put: Vec<_> = request
            .changes
            .iter()
            .flat_map(|change| match change {
                Change::PutSchedule(new) => vec![new.clone()],
                Change::DeclareSchedules(declaration) => declaration.schedules.clone(),
                _ => Vec::new(),
            })
            .collect();
        let answers = model.configure(request)?;
        if answers.iter().all(Result::is_ok) {
            for new in put {
                if let Some(stored) = model.schedules.iter_mut().find(|it| it.name == new.name) {
                    stored.next_slot = new.next_slot;
                }
            }
        }
        Ok(answers)
    }
}

/// A replaced schedule never keeps its slot.
pub(super) struct SlotNotKept;

impl Behaviour for SlotNotKept {
    fn configure(&self, model: &mut Model, mut request: Configure) -> Answers<(), Denied> {
        for change in &mut request.changes {
            match change {
                Change::PutSchedule(new) => new.keeps_slot = false,
                Change::DeclareSchedules(declaration) => {
                    declaration.schedules.iter_mut().for_each(|new| new.keeps_slot = false);
                }
                _ => {}
            }
        }
        model.configure(request)
    }
}

/// A declaration removes every schedule that it does not name.
pub(super) struct DeclaringRemovesAll;

impl Behaviour for DeclaringRemovesAll {
    fn configure(&self, model: &mut Model, request: Configure) -> Answers<(), Denied> {
        let declared: Vec<_> = request
            .changes
            .iter()
            .filter_map(|change| match change {
                Change::DeclareSchedules(declaration) => Some(declaration.schedules.clone()),
                _ => None,
            })
            .collect();
        let answers = model.configure(request)?;
        for kept in declared {
            model.schedules.retain(|it| kept.iter().any(|new| new.name == it.name));
        }
        Ok(answers)
    }
}

/// The last deploy wins, whatever its version.
pub(super) struct VersionIgnored;

impl Behaviour for VersionIgnored {
    fn configure(&self, model: &mut Model, request: Configure) -> Answers<(), Denied> {
        for change in &request.changes {
            if let Change::DeclareSchedules(declaration) = change {
                model.owners.remove(&declaration.owner);
            }
        }
        model.configure(request)
    }
}

/// A schedule that comes back begins with the same revision.
pub(super) struct RevisionsStartOver;

impl Behaviour for RevisionsStartOver {
    fn configure(&self, model: &mut Model, request: Configure) -> Answers<(), Denied> {
        let before: Vec<_> = model.schedules.iter().map(|it| it.name.clone()).collect();
        let answers = model.configure(request);
        for schedule in model.schedules.iter_mut().filter(|it| !before.contains(&it.name)) {
            schedule.revision = 1;
        }
        answers
    }
}

/// A firing that should wait for a key counts its slot as skipped.
pub(super) struct NeverWaitsForKey;

impl Behaviour for NeverWaitsForKey {
    fn fire(&self, model: &mut Model, mut request: Fire) -> Answers<Vec<Enqueued>, FireRefused> {
        request.check()?;
        request.items.iter_mut().for_each(|item| item.waits_for_key = false);
        model.fire(request)
    }
}
