//! Mistakes in operations for operators.

use std::sync::Mutex;

use taskharbor_core::{
    DriverError, State,
    admin::{Action, Cursor, List, Manage, Order, Page, Prune},
    driver::{Answers, LeaseToken, Limits, Settle, Settled},
    error::{Denied, InvalidRequest, Refusal},
    job::JobSummary,
    life::Stage,
};

use crate::{model::Model, reference::Behaviour};

/// A page starts after this many jobs, however many have gone meanwhile.
pub(super) struct ListsByOffset;

impl Behaviour for ListsByOffset {
    fn list(&self, model: &Model, request: List) -> Result<Page<JobSummary>, DriverError> {
        let after = request.after.as_ref().map(|cursor| cursor.as_str().parse::<usize>());
        let Ok(from) = after.unwrap_or(Ok(0)) else {
            return Err(InvalidRequest::Cursor.into());
        };
        request.check()?;
        let all = List::new(request.filter.clone(), Limits::MAX_PAGE, request.now);
        let all = model.list(&all)?.items;
        let end = (from + request.limit).min(all.len());
        let next = (end < all.len()).then(|| Cursor::new(end.to_string()));
        Ok(Page::new(all.get(from..end).unwrap_or_default().to_vec(), next))
    }
}

/// A record goes as soon as its job is terminal, though its holder may still repeat the call.
pub(super) struct PrunesTooSoon;

impl Behaviour for PrunesTooSoon {
    fn prune(&self, model: &mut Model, request: Prune) -> Result<usize, DriverError> {
        let mut hasty = model.clone();
        for job in &mut hasty.jobs {
            if let Stage::Finished(finish) = &mut job.life.stage {
                finish.by = None;
            }
        }
        let removed = hasty.prune(&request)?;
        model.jobs.retain(|job| hasty.by_serial(job.serial).is_some());
        model.flows.retain(|flow| hasty.flow(&flow.id).is_some());
        Ok(removed)
    }
}

/// Members of a flow that is not over are removed one by one.
pub(super) struct PrunesMembers;

impl Behaviour for PrunesMembers {
    fn prune(&self, model: &mut Model, request: Prune) -> Result<usize, DriverError> {
        let removed = model.prune(&request)?;
        let tails: Vec<u64> = model.flows.iter().map(|flow| flow.tail).collect();
        let before = model.jobs.len();
        model.jobs.retain(|job| {
            let old =
                job.life.kept_until().zip(job.life.finish()).is_some_and(|(until, finish)| {
                    request.before(finish.state).is_some_and(|before| until <= before)
                });
            !old || tails.contains(&job.serial)
        });
        Ok(removed + before - model.jobs.len())
    }
}

/// A token from before a requeue is taken for that of the holder.
#[derive(Default)]
pub(super) struct RequeueKeepsToken {
    old: Mutex<Vec<LeaseToken>>,
}

impl Behaviour for RequeueKeepsToken {
    fn manage(&self, model: &mut Model, request: Manage) -> Answers<State, Denied> {
        let found = request.ids.iter().filter_map(|id| model.find(id));
        let ended_by = found.filter_map(|at| model.jobs[at].life.finish()?.by);
        let mut old = self.old.lock().expect("no panic while it is locked");
        old.extend(ended_by.map(|lease| lease.token));
        model.manage(&request)
    }

    fn settle(&self, model: &mut Model, mut request: Settle) -> Answers<Settled, Refusal> {
        let old = self.old.lock().expect("no panic while it is locked");
        for item in request.items.iter_mut().filter(|item| old.contains(&item.token)) {
            let at = model.find(&item.id);
            if let Some(hold) = at.and_then(|at| model.jobs[at].life.active_lease()) {
                item.token = hold.lease.token;
            }
        }
        model.settle(request)
    }
}

/// Requeueing always starts to count anew.
pub(super) struct RequeueResets;

impl Behaviour for RequeueResets {
    fn manage(&self, model: &mut Model, mut request: Manage) -> Answers<State, Denied> {
        if let Action::Requeue(requeue) = &mut request.action {
            *requeue = requeue.reset_attempts();
        }
        model.manage(&request)
    }
}

/// Purging does not ask whether a job is terminal.
pub(super) struct PurgesLive;

impl Behaviour for PurgesLive {
    fn manage(&self, model: &mut Model, request: Manage) -> Answers<State, Denied> {
        let answers = model.manage(&request)?;
        if request.action == Action::Purge {
            model.jobs.retain(|job| job.life.flow.is_some() || !request.ids.contains(&job.new.id));
        }
        Ok(answers)
    }
}

/// The page after a cursor begins with the job that the cursor names.
pub(super) struct NewestFirstRepeats;

impl Behaviour for NewestFirstRepeats {
    fn list(&self, model: &Model, request: List) -> Result<Page<JobSummary>, DriverError> {
        let mut page = model.list(&request)?;
        if let (Order::NewestFirst, Some(cursor)) = (request.order, &request.after)
            && let Some(serial) = cursor.as_str().rsplit(' ').next()
            && let Some(at) = serial.parse().ok().and_then(|serial| model.by_serial(serial))
        {
            page.items.insert(0, model.record(at, request.now).summary());
            page.items.truncate(request.limit);
        }
        Ok(page)
    }
}

/// A page that stops at the scan budget looks like the last.
pub(super) struct StopsAtScanBudget;

impl Behaviour for StopsAtScanBudget {
    fn list(&self, model: &Model, request: List) -> Result<Page<JobSummary>, DriverError> {
        let mut page = model.list(&request)?;
        if page.items.len() < request.limit {
            (page.next, page.looked_at) = (None, None);
        }
        Ok(page)
    }
}
