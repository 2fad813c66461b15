//! Schedules: their records, and the firing that moves them on.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use taskharbor_core::{
    NewJob, Timestamp,
    admin::{Declaration, NewSchedule, ScheduleRecord},
    driver::{Due, DueSchedules, Enqueued, Fire, FireSchedule},
    error::{Denied, FireRefused, Rejected},
    job::{JobSet, SetKind},
    name::{OwnerName, ScheduleName},
};

use crate::store::Store;

/// The schedules, those that wait for a slot by its time, and what their owners declared.
#[derive(Debug, Default)]
pub(crate) struct Schedules {
    pub(crate) records: BTreeMap<ScheduleName, ScheduleRecord>,
    pub(crate) waiting: BTreeSet<(Timestamp, ScheduleName)>,
    pub(crate) owners: BTreeMap<OwnerName, u64>,
}

impl Schedules {
    fn take(&mut self, name: &ScheduleName) -> Option<ScheduleRecord> {
        let record = self.records.remove(name)?;
        if let Some(slot) = record.next_slot {
            self.waiting.remove(&(slot, record.name.clone()));
        }
        Some(record)
    }

    fn keep(&mut self, record: ScheduleRecord) {
        if let Some(slot) = record.next_slot.filter(|_| record.paused_since.is_none()) {
            self.waiting.insert((slot, record.name.clone()));
        }
        self.records.insert(record.name.clone(), record);
    }
}

impl Store {
    pub(crate) fn due_schedules(&self, request: &DueSchedules) -> Due {
        // SCH-8
        let Schedules { records, waiting, .. } = &self.schedules;
        let begin = request.after.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let due =
            waiting.range((begin, Bound::Unbounded)).take_while(|(slot, _)| *slot <= request.now);
        let due = due.take(request.limit).filter_map(|(_, name)| records.get(name).cloned());
        let next = waiting.iter().map(|(slot, _)| *slot).find(|slot| *slot > request.now);
        Due::new(due.collect(), next)
    }

    pub(crate) fn fire(&mut self, request: Fire) -> Vec<Result<Vec<Enqueued>, FireRefused>> {
        let now = request.now;
        request.items.into_iter().map(|item| self.fire_schedule(item, now)).collect()
    }

    fn fire_schedule(
        &mut self,
        mut item: FireSchedule,
        now: Timestamp,
    ) -> Result<Vec<Enqueued>, FireRefused> {
        let record = self.schedules.records.get(&item.name).ok_or(FireRefused::NotFound)?;
        record.check_fire(&item)?;
        let tails = self.check_slots(&item, now)?;
        // SCH-2
        let mut jobs = Vec::with_capacity(tails.len());
        for (slot, tail) in item.slots.iter_mut().zip(tails) {
            let set = std::mem::replace(&mut slot.set, JobSet::plain(Vec::new()));
            jobs.push(self.enqueue_set(set, now)?.swap_remove(tail));
        }
        if let Some(mut record) = self.schedules.take(&item.name) {
            record.record_firing(&item, jobs.clone(), now);
            record.revision = self.next_seq();
            self.schedules.keep(record);
        }
        Ok(jobs)
    }

    /// Whether the jobs of all slots can be stored; returns which job of each stands for it.
    fn check_slots(&self, item: &FireSchedule, now: Timestamp) -> Result<Vec<usize>, FireRefused> {
        let mut tails = Vec::with_capacity(item.slots.len());
        for slot in &item.slots {
            // SCH-4
            let checked = slot.set.check(&self.limits)?;
            let is_stored = |job: &&NewJob| self.by_id.contains_key(&job.id);
            let stored: Vec<_> = slot.set.jobs.iter().filter(is_stored).collect();
            if let (SetKind::Flow { .. }, Some(job)) = (&slot.set.kind, stored.first())
                && stored.len() < slot.set.jobs.len()
            {
                return Err(Rejected::Overlap { job: job.id.clone() }.into());
            }
            // SCH-15
            if item.waits_for_key
                && stored.is_empty()
                && let Some(holder) = self.key_holder(slot.job(&checked), now)
            {
                return Err(FireRefused::KeyHeld(holder.clone()));
            }
            tails.push(checked.tail());
        }
        Ok(tails)
    }

    /// Changes a schedule; if `change` says that it differs now, under a new revision.
    pub(crate) fn change_schedule(
        &mut self,
        name: &ScheduleName,
        change: impl FnOnce(&mut ScheduleRecord) -> Result<bool, Denied>,
    ) -> Result<(), Denied> {
        let mut record = self.schedules.take(name).ok_or(Denied::ScheduleNotFound)?;
        let changed = change(&mut record);
        // SCH-1
        if let Ok(true) = changed {
            record.revision = self.next_seq();
        }
        self.schedules.keep(record);
        changed.map(drop)
    }

    pub(crate) fn put_schedule(
        &mut self,
        new: NewSchedule,
        owner: Option<&OwnerName>,
    ) -> Result<(), Denied> {
        // SCH-9
        match self.schedules.records.get(&new.name) {
            Some(stored) => {
                stored.check_owner(owner)?;
                let name = new.name.clone();
                self.change_schedule(&name, |record| Ok(record.redefine(new)))
            }
            None => {
                let revision = self.next_seq();
                self.schedules.keep(ScheduleRecord::new(new, owner.cloned(), revision));
                Ok(())
            }
        }
    }

    pub(crate) fn declare_schedules(&mut self, declaration: Declaration) -> Result<(), Denied> {
        let owner = &declaration.owner;
        // SCH-11
        declaration.check_version(self.schedules.owners.get(owner).copied())?;
        // SCH-12
        for new in &declaration.schedules {
            if let Some(stored) = self.schedules.records.get(&new.name) {
                stored.check_owner(Some(owner))?;
            }
        }
        // SCH-10
        let kept: BTreeSet<_> = declaration.schedules.iter().map(|new| &new.name).collect();
        let ours = self.schedules.records.values().filter(|it| it.owner.as_ref() == Some(owner));
        let gone = ours.map(|it| it.name.clone()).filter(|name| !kept.contains(name));
        for name in gone.collect::<Vec<_>>() {
            self.schedules.take(&name);
        }
        for new in declaration.schedules {
            self.put_schedule(new, Some(&declaration.owner))?;
        }
        self.set_owner_version(declaration.owner, declaration.version);
        Ok(())
    }

    pub(crate) fn set_owner_version(&mut self, owner: OwnerName, version: Option<u64>) {
        match version {
            Some(version) => self.schedules.owners.insert(owner, version),
            None => self.schedules.owners.remove(&owner),
        };
    }

    pub(crate) fn remove_schedule(&mut self, name: &ScheduleName) -> Result<(), Denied> {
        // SCH-13
        self.schedules.take(name).map(drop).ok_or(Denied::ScheduleNotFound)
    }

    pub(crate) fn import_schedule(&mut self, mut record: ScheduleRecord) -> Result<(), Denied> {
        // SCH-16
        match self.schedules.records.get(&record.name) {
            Some(stored) if stored.equals_but_revision(&record) => Ok(()),
            Some(_) => Err(Denied::ScheduleExists(record.name)),
            None => {
                record.revision = self.next_seq();
                self.schedules.keep(record);
                Ok(())
            }
        }
    }
}
