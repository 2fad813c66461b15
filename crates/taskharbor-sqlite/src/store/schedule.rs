//! Schedules: their records, and the firing that moves them on.

use std::collections::HashSet;

use rusqlite::{Row, params};
use taskharbor_core::{
    Blob, JobId, Timestamp,
    admin::{Change, Declaration, Firing, NewSchedule, ScheduleRecord, SlotTotals},
    driver::{Due, DueSchedules, Enqueued, Fire, FireSchedule},
    error::{Denied, FireRefused, Rejected},
    job::SetKind,
    name::{OwnerName, ScheduleName},
};

use super::{
    Store,
    enqueue::{Inserter, place},
    micros,
};
use crate::{
    entry::{self, number, optional_text, optional_time, text, time},
    error::Fault,
    statement as sql,
};

/// Slot, time of the firing, job, and whether the firing stored it.
type FiringRow = (i64, i64, String, bool);

pub(super) fn read(row: &Row<'_>) -> Result<ScheduleRecord, Fault> {
    let name = entry::name(ScheduleName::new(text(row, 0)?))?;
    let owner = row.get::<_, Option<String>>(1)?.map(OwnerName::new);
    let definition: &[u8] = row.get_ref(10)?.as_blob().map_err(|_| Fault::damaged("a blob"))?;
    let new = NewSchedule::new(name, Blob::from(definition), optional_time(row, 2)?);
    let mut record = ScheduleRecord::new(new, owner.map(entry::name).transpose()?, number(row, 4)?);
    record.paused_since = optional_time(row, 3)?;
    record.totals = SlotTotals::new(number(row, 5)?, number(row, 6)?, number(row, 7)?);
    record.error = optional_text(row, 8)?;
    let firings: Vec<FiringRow> =
        serde_json::from_str(text(row, 9)?).map_err(|_| Fault::damaged("a list of firings"))?;
    record.firings = firings
        .into_iter()
        .map(|(slot, fired_at, job, is_new)| {
            let job = entry::name(JobId::new(job))?;
            let job = if is_new { Enqueued::Inserted(job) } else { Enqueued::Existing(job) };
            Ok(Firing::new(time(slot)?, time(fired_at)?, job))
        })
        .collect::<Result<_, Fault>>()?;
    Ok(record)
}

fn firings(record: &ScheduleRecord) -> Result<String, Fault> {
    let row = |it: &Firing| -> FiringRow {
        let (slot, fired_at) = (it.slot.as_micros(), it.fired_at.as_micros());
        (slot, fired_at, it.job.id().to_string(), it.job.is_new())
    };
    let rows: Vec<_> = record.firings.iter().map(row).collect();
    Ok(serde_json::to_string(&rows).map_err(taskharbor_core::DriverError::backend)?)
}

/// A total as it is stored: it stops at the greatest number.
fn total(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Store<'_> {
    fn schedule(&self, name: &ScheduleName) -> Result<Option<ScheduleRecord>, Fault> {
        let mut statement = self.statement(sql::SCHEDULE)?;
        let mut rows = statement.query([name.as_str()])?;
        rows.next()?.map(read).transpose()
    }

    /// Writes a record under a new revision.
    fn write_schedule(&mut self, record: &ScheduleRecord) -> Result<(), Fault> {
        // SCH-1
        let revision = self.next_seq()?;
        let totals = &record.totals;
        let row = params![
            record.name.as_str(),
            record.owner.as_ref().map(OwnerName::as_str),
            micros(record.next_slot),
            micros(record.paused_since),
            revision,
            total(totals.stored),
            total(totals.skipped),
            total(totals.missed),
            record.error.as_ref().map(taskharbor_core::Text::as_str),
            firings(record)?,
            &record.definition[..],
        ];
        self.execute(sql::WRITE_SCHEDULE, row).map(drop)
    }

    pub(crate) fn due_schedules(&self, request: &DueSchedules) -> Result<Due, Fault> {
        // SCH-8
        let mut statement = self.statement(sql::DUE_SCHEDULES)?;
        let after = request.after.as_ref();
        let after = after.map_or((-1, ""), |(slot, name)| (slot.as_micros(), name.as_str()));
        let row = params![request.now.as_micros(), after.0, after.1, place(request.limit)];
        let mut rows = statement.query(row)?;
        let mut due = Vec::new();
        while let Some(row) = rows.next()? {
            due.push(read(row)?);
        }
        let next: Option<i64> = self.find(sql::NEXT_SLOT, [request.now.as_micros()])?;
        Ok(Due::new(due, next.map(time).transpose()?))
    }

    pub(crate) fn fire(
        &mut self,
        request: &Fire,
    ) -> Result<Vec<Result<Vec<Enqueued>, FireRefused>>, Fault> {
        let mut inserter = self.inserter()?;
        let mut answers = Vec::with_capacity(request.items.len());
        for item in &request.items {
            answers.push(self.fire_schedule(item, &mut inserter, request.now)?);
        }
        Ok(answers)
    }

    fn fire_schedule(
        &mut self,
        item: &FireSchedule,
        inserter: &mut Inserter<'_>,
        now: Timestamp,
    ) -> Result<Result<Vec<Enqueued>, FireRefused>, Fault> {
        let Some(mut record) = self.schedule(&item.name)? else {
            return Ok(Err(FireRefused::NotFound));
        };
        if let Err(refused) = record.check_fire(item) {
            return Ok(Err(refused));
        }
        // All slots are looked at before the first is stored, so that none is stored in vain.
        let tails = match self.check_slots(item, now)? {
            Ok(tails) => tails,
            Err(refused) => return Ok(Err(refused)),
        };
        let mut jobs = Vec::with_capacity(tails.len());
        for (slot, tail) in item.slots.iter().zip(tails) {
            match self.enqueue_set(&slot.set, inserter, now)? {
                Ok(mut stored) => jobs.push(stored.swap_remove(tail)),
                Err(_) => return Err(Fault::damaged("a set that was checked")),
            }
        }
        record.record_firing(item, jobs.clone(), now);
        self.write_schedule(&record)?;
        Ok(Ok(jobs))
    }

    /// Whether the jobs of all slots can be stored; returns which job of each stands for it.
    fn check_slots(
        &self,
        item: &FireSchedule,
        now: Timestamp,
    ) -> Result<Result<Vec<usize>, FireRefused>, Fault> {
        let mut tails = Vec::with_capacity(item.slots.len());
        for slot in &item.slots {
            // SCH-4
            let checked = match slot.set.check(&self.limits) {
                Ok(checked) => checked,
                Err(rejected) => return Ok(Err(rejected.into())),
            };
            let mut stored = Vec::new();
            for job in &slot.set.jobs {
                if self.seq_of(&job.id)?.is_some() {
                    stored.push(&job.id);
                }
            }
            if let (SetKind::Flow { .. }, Some(&job)) = (&slot.set.kind, stored.first())
                && stored.len() < slot.set.jobs.len()
            {
                return Ok(Err(Rejected::Overlap { job: job.clone() }.into()));
            }
            // SCH-15
            if item.waits_for_key
                && stored.is_empty()
                && let Some(holder) = self.key_holder(slot.job(&checked), now)?
            {
                return Ok(Err(FireRefused::KeyHeld(holder)));
            }
            tails.push(checked.tail());
        }
        Ok(Ok(tails))
    }

    pub(super) fn change_schedules(
        &mut self,
        change: &Change,
        now: Timestamp,
    ) -> Result<Result<(), Denied>, Fault> {
        match change {
            Change::PutSchedule(new) => self.put_schedule(new, None),
            Change::DeclareSchedules(declaration) => self.declare_schedules(declaration),
            Change::PauseSchedule(name) => {
                self.change_schedule(name, |record| Ok(record.pause(now)))
            }
            Change::ResumeSchedule { name, revision, next_slot } => {
                self.change_schedule(name, |record| record.resume(*revision, *next_slot))
            }
            Change::RemoveSchedule(name) => {
                // SCH-13
                let removed = self.execute(sql::REMOVE_SCHEDULE, [name.as_str()])?;
                Ok(if removed > 0 { Ok(()) } else { Err(Denied::ScheduleNotFound) })
            }
            Change::ImportSchedule(record) => self.import_schedule(record),
            _ => Ok(Ok(())),
        }
    }

    /// Changes a schedule; if `change` says that it differs now, it is written.
    fn change_schedule(
        &mut self,
        name: &ScheduleName,
        change: impl FnOnce(&mut ScheduleRecord) -> Result<bool, Denied>,
    ) -> Result<Result<(), Denied>, Fault> {
        let Some(mut record) = self.schedule(name)? else {
            return Ok(Err(Denied::ScheduleNotFound));
        };
        match change(&mut record) {
            Err(denied) => return Ok(Err(denied)),
            Ok(false) => {}
            Ok(true) => self.write_schedule(&record)?,
        }
        Ok(Ok(()))
    }

    fn put_schedule(
        &mut self,
        new: &NewSchedule,
        owner: Option<&OwnerName>,
    ) -> Result<Result<(), Denied>, Fault> {
        match self.schedule(&new.name)? {
            Some(mut record) => {
                if let Err(denied) = record.check_owner(owner) {
                    return Ok(Err(denied));
                }
                if record.redefine(new.clone()) {
                    self.write_schedule(&record)?;
                }
            }
            None => self.write_schedule(&ScheduleRecord::new(new.clone(), owner.cloned(), 0))?,
        }
        Ok(Ok(()))
    }

    fn declare_schedules(
        &mut self,
        declaration: &Declaration,
    ) -> Result<Result<(), Denied>, Fault> {
        let owner = &declaration.owner;
        if let Err(denied) = declaration.check_version(self.owner_version(owner)?) {
            return Ok(Err(denied));
        }
        // SCH-12: before the first of them is changed.
        for new in &declaration.schedules {
            if let Some(stored) = self.schedule(&new.name)?
                && let Err(denied) = stored.check_owner(Some(owner))
            {
                return Ok(Err(denied));
            }
        }
        // SCH-10
        let kept: HashSet<&str> = declaration.schedules.iter().map(|it| it.name.as_str()).collect();
        let mut statement = self.statement(sql::SCHEDULES_OF)?;
        let names = statement.query_map([owner.as_str()], |row| row.get::<_, String>(0))?;
        for name in names.collect::<Result<Vec<_>, _>>()? {
            if !kept.contains(name.as_str()) {
                self.execute(sql::REMOVE_SCHEDULE, [name.as_str()])?;
            }
        }
        for new in &declaration.schedules {
            if let Err(denied) = self.put_schedule(new, Some(owner))? {
                return Ok(Err(denied));
            }
        }
        self.set_owner_version(owner, declaration.version).map(Ok)
    }

    /// The version that an owner has declared.
    pub(super) fn owner_version(&self, owner: &OwnerName) -> Result<Option<u64>, Fault> {
        let version: Option<i64> = self.find(sql::OWNER_VERSION, [owner.as_str()])?;
        Ok(version.and_then(|version| u64::try_from(version).ok()))
    }

    pub(super) fn set_owner_version(
        &self,
        owner: &OwnerName,
        version: Option<u64>,
    ) -> Result<(), Fault> {
        match version {
            Some(version) => {
                self.execute(sql::SET_OWNER_VERSION, params![owner.as_str(), total(version)])?
            }
            None => self.execute(sql::FORGET_OWNER, [owner.as_str()])?,
        };
        Ok(())
    }

    fn import_schedule(&mut self, record: &ScheduleRecord) -> Result<Result<(), Denied>, Fault> {
        // SCH-16
        match self.schedule(&record.name)? {
            Some(stored) if stored.equals_but_revision(record) => Ok(Ok(())),
            Some(_) => Ok(Err(Denied::ScheduleExists(record.name.clone()))),
            None => self.write_schedule(record).map(Ok),
        }
    }
}
