//! Schedules: a list of records, each looked for from end to end.

use taskharbor_core::{
    DriverError, Timestamp,
    admin::{
        Change, Configure, Declaration, Firing, ListSettings, NewSchedule, Page, ScheduleRecord,
        Setting,
    },
    driver::{Answers, Due, DueSchedules, Enqueued, Fire, FireSchedule},
    error::{Denied, FireRefused},
    name::{OwnerName, ScheduleName},
};

use super::Model;

impl Model {
    pub(crate) fn due_schedules(&self, request: &DueSchedules) -> Result<Due, DriverError> {
        request.check()?;
        let mut waiting: Vec<_> =
            self.schedules.iter().filter(|it| it.paused_since.is_none()).collect();
        waiting.sort_by_key(|it| (it.next_slot, &it.name));
        let slots = waiting.iter().filter_map(|it| it.next_slot);
        let next = slots.filter(|slot| *slot > request.now).min();
        let is_due = |it: &&ScheduleRecord| it.next_slot.is_some_and(|slot| slot <= request.now);
        let is_behind = |it: &&ScheduleRecord| match (&request.after, it.next_slot) {
            (Some(after), Some(slot)) => (slot, &it.name) > (after.0, &after.1),
            _ => true,
        };
        let due = waiting.into_iter().filter(is_due).filter(is_behind).take(request.limit).cloned();
        Ok(Due::new(due.collect(), next))
    }

    pub(crate) fn fire(&mut self, request: Fire) -> Answers<Vec<Enqueued>, FireRefused> {
        request.check()?;
        let now = request.now;
        Ok(request.items.into_iter().map(|item| self.fire_one(item, now)).collect())
    }

    /// Fires on a copy, which takes the place of the model if all went well.
    pub(crate) fn fire_one(
        &mut self,
        item: FireSchedule,
        now: Timestamp,
    ) -> Result<Vec<Enqueued>, FireRefused> {
        let at = self.schedule(&item.name).ok_or(FireRefused::NotFound)?;
        if self.schedules[at].revision != item.revision {
            return Err(FireRefused::Changed);
        }
        if self.schedules[at].paused_since.is_some() {
            return Err(FireRefused::Paused);
        }
        let mut after = self.clone();
        let mut jobs = Vec::new();
        for slot in item.slots {
            let tail = slot.set.check(&self.limits)?.tail();
            let own = slot.set.jobs[tail].id.clone();
            let job = after.enqueue_set(slot.set, now)?.swap_remove(tail);
            if item.waits_for_key && *job.id() != own {
                return Err(FireRefused::KeyHeld(job.id().clone()));
            }
            jobs.push(job.clone());
            let record = &mut after.schedules[at];
            match &job {
                Enqueued::Inserted(_) => record.totals.stored += 1,
                Enqueued::Existing(_) => record.totals.skipped += 1,
            }
            record.firings.push(Firing::new(slot.at, now, job));
        }
        let record = &mut after.schedules[at];
        let len = record.firings.len();
        record.firings = record.firings.split_off(len.saturating_sub(10));
        record.totals.missed += item.missed;
        record.next_slot = item.next_slot;
        record.error = item.error;
        after.last_serial += 1;
        after.schedules[at].revision = after.last_serial;
        *self = after;
        Ok(jobs)
    }

    fn schedule(&self, name: &ScheduleName) -> Option<usize> {
        self.schedules.iter().position(|it| it.name == *name)
    }

    pub(crate) fn configure(&mut self, request: Configure) -> Answers<(), Denied> {
        request.check()?;
        let now = request.now;
        Ok(request.changes.into_iter().map(|change| self.configure_one(change, now)).collect())
    }

    fn configure_one(&mut self, change: Change, now: Timestamp) -> Result<(), Denied> {
        let stored = |model: &Self, name: &_| model.schedule(name).ok_or(Denied::ScheduleNotFound);
        match change {
            Change::PauseQueue(queue) => {
                self.paused.entry(queue).or_insert(now);
            }
            Change::ResumeQueue(queue) => {
                self.paused.remove(&queue);
            }
            Change::PutSchedule(new) => self.put_schedule(new, None)?,
            Change::DeclareSchedules(declaration) => self.declare(declaration)?,
            Change::PauseSchedule(name) => {
                let at = stored(self, &name)?;
                if self.schedules[at].paused_since.is_none() {
                    self.schedules[at].paused_since = Some(now);
                    self.renew(at);
                }
            }
            Change::ResumeSchedule { name, revision, next_slot } => {
                let at = stored(self, &name)?;
                if self.schedules[at].paused_since.is_some() {
                    if self.schedules[at].revision != revision {
                        return Err(Denied::ScheduleChanged);
                    }
                    self.schedules[at].paused_since = None;
                    self.schedules[at].next_slot = next_slot;
                    self.renew(at);
                }
            }
            Change::RemoveSchedule(name) => {
                let at = stored(self, &name)?;
                self.schedules.remove(at);
            }
            Change::ImportSchedule(record) => match self.schedule(&record.name) {
                Some(at) => {
                    let mut stored = self.schedules[at].clone();
                    stored.revision = record.revision;
                    if stored != *record {
                        return Err(Denied::ScheduleExists(record.name));
                    }
                }
                None => {
                    self.schedules.push(*record);
                    self.renew(self.schedules.len() - 1);
                }
            },
            Change::SetLimits { queue, limits } => self.set_limits(queue, limits, None)?,
            Change::DeclareLimits(declaration) => self.declare_limits(declaration)?,
            Change::ImportLimits(record) => self.import_limits(*record)?,
            Change::Hold { queue, lane, until } => self.hold((queue, lane), until),
            Change::SetOwnerVersion { owner, version } => self.set_version(owner, version),
        }
        Ok(())
    }

    /// Gives a schedule that has changed another revision.
    fn renew(&mut self, at: usize) {
        self.last_serial += 1;
        self.schedules[at].revision = self.last_serial;
    }

    pub(crate) fn set_version(&mut self, owner: OwnerName, version: Option<u64>) {
        self.owners.remove(&owner);
        if let Some(version) = version {
            self.owners.insert(owner, version);
        }
    }

    pub(crate) fn put_schedule(
        &mut self,
        new: NewSchedule,
        owner: Option<&OwnerName>,
    ) -> Result<(), Denied> {
        let Some(at) = self.schedule(&new.name) else {
            self.schedules.push(ScheduleRecord::new(new, owner.cloned(), 0));
            self.renew(self.schedules.len() - 1);
            return Ok(());
        };
        let stored = &mut self.schedules[at];
        if stored.owner.as_ref() != owner {
            return Err(Denied::ScheduleOwned { name: new.name, owner: stored.owner.clone() });
        }
        if stored.definition != new.definition {
            stored.definition = new.definition;
            if !new.keeps_slot || stored.next_slot.is_none() {
                let fired = stored.firings.last().map(|firing| firing.slot.as_micros());
                let is_fired = |slot: &Timestamp| fired >= Some(slot.as_micros());
                stored.next_slot = match new.next_slot {
                    Some(slot) if is_fired(&slot) => {
                        Timestamp::from_micros(fired.unwrap_or_default() + 1).ok()
                    }
                    given => given,
                };
            }
            stored.error = None;
            self.renew(at);
        }
        Ok(())
    }

    pub(crate) fn check_version(
        &self,
        owner: &OwnerName,
        version: Option<u64>,
    ) -> Result<(), Denied> {
        match (version, self.owners.get(owner)) {
            (Some(version), Some(&stored)) if version < stored => {
                Err(Denied::NewerVersion { stored })
            }
            _ => Ok(()),
        }
    }

    /// Declares on a copy, which takes the place of the model if nothing was denied.
    pub(crate) fn declare(&mut self, declaration: Declaration) -> Result<(), Denied> {
        let Declaration { owner, version, schedules, .. } = declaration;
        self.check_version(&owner, version)?;
        let mut after = self.clone();
        let declared = |name: &_| schedules.iter().any(|new| new.name == *name);
        after.schedules.retain(|it| it.owner.as_ref() != Some(&owner) || declared(&it.name));
        for new in schedules {
            after.put_schedule(new, Some(&owner))?;
        }
        after.set_version(owner, version);
        *self = after;
        Ok(())
    }

    pub(crate) fn settings(&self, request: &ListSettings) -> Result<Page<Setting>, DriverError> {
        request.check()?;
        let begin = request.begin()?;
        let paused = self.paused.iter();
        let paused = paused
            .map(|(queue, since)| Setting::PausedQueue { queue: queue.clone(), since: *since });
        let owners = self.owners.iter();
        let owners = owners
            .map(|(owner, version)| Setting::Owner { owner: owner.clone(), version: *version });
        let schedules = self.schedules.iter().cloned();
        let schedules = schedules.map(|record| Setting::Schedule(Box::new(record)));
        let limits = self.queue_limits.iter().cloned();
        let limits = limits.map(|record| Setting::Limits(Box::new(record)));
        let mut all: Vec<_> = paused.chain(owners).chain(schedules).chain(limits).collect();
        all.sort_by(|a, b| (a.kind(), a.name()).cmp(&(b.kind(), b.name())));
        all.retain(|it| begin.is_none_or(|begin| (it.kind(), it.name()) > begin));
        all.retain(|it| request.kind.is_none_or(|kind| kind == it.kind()));
        all.retain(|it| request.name.as_ref().is_none_or(|name| name == it.name()));
        let is_last = all.len() <= request.limit;
        all.truncate(request.limit);
        let next = all.last().map(Setting::cursor).filter(|_| !is_last);
        Ok(Page::new(all, next))
    }
}
