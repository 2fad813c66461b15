//! The end of a script: the store is moved to another one, and emptied.

use taskharbor_core::{
    Admin, AnyDriver, Driver, JobId, JobType, NewJob, Timestamp,
    admin::{Action, Manage},
    driver::Enqueue,
    export::{ExportUnit, ExportedKey, Imported},
    job::FailurePolicy,
};

use super::{
    Act, Deed, JobPlan, Pick, SetPlan, Turn, Whose,
    compare::{both, same},
    generate::QUEUES,
    plan::queue_name,
    replay::{Look, Replay},
};
use crate::{
    fixture::{LEASE, T0},
    model::Model,
};

impl Replay<'_> {
    /// Everything that is stored is exported, imported into another store and exported there.
    pub(super) async fn move_to(&mut self, target: &AnyDriver) -> Result<(), String> {
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
        self.move_limits(target).await?;
        same("check after import", &target.check().await.map_err(failed)?, &Vec::new())
    }

    /// Empties the store by the means of the contract: at the end of time no lease is valid, so
    /// everything can be cancelled, and what is over can be purged.
    pub(super) async fn wipe(&mut self) -> Result<(), String> {
        let end = Timestamp::MAX;
        for queue in 0..=u8::MAX {
            if self.model.paused.contains_key(&queue_name(queue)) {
                self.act(&Act::Resume(queue), end).await?;
            }
        }
        self.wipe_limits().await?;
        self.wipe_schedules().await?;
        self.wipe_workers().await?;
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
        // A key that outlived its job is taken and freed, at a time at which it is free.
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
        self.end_turns().await?;
        self.compare(Look::Closely, end).await?;
        same("left over", &self.model.jobs.len(), &0)
    }

    /// Grants a job of a lane that comes after all others in each queue, so that the next script
    /// begins with the turn of the first lane.
    async fn end_turns(&mut self) -> Result<(), String> {
        let count = usize::from(QUEUES);
        let sets = (0..QUEUES).map(|queue| SetPlan { jobs: vec![last_job(queue)], flow: false });
        self.act(&Act::Enqueue(sets.collect()), T0).await?;
        let demands = (0..QUEUES).map(|queue| (queue, 1)).collect();
        self.act(&Act::Reserve { demands, holder: 0, lease_for: LEASE }, T0).await?;
        let picks = (0..count).map(|grant| (Pick { grant, token_of: grant }, Turn::Ack(None)));
        self.act(&Act::Settle(picks.collect()), T0).await?;
        let jobs = (0..count).map(Whose::Grant).collect();
        self.act(&Act::Manage { jobs, deed: Deed::Purge }, T0).await
    }
}

/// A job of the last lane of a queue.
fn last_job(queue: u8) -> JobPlan {
    JobPlan {
        id: u8::MAX - 1 - queue,
        queue,
        lane: Some(u8::MAX),
        priority: 0,
        run_at: None,
        key: None,
        join: None,
        on_failure: false,
        parents: Vec::new(),
        policy: FailurePolicy::Block,
    }
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
