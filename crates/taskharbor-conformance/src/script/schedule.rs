//! The steps of a script that are about schedules.
//!
//! A driver chooses the revisions, so a request names those of the driver when it goes to the
//! driver and those of the model when it goes to the model.

use std::collections::HashSet;

use taskharbor_core::{
    Admin, Driver, JobId, Text, Timestamp,
    admin::{
        Change, Configure, Declaration, ListSettings, NewSchedule, ScheduleRecord, Setting,
        SettingKind,
    },
    driver::{DueSchedules, Fire, FireSchedule, SlotJobs},
    job::JobSet,
    name::{OwnerName, ScheduleName},
};

use super::{
    FirePlan, SchedulePlan,
    compare::{both, same},
    plan::seconds_from,
    replay::Replay,
};

impl Replay<'_> {
    pub(super) async fn change_schedules(
        &mut self,
        plans: &[SchedulePlan],
        now: Timestamp,
    ) -> Result<(), String> {
        // One call each: the revision that a change needs may come from the one before.
        for plan in plans {
            let revisions = match plan {
                SchedulePlan::Resume(name, ..) => self.revisions(*name).await?,
                _ => (0, 0),
            };
            let changes =
                (vec![change(plan, revisions.0, now)], vec![change(plan, revisions.1, now)]);
            self.configure_as(changes, now).await?;
        }
        Ok(())
    }

    /// Makes changes: the first as the driver has to be asked, the second as the model has.
    pub(super) async fn configure_as(
        &mut self,
        changes: (Vec<Change>, Vec<Change>),
        now: Timestamp,
    ) -> Result<(), String> {
        let model = self.model.configure(Configure::new(changes.1, now));
        let driver = self.driver.configure(Configure::new(changes.0, now)).await;
        match both("configure", driver, model)? {
            Some((driver, model)) => same("configure", &driver, &model),
            None => Ok(()),
        }
    }

    /// The revision that a schedule has in the driver and in the model; zero if it is not stored.
    async fn revisions(&self, name: u8) -> Result<(u64, u64), String> {
        let request =
            ListSettings::new(1).kind(SettingKind::Schedule).name(schedule_name(name).as_str());
        let page = self.driver.settings(request).await.map_err(|error| error.to_string())?;
        let driver = match page.items.first() {
            Some(Setting::Schedule(record)) => record.revision,
            _ => 0,
        };
        let model = self.model.schedules.iter().find(|it| it.name == schedule_name(name));
        Ok((driver, model.map_or(0, |it| it.revision)))
    }

    pub(super) async fn fire(&mut self, plans: &[FirePlan], now: Timestamp) -> Result<(), String> {
        let (mut to_driver, mut to_model) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        for plan in plans {
            let revisions = self.revisions(plan.name).await?;
            let slots = self.slots(plan, now, &mut seen);
            to_driver.push(item(plan, revisions.0, slots.clone(), now));
            to_model.push(item(plan, revisions.1, slots, now));
        }
        let model = self.model.fire(Fire::new(to_model, now));
        let driver = self.driver.fire(Fire::new(to_driver, now)).await;
        match both("fire", driver, model)? {
            Some((driver, model)) => same("fire", &driver, &model),
            None => Ok(()),
        }
    }

    /// The slots of a firing. Mostly no two jobs have one id.
    fn slots(&self, plan: &FirePlan, now: Timestamp, seen: &mut HashSet<JobId>) -> Vec<SlotJobs> {
        let mut slots = Vec::new();
        for (n, set) in plan.slots.iter().enumerate() {
            let jobs = self.jobs(set, now);
            let is_new = jobs.iter().all(|job| seen.insert(job.id.clone()));
            if is_new || plan.missed == 2 {
                let at = seconds_from(now, -i64::try_from(n).unwrap_or(0));
                let set = if set.flow { JobSet::flow(jobs) } else { JobSet::plain(jobs) };
                slots.push(SlotJobs::new(at, set));
            }
        }
        slots
    }

    pub(super) async fn due(&self, limit: usize, now: Timestamp) -> Result<(), String> {
        let request = DueSchedules::new(limit, now);
        let model = self.model.due_schedules(&request);
        match both("due_schedules", self.driver.due_schedules(request.clone()).await, model)? {
            Some((mut driver, mut model)) => {
                driver.schedules.iter_mut().for_each(without_revision);
                model.schedules.iter_mut().for_each(without_revision);
                same("due_schedules", &driver, &model)?;
                let Some(last) = driver.schedules.pop() else { return Ok(()) };
                let after = last.next_slot.ok_or("a due schedule has no next slot")?;
                let rest = request.after(after, last.name);
                let mut model = self.model.due_schedules(&rest).map_err(|it| it.to_string())?;
                let driver = self.driver.due_schedules(rest).await;
                let mut driver = driver.map_err(|it| it.to_string())?;
                driver.schedules.iter_mut().for_each(without_revision);
                model.schedules.iter_mut().for_each(without_revision);
                same("due_schedules after another", &driver, &model)
            }
            None => Ok(()),
        }
    }

    pub(super) async fn compare_settings(&self) -> Result<(), String> {
        let request = ListSettings::new(1_000);
        let failed = |error: taskharbor_core::DriverError| error.to_string();
        let mut driver = self.driver.settings(request.clone()).await.map_err(failed)?.items;
        let mut model = self.model.settings(&request).map_err(failed)?.items;
        for setting in driver.iter_mut().chain(&mut model) {
            if let Setting::Schedule(record) = setting {
                without_revision(record);
            }
        }
        same("settings", &driver, &model)
    }

    /// Removes all schedules and the versions of their owners.
    pub(super) async fn wipe_schedules(&mut self) -> Result<(), String> {
        let end = Timestamp::MAX;
        let names: Vec<_> = self.model.schedules.iter().map(|it| it.name.clone()).collect();
        let owners: Vec<_> = self.model.owners.keys().cloned().collect();
        let removed = names.into_iter().map(Change::RemoveSchedule);
        let forgotten =
            owners.into_iter().map(|owner| Change::SetOwnerVersion { owner, version: None });
        let changes: Vec<_> = removed.chain(forgotten).collect();
        self.configure_as((changes.clone(), changes), end).await
    }
}

fn without_revision(record: &mut ScheduleRecord) {
    record.revision = 0;
}

fn change(plan: &SchedulePlan, revision: u64, now: Timestamp) -> Change {
    let at = |offset: &Option<i64>| offset.map(|offset| seconds_from(now, offset));
    let new = |(name, definition, next_slot): &(u8, u8, Option<i64>)| {
        let new = NewSchedule::new(schedule_name(*name), &[*definition], at(next_slot));
        // So that replacing a schedule keeps its slot as often as not.
        if *definition == 1 { new.keep_slot() } else { new }
    };
    match plan {
        SchedulePlan::Put(name, definition, next_slot) => {
            Change::PutSchedule(new(&(*name, *definition, *next_slot)))
        }
        SchedulePlan::Declare(owner, version, schedules) => {
            let schedules = schedules.iter().map(new).collect();
            Change::DeclareSchedules(Declaration::new(owner_name(*owner), *version, schedules))
        }
        SchedulePlan::Pause(name) => Change::PauseSchedule(schedule_name(*name)),
        SchedulePlan::Resume(name, is_current, next_slot) => Change::ResumeSchedule {
            name: schedule_name(*name),
            revision: if *is_current { revision } else { revision + 1_000 },
            next_slot: at(next_slot),
        },
        SchedulePlan::Remove(name) => Change::RemoveSchedule(schedule_name(*name)),
        SchedulePlan::SetVersion(owner, version) => {
            Change::SetOwnerVersion { owner: owner_name(*owner), version: *version }
        }
    }
}

fn item(plan: &FirePlan, revision: u64, slots: Vec<SlotJobs>, now: Timestamp) -> FireSchedule {
    let next_slot = plan.next_slot.map(|offset| seconds_from(now, offset));
    let revision = if plan.is_current { revision } else { revision + 1_000 };
    let mut item = FireSchedule::new(schedule_name(plan.name), revision, next_slot);
    item = item.slots(slots).missed(plan.missed);
    item.error = plan.failed.then(|| Text::new("no jobs"));
    item.waits_for_key = plan.waits_for_key;
    item
}

fn schedule_name(number: u8) -> ScheduleName {
    ScheduleName::new(format!("schedule-{number}")).expect("a valid name")
}

pub(super) fn owner_name(number: u8) -> OwnerName {
    OwnerName::new(format!("owner-{number}")).expect("a valid name")
}
