//! Running one script on a driver and on the model.

use std::time::Duration;

use taskharbor_core::{
    Admin, AnyDriver, Driver, JobId, Text, Timestamp,
    admin::{Action, Change, Counts, Filter, List, Manage, Prune, Requeue, TimeRange},
    driver::{Enqueue, LeaseToken, OutputQuery, Outputs},
    flow::ListFlows,
    job::{JobRecord, JobSet},
};

use super::{
    Act, Deed, ListPlan, SetPlan, Step, When, Whose,
    compare::{both, same},
    generate::QUEUES,
    plan::{key_name, lane_name, queue_name, seconds_from},
};
use crate::{fixture::T0, model::Model};

/// Runs the steps on an empty store and on the model, and empties the store again.
///
/// If there is a `target`, an empty store, everything is moved there before.
pub(super) async fn replay(
    driver: &AnyDriver,
    target: Option<&AnyDriver>,
    steps: &[Step],
) -> Result<(), String> {
    let model = Model { limits: driver.limits(), ..Model::default() };
    let mut replay = Replay {
        driver,
        model,
        clock: T0,
        last_run_at: T0,
        grants: Vec::new(),
        reasons: Vec::new(),
    };
    for (number, step) in steps.iter().enumerate() {
        let now = replay.now(step.when);
        let in_step = |difference| format!("step {number} at {now}: {difference}");
        replay.act(&step.act, now).await.map_err(in_step)?;
        let look = if number % 8 == 7 { Look::Closely } else { Look::Over };
        replay.compare(look, now).await.map_err(in_step)?;
    }
    let now = replay.clock;
    let at_end = |difference| format!("at the end: {difference}");
    replay.compare(Look::Closely, now).await.map_err(at_end)?;
    if let Some(target) = target {
        replay.move_to(target).await.map_err(at_end)?;
    }
    replay.wipe().await.map_err(at_end)
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Over,
    Closely,
}

pub(super) struct Replay<'a> {
    pub(super) driver: &'a AnyDriver,
    pub(super) model: Model,
    clock: Timestamp,
    pub(super) last_run_at: Timestamp,
    pub(super) grants: Vec<Grant>,
    /// Reasons that the driver was free to choose.
    pub(super) reasons: Vec<(JobId, Text)>,
}

pub(super) struct Grant {
    pub(super) id: JobId,
    pub(super) token: LeaseToken,
    pub(super) expires_at: Timestamp,
}

impl Replay<'_> {
    fn now(&mut self, when: When) -> Timestamp {
        let shifted = |at: Timestamp, offset: i64| {
            Timestamp::from_micros(at.as_micros().saturating_add(offset)).unwrap_or(at)
        };
        self.clock = match when {
            When::Same => self.clock,
            When::Later(by) => self.clock.saturating_add(by),
            When::Earlier(by) => return self.clock.saturating_sub(by),
            When::Lease { grant, offset } => match self.newest(grant) {
                Some(grant) => shifted(grant.expires_at, offset),
                None => self.clock,
            },
            When::Due { offset } => shifted(self.last_run_at, offset),
            When::Limit { offset } => {
                let ahead = self.model.limit_instants().filter(|at| *at > self.clock);
                ahead.min().map_or(self.clock, |at| shifted(at, offset))
            }
            When::Epoch => return Timestamp::EPOCH,
            When::End => return Timestamp::MAX,
        };
        self.clock
    }

    /// A grant, counted from the newest.
    pub(super) fn newest(&self, back: usize) -> Option<&Grant> {
        let count = self.grants.len();
        (count > 0).then(|| &self.grants[count - 1 - back % count])
    }

    pub(super) async fn act(&mut self, act: &Act, now: Timestamp) -> Result<(), String> {
        self.perform(act, now).await?;
        self.model.forget_turns();
        Ok(())
    }

    async fn perform(&mut self, act: &Act, now: Timestamp) -> Result<(), String> {
        match act {
            Act::Enqueue(sets) => self.enqueue(sets, now).await,
            Act::Reserve { demands, holder, lease_for } => {
                self.reserve(demands, *holder, *lease_for, now).await
            }
            Act::Extend { picks, lease_for } => self.extend(picks, *lease_for, now).await,
            Act::Settle(items) => self.settle(items, now).await,
            Act::Manage { jobs, deed } => self.manage(jobs, *deed, now).await,
            Act::Pause(queue) => self.configure(Change::PauseQueue(queue_name(*queue)), now).await,
            Act::Resume(queue) => {
                self.configure(Change::ResumeQueue(queue_name(*queue)), now).await
            }
            Act::Prune { done, dlq, cancelled, limit } => {
                let before =
                    |age: &Option<u64>| age.map(|age| now.saturating_sub(Duration::from_secs(age)));
                let mut request = Prune::new(*limit, now);
                request.done_before = before(done);
                request.dlq_before = before(dlq);
                request.cancelled_before = before(cancelled);
                let (driver, model) =
                    (self.driver.prune(request).await, self.model.prune(&request));
                match both("prune", driver, model)? {
                    Some((driver, model)) => same("prune", &driver, &model),
                    None => Ok(()),
                }
            }
            Act::Read { jobs, of, from, limit } => {
                let query = |job: &Whose| {
                    let mut query = OutputQuery::of(self.whose(*job)).from(*from);
                    query.of = *of;
                    query
                };
                let request = Outputs::new(jobs.iter().map(query).collect(), *limit);
                let model = self.model.outputs(&request);
                match both("outputs", self.driver.outputs(request).await, model)? {
                    Some((driver, model)) => same("outputs", &driver, &model),
                    None => Ok(()),
                }
            }
            Act::List(plan) => self.list(plan, now).await,
            Act::Schedule(plans) => self.change_schedules(plans, now).await,
            Act::Fire(plans) => self.fire(plans, now).await,
            Act::Due(limit) => self.due(*limit, now).await,
            Act::Limit(plans) => self.change_limits(plans, now).await,
            Act::Lanes(queue, limit) => self.lanes(*queue, *limit, now).await,
            Act::Announce { who, info, valid_for } => {
                self.announce(*who, *info, *valid_for, now).await
            }
            Act::Workers { valid, overdue, limit } => {
                self.workers((*valid, *overdue), *limit, now).await
            }
            Act::Evict(holder, incarnation) => self.evict(*holder, *incarnation, now).await,
        }
    }

    /// Reads a list to its end. Pages may be cut elsewhere than in the model.
    async fn list(&self, plan: &ListPlan, now: Timestamp) -> Result<(), String> {
        let ago = |(from, length): (u64, u64)| {
            let from = now.saturating_sub(Duration::from_secs(from));
            TimeRange::new(Some(from), Some(from.saturating_add(Duration::from_secs(length))))
        };
        let mut filter = Filter::all();
        filter.queue = plan.queue.map(queue_name);
        filter.state = plan.state;
        filter.key = plan.key.map(key_name);
        filter.lane = plan.lane.map(lane_name);
        filter.error = plan.error.then(|| "fail".to_owned());
        filter.flow = plan.flow.map(|whose| self.whose(whose));
        filter.created = plan.created.map_or(TimeRange::ALL, ago);
        filter.finished = plan.finished.map_or(TimeRange::ALL, ago);
        let mut request = List::new(filter, plan.limit, now);
        if plan.newest_first {
            request = request.newest_first();
        }
        if request.check().is_err() {
            return Ok(());
        }
        let mut whole = request.clone();
        whole.limit = 1_000;
        let expected = self.model.list(&whole);
        let expected = expected.map_err(|error| error.to_string())?.items;
        request = request.scan(plan.scan);
        let mut listed = Vec::new();
        loop {
            let page =
                self.driver.list(request.clone()).await.map_err(|error| error.to_string())?;
            if page.items.len() > plan.limit || listed.len() > expected.len() {
                return Err(format!("list: too many jobs for {request:?}"));
            }
            listed.extend(page.items);
            match page.next {
                Some(cursor) => request = request.after(cursor),
                None => return same(&format!("list {request:?}"), &listed, &expected),
            }
        }
    }

    async fn enqueue(&mut self, sets: &[SetPlan], now: Timestamp) -> Result<(), String> {
        let sets = sets.iter().map(|plan| {
            let jobs = self.jobs(plan, now);
            if plan.flow { JobSet::flow(jobs) } else { JobSet::plain(jobs) }
        });
        let request = Enqueue::new(sets.collect(), now);
        let mut run_ats =
            request.sets.iter().flat_map(|set| &set.jobs).filter_map(|job| job.run_at);
        self.last_run_at = run_ats.next_back().unwrap_or(self.last_run_at);
        let model = self.model.enqueue(request.clone());
        match both("enqueue", self.driver.enqueue(request).await, model)? {
            Some((driver, model)) => same("enqueue", &driver, &model),
            None => Ok(()),
        }
    }

    pub(super) async fn inspect(
        &self,
        id: &JobId,
        now: Timestamp,
    ) -> Result<Option<JobRecord>, String> {
        let record = self.driver.inspect(id.clone(), now).await;
        record.map_err(|error| error.to_string())
    }

    async fn manage(&mut self, jobs: &[Whose], deed: Deed, now: Timestamp) -> Result<(), String> {
        let mut ids: Vec<JobId> = jobs.iter().map(|job| self.whose(*job)).collect();
        if matches!(deed, Deed::Requeue { .. }) {
            // See `Model::forgotten`.
            ids.retain(|id| !self.model.is_requeue_in_doubt(id, now));
        }
        let action = match deed {
            Deed::Requeue { reset, detach, run_at } => {
                let mut requeue = Requeue::new();
                requeue.run_at = run_at.map(|offset| seconds_from(now, offset));
                (requeue.reset_attempts, requeue.detach) = (reset, detach);
                Action::Requeue(requeue)
            }
            Deed::Cancel => Action::Cancel,
            Deed::RunNow => Action::RunNow,
            Deed::SetPriority(priority) => Action::SetPriority(priority),
            Deed::Purge => Action::Purge,
            Deed::CancelFlow => Action::CancelFlow,
            Deed::PurgeFlow => Action::PurgeFlow,
        };
        let request = Manage::new(ids, action, now);
        let what = format!("manage {:?}", request.ids);
        let model = self.model.manage(&request);
        match both("manage", self.driver.manage(request).await, model)? {
            Some((driver, model)) => same(&what, &driver, &model),
            None => Ok(()),
        }
    }

    async fn configure(&mut self, change: Change, now: Timestamp) -> Result<(), String> {
        self.configure_as((vec![change.clone()], vec![change]), now).await
    }

    pub(super) async fn compare(&mut self, look: Look, now: Timestamp) -> Result<(), String> {
        let failed = |error: taskharbor_core::DriverError| error.to_string();
        let list = List::new(Filter::all(), 1_000, now);
        let listed = self.driver.list(list.clone()).await.map_err(failed)?;
        for job in &listed.items {
            if let Some(reason) = &job.reason {
                self.model.adopt_not_needed(&job.id, reason);
            }
        }
        let expected = self.model.list(&list).map_err(failed)?;
        for (listed, expected) in listed.items.iter().zip(&expected.items) {
            same("list", listed, expected)?;
        }
        same("list: length", &listed.items.len(), &expected.items.len())?;
        let list = ListFlows::new(1_000, now);
        let listed = self.driver.list_flows(list.clone()).await.map_err(failed)?;
        let expected = self.model.list_flows(&list).map_err(failed)?;
        same("list_flows", &listed.items, &expected.items)?;
        let request = Counts::new(now);
        let counts = self.driver.counts(request).await.map_err(failed)?;
        same("counts", &counts, &self.model.counts(request).map_err(failed)?)?;
        if look == Look::Over {
            return Ok(());
        }
        self.compare_settings().await?;
        for queue in 0..QUEUES {
            self.lanes(queue, 1_000, now).await?;
        }
        for valid in [false, true] {
            self.workers((valid, true), 1_000, now).await?;
        }
        for at in 0..self.model.jobs.len() {
            let expected = self.model.record(at, now);
            let record = self.inspect(&expected.job.id, now).await?;
            same("inspect", &record, &Some(expected))?;
        }
        let found = self.driver.check().await.map_err(failed)?;
        same("check", &found, &Vec::new())
    }
}
