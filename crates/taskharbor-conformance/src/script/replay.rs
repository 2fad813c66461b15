//! Running one script on a driver and on the model.

use std::time::Duration;

use taskharbor_core::{
    Admin, AnyDriver, Blob, Driver, JobId, JobType, NewJob, QueueName, State, Text, Timestamp,
    admin::{Action, Change, Counts, Filter, List, Manage, Prune, Requeue, TimeRange},
    driver::{
        Demand, Enqueue, ExtendLeases, Extension, LeaseMark, LeaseToken, OutputQuery, Outputs,
        Reserve, Settle, Settlement, Transition,
    },
    export::{ExportUnit, ExportedKey, Imported},
    flow::{Expansion, ListFlows},
    job::{Condition, FailedAttempt, JobRecord, JobSet},
    name::{Holder, IdempotencyKey},
};

use super::{
    Act, Deed, JobPlan, ListPlan, Pick, SetPlan, Step, Turn, When, Whose,
    compare::{both, same},
    follow::follow,
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
enum Look {
    Over,
    Closely,
}

pub(super) struct Replay<'a> {
    pub(super) driver: &'a AnyDriver,
    pub(super) model: Model,
    clock: Timestamp,
    pub(super) last_run_at: Timestamp,
    grants: Vec<Grant>,
    /// Reasons that the driver was free to choose.
    reasons: Vec<(JobId, Text)>,
}

struct Grant {
    id: JobId,
    token: LeaseToken,
    expires_at: Timestamp,
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
            When::Epoch => return Timestamp::EPOCH,
            When::End => return Timestamp::MAX,
        };
        self.clock
    }

    /// A grant, counted from the newest.
    fn newest(&self, back: usize) -> Option<&Grant> {
        let count = self.grants.len();
        (count > 0).then(|| &self.grants[count - 1 - back % count])
    }

    async fn act(&mut self, act: &Act, now: Timestamp) -> Result<(), String> {
        match act {
            Act::Enqueue(sets) => self.enqueue(sets, now).await,
            Act::Reserve { demands, lease_for } => self.reserve(demands, *lease_for, now).await,
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

    async fn reserve(
        &mut self,
        demands: &[(u8, usize)],
        lease_for: Duration,
        now: Timestamp,
    ) -> Result<(), String> {
        let demands =
            demands.iter().map(|(queue, limit)| Demand::new(queue_name(*queue), *limit)).collect();
        let holder = Holder::new("replay").expect("a valid holder");
        let request = Reserve::new(demands, holder, now, lease_for);
        let expires_at = request.check();
        let answers = both("reserve", self.driver.reserve(request.clone()).await, expires_at)?;
        let Some((answer, expires_at)) = answers else { return Ok(()) };
        let cancelled = self.cancelled_by(&request).await?;
        let mut states = follow(&self.model, &request, expires_at, &answer, &cancelled)
            .map_err(|reason| format!("{reason}\n  driver: {answer:?}"))?;
        let at = self.matching(&states, &cancelled, now).await?;
        self.model = states.swap_remove(at);
        for (id, reason) in std::mem::take(&mut self.reasons) {
            self.model.adopt_reason(&id, &reason);
        }
        for leased in answer.jobs {
            let (id, token) = (leased.job.id, leased.lease.token);
            if self.grants.iter().any(|grant| grant.token == token) {
                return Err(format!("the token of {id} was given before"));
            }
            self.grants.push(Grant { id, token, expires_at: leased.lease.expires_at });
        }
        Ok(())
    }

    /// The marked jobs with a lease that is over that the driver cancelled in this call.
    async fn cancelled_by(&self, request: &Reserve) -> Result<Vec<JobId>, String> {
        let mut cancelled = Vec::new();
        for job in &self.model.jobs {
            let is_marked = job.life.active_lease().is_some_and(|it| it.cancel_requested);
            if is_marked && job.life.is_expired(request.now) {
                let record = self.inspect(&job.new.id, request.now).await?;
                if record.is_some_and(|it| it.state == State::Cancelled) {
                    cancelled.push(job.new.id.clone());
                }
            }
        }
        Ok(cancelled)
    }

    /// Which of these states the driver is in, as far as its records show. Of several jobs that
    /// were cancelled in one call, the reason of a dependant may name any.
    async fn matching(
        &mut self,
        states: &[Model],
        cancelled: &[JobId],
        now: Timestamp,
    ) -> Result<usize, String> {
        if cancelled.is_empty() {
            return Ok(0);
        }
        let mut records = Vec::new();
        for job in &self.model.jobs {
            records.push(self.inspect(&job.new.id, now).await?);
        }
        let names_one = |reason: &Text| {
            cancelled
                .iter()
                .any(|id| reason.as_str() == format!("job {id} of the same flow failed"))
        };
        let matches = |state: &&Model| {
            records.iter().enumerate().all(|(at, record)| {
                let mut expected = state.record(at, now);
                if let (Some(Some(reason)), Some(other)) =
                    (record.as_ref().map(|it| &it.reason), &expected.reason)
                    && names_one(reason)
                    && names_one(other)
                {
                    expected.reason = Some(reason.clone());
                }
                *record == Some(expected)
            })
        };
        let at = states.iter().position(|state| matches(&state)).unwrap_or(0);
        self.reasons = records
            .into_iter()
            .flatten()
            .filter_map(|it| Some((it.job.id, it.reason.filter(names_one)?)))
            .collect();
        Ok(at)
    }

    async fn inspect(&self, id: &JobId, now: Timestamp) -> Result<Option<JobRecord>, String> {
        let record = self.driver.inspect(id.clone(), now).await;
        record.map_err(|error| error.to_string())
    }

    async fn extend(
        &mut self,
        picks: &[Pick],
        lease_for: Duration,
        now: Timestamp,
    ) -> Result<(), String> {
        let pick = |pick: &Pick| {
            let (id, token) = self.pick(*pick);
            let mut item = Extension::new(id, token).progress(Text::new(format!("at {now}")));
            item.mark =
                [None, Some(LeaseMark::Started), Some(LeaseMark::Leaving)][self.grants.len() % 3];
            item
        };
        let request = ExtendLeases::new(picks.iter().map(pick).collect(), now, lease_for);
        let model = self.model.extend(request.clone());
        let answers = both("extend", self.driver.extend_leases(request.clone()).await, model)?;
        let Some((driver, model)) = answers else { return Ok(()) };
        for (item, (driver, model)) in request.items.iter().zip(driver.iter().zip(&model)) {
            let bare = |answer: &Result<taskharbor_core::driver::Extended, _>| {
                answer.clone().map(|it| (it.lease.expires_at, it.cancel_requested))
            };
            same("extend", &bare(driver), &bare(model))?;
            if let Ok(extended) = driver {
                self.model.adopt(&item.id, extended.lease.token);
                let grants = self.grants.iter_mut();
                for grant in grants.filter(|grant| grant.token == item.token) {
                    grant.token = extended.lease.token;
                    grant.expires_at = extended.lease.expires_at;
                }
            }
        }
        same("extend: answers", &driver.len(), &model.len())
    }

    async fn settle(&mut self, items: &[(Pick, Turn)], now: Timestamp) -> Result<(), String> {
        let settlement = |(pick, turn): &(Pick, Turn)| {
            let (id, token) = self.pick(*pick);
            Settlement::new(id, token, self.transition(turn, now))
        };
        let request = Settle::new(items.iter().map(settlement).collect(), now);
        let ids: Vec<JobId> = request.items.iter().map(|item| item.id.clone()).collect();
        let model = self.model.settle(request.clone());
        match both("settle", self.driver.settle(request).await, model)? {
            Some((driver, model)) => same(&format!("settle {ids:?}"), &driver, &model),
            None => Ok(()),
        }
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

    fn whose(&self, whose: Whose) -> JobId {
        match whose {
            Whose::Number(number) => job_id(number),
            Whose::Grant(back) => self.newest(back).map_or(job_id(0), |grant| grant.id.clone()),
        }
    }

    fn pick(&self, pick: Pick) -> (JobId, LeaseToken) {
        let unknown = || (job_id(u8::MAX), LeaseToken::from_bits(1));
        let id = self.newest(pick.grant).map_or_else(|| unknown().0, |grant| grant.id.clone());
        let token = self.newest(pick.token_of).map_or_else(|| unknown().1, |grant| grant.token);
        (id, token)
    }

    fn transition(&self, turn: &Turn, now: Timestamp) -> Transition {
        let at = |offset: &Option<i64>| offset.map(|offset| seconds_from(now, offset));
        let attempts = u32::try_from(self.grants.len()).unwrap_or(1) % 7 + 1;
        let failure = || FailedAttempt::new(attempts, "it failed", now);
        match turn {
            Turn::Ack(output) => Transition::Ack { output: output.map(|byte| Blob::from(&[byte])) },
            Turn::Expand(plan) => Transition::Expand(Expansion::new(self.jobs(plan, now))),
            Turn::Retry(run_at) => Transition::Retry { failure: failure(), run_at: at(run_at) },
            Turn::Fail => {
                Transition::Fail { failure: failure(), reason: Text::new("no more attempts") }
            }
            Turn::Release(run_at) => {
                Transition::Release { run_at: at(run_at), started: attempts % 2 == 0 }
            }
        }
    }

    pub(super) fn jobs(&self, plan: &SetPlan, now: Timestamp) -> Vec<NewJob> {
        let mut jobs: Vec<_> = plan.jobs.iter().map(|job| new_job(job, &plan.jobs, now)).collect();
        for job in &mut jobs {
            // See `Model::forgotten`.
            if self.model.is_in_doubt(job, now) {
                job.idempotency_key = None;
            }
        }
        jobs
    }

    /// Everything that is stored is exported, imported into another store and exported there.
    async fn move_to(&mut self, target: &AnyDriver) -> Result<(), String> {
        let failed = |error: taskharbor_core::DriverError| error.to_string();
        let units = export(self.driver).await?;
        let expected = self.model.export(None, 1_000).map_err(failed)?.items;
        let jobs = |units: &[ExportUnit]| -> Vec<ExportUnit> {
            units.iter().filter(|unit| unit.key.is_none()).cloned().collect()
        };
        for (unit, expected) in jobs(&units).iter().zip(&jobs(&expected)) {
            same("export", unit, expected)?;
        }
        same("export: units", &jobs(&units).len(), &jobs(&expected).len())?;
        let known =
            |key: &ExportedKey| self.model.keys.contains(key) || self.model.forgotten.contains(key);
        if let Some(key) = units.iter().filter_map(|unit| unit.key.as_ref()).find(|it| !known(it)) {
            return Err(format!("export: {key:?} is not held"));
        }
        let answers = target.import(units.clone()).await.map_err(failed)?;
        same("import", &answers, &vec![Ok(Imported::Stored); units.len()])?;
        let mut model = Model { limits: target.limits(), ..Model::default() };
        same("import", &answers, &model.import(units.clone()).map_err(failed)?)?;
        same("export of the model", &model.export(None, 1_000).map_err(failed)?.items, &units)?;
        let moved = export(target).await?;
        for (moved, unit) in moved.iter().zip(&units) {
            same("export of what was imported", moved, unit)?;
        }
        same("export of what was imported: units", &moved.len(), &units.len())?;
        same("check after import", &target.check().await.map_err(failed)?, &Vec::new())
    }

    async fn compare(&mut self, look: Look, now: Timestamp) -> Result<(), String> {
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
        for at in 0..self.model.jobs.len() {
            let expected = self.model.record(at, now);
            let record = self.inspect(&expected.job.id, now).await?;
            same("inspect", &record, &Some(expected))?;
        }
        let found = self.driver.check().await.map_err(failed)?;
        same("check", &found, &Vec::new())
    }

    /// Empties the store by the means of the contract: at the end of time no lease is valid, so
    /// everything can be cancelled, and what is over can be purged.
    async fn wipe(&mut self) -> Result<(), String> {
        let end = Timestamp::MAX;
        for queue in 0..=u8::MAX {
            if self.model.paused.contains_key(&queue_name(queue)) {
                self.act(&Act::Resume(queue), end).await?;
            }
        }
        self.wipe_schedules().await?;
        let flows: Vec<JobId> = self.model.flows.iter().map(|flow| flow.id.clone()).collect();
        let jobs: Vec<JobId> = self.model.jobs.iter().map(|job| job.new.id.clone()).collect();
        for (ids, action) in [
            (&flows, Action::CancelFlow),
            (&jobs, Action::Cancel),
            (&flows, Action::PurgeFlow),
            (&jobs, Action::Purge),
        ] {
            let request = Manage::new(ids.clone(), action, end);
            let model = self.model.manage(&request);
            if let Some((driver, model)) = both("manage", self.driver.manage(request).await, model)?
            {
                same("manage", &driver, &model)?;
            }
        }
        // A key that outlived its job is taken and given back, at a time at which it is free.
        let mut keys: Vec<_> =
            self.model.keys.iter().chain(&self.model.forgotten).cloned().collect();
        keys.dedup_by(|a, b| (&a.queue, &a.key) == (&b.queue, &b.key));
        self.model.forgotten.clear();
        for (n, held) in keys.into_iter().enumerate() {
            let id = JobId::new(format!("last-{n}")).expect("a valid id");
            let job_type = JobType::new("work").expect("a valid type");
            let job = NewJob::new(id.clone(), held.queue, job_type, &[]).idempotency_key(held.key);
            let request = Enqueue::new(vec![job.into()], end);
            let model = self.model.enqueue(request.clone());
            if let Some((driver, model)) =
                both("enqueue", self.driver.enqueue(request).await, model)?
            {
                same("enqueue", &driver, &model)?;
            }
            for action in [Action::Cancel, Action::Purge] {
                let request = Manage::new(vec![id.clone()], action, end);
                let model = self.model.manage(&request);
                both("manage", self.driver.manage(request).await, model)?;
            }
        }
        self.model.forgotten.clear();
        self.compare(Look::Closely, end).await?;
        same("left over", &self.model.jobs.len(), &0)
    }
}

fn new_job(plan: &JobPlan, set: &[JobPlan], now: Timestamp) -> NewJob {
    let parents = plan.parents.iter().map(|parent| job_id(set[*parent].id));
    let (id, queue) = (job_id(plan.id), queue_name(plan.queue));
    let mut job = match plan.join {
        Some(reading) => NewJob::join(id, queue, parents).read_as(reading),
        None => {
            let job_type = JobType::new("work").expect("a valid type");
            NewJob::new(id, queue, job_type, &[plan.id]).after(parents)
        }
    };
    if plan.on_failure {
        job.condition = Condition::ParentsFailed;
    }
    job = job.priority(plan.priority).on_failure(plan.policy);
    job.run_at = plan.run_at.map(|offset| seconds_from(now, offset));
    if let Some((key, hold)) = plan.key {
        job = job.idempotency_key(key_name(key)).key_hold(hold);
    }
    job
}

fn job_id(number: u8) -> JobId {
    JobId::new(format!("job-{number}")).expect("a valid id")
}

/// Everything that a driver exports, in small pages.
async fn export(driver: &AnyDriver) -> Result<Vec<ExportUnit>, String> {
    let (mut units, mut after) = (Vec::new(), None);
    loop {
        let page = driver.export(after, 3).await.map_err(|error| error.to_string())?;
        units.extend(page.items);
        match page.next {
            Some(cursor) => after = Some(cursor),
            None => return Ok(units),
        }
    }
}

fn key_name(number: u8) -> IdempotencyKey {
    IdempotencyKey::new(format!("key-{number}")).expect("a valid key")
}

fn queue_name(number: u8) -> QueueName {
    QueueName::new(format!("queue-{number}")).expect("a valid name")
}

pub(super) fn seconds_from(now: Timestamp, offset: i64) -> Timestamp {
    let by = Duration::from_secs(offset.unsigned_abs());
    if offset < 0 { now.saturating_sub(by) } else { now.saturating_add(by) }
}
