//! Calls for applications and operators that store, list and change schedules.

use std::{fmt, time::Duration};

use taskharbor_core::{
    NewJob, Timestamp,
    admin::{
        Change, Configure, Cursor, ListSettings, NewSchedule, Page, ScheduleRecord, Setting,
        SettingKind,
    },
    driver::{DueSchedules, Enqueue, Enqueued},
    error::Denied,
    job::JobSet,
    name::ScheduleName,
};

use super::{Client, status::ManageError};
use crate::{
    InvalidSchedule, Missed, Overlap, Schedule, ScheduleFault, Schedules,
    schedule::{Definition, Timing, keep_due_slots},
};

/// Schedules in one call.
const BATCH: usize = 1_000;
/// Jobs in one call.
const BATCH_JOBS: usize = 1_000;
/// How often to try again when a schedule changes between reading and resuming it.
const RESUMES: usize = 5;

/// Recurring jobs: [`Client::schedules`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use taskharbor::{Client, Schedule};
///
/// # let driver = taskharbor::connect("memory:").await?;
/// let client = Client::new(&driver);
/// let digest = Schedule::cron("digest-42", "0 9 * * MON")
///     .zone("Europe/Berlin")
///     .raw("digest:send", br#"{"user":42}"#);
/// client.schedules().put(digest).await?;
/// for slot in client.schedules().upcoming("digest-42", 3).await? {
///     println!("due at {slot}");
/// }
/// # Ok(())
/// # }
/// ```
///
/// Every call fails with [`ManageError::Name`] for an invalid name, with [`ManageError::Denied`] if
/// the schedule is not stored or belongs to an owner, and with [`ManageError::Store`].
#[derive(Debug)]
pub struct ScheduleAdmin<'a> {
    client: &'a Client,
}

/// A schedule as it is stored.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScheduleInfo {
    /// Its record.
    pub record: ScheduleRecord,
    /// The details of its definition, or the reason why it cannot be read.
    pub details: Result<ScheduleDetails, String>,
}

/// The details of a schedule's definition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduleDetails {
    /// When it is due: a cron expression, or `every` and a duration.
    pub timing: String,
    /// The time zone of the cron expression.
    pub zone: Option<String>,
    /// The type of its job; of the last job, if it makes a flow.
    pub job_type: String,
    /// The queue of that job.
    pub queue: String,
    /// The lane of that job.
    pub lane: Option<String>,
    /// How many jobs it makes for each slot.
    pub jobs: usize,
    /// Which missed slots are fired late.
    pub missed: Missed,
    /// How old a missed slot may be.
    pub within: Duration,
    /// What happens while the job of an earlier slot is not terminal.
    pub overlap: Overlap,
    /// The longest random delay of a job.
    pub jitter: Duration,
    /// The start of the schedule: no slot is earlier.
    pub starts_at: Option<Timestamp>,
    /// The end of the schedule: no slot is later.
    pub ends_at: Option<Timestamp>,
}

/// The result of a backfill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backfilled {
    /// Slots whose jobs were stored.
    pub stored: usize,
    /// Slots whose jobs were stored already.
    pub existing: usize,
}

impl Client {
    /// Recurring jobs.
    #[must_use]
    pub const fn schedules(&self) -> ScheduleAdmin<'_> {
        ScheduleAdmin { client: self }
    }
}

#[expect(clippy::missing_errors_doc, reason = "the type says it once for all")]
impl ScheduleAdmin<'_> {
    /// The most slots of one backfill.
    pub const MAX_BACKFILL: usize = 10_000;

    /// Stores a schedule without an owner, or replaces the one with its name. An equal one is left
    /// as it is.
    ///
    /// It is first due at the first slot after now. If it replaces one with the same calendar
    /// (expression or interval, zone, start and end), a slot that is due and not fired yet is still
    /// fired, as the new schedule says. With another calendar, such a slot is dropped.
    ///
    /// Fails with [`ManageError::Schedule`] if the schedule is invalid.
    pub async fn put(&self, schedule: Schedule) -> Result<(), ManageError> {
        self.put_many([schedule]).await
    }

    /// As [`ScheduleAdmin::put`], for many schedules. Nothing is stored if one is invalid. If one is
    /// denied, those before it are stored.
    pub async fn put_many(
        &self,
        schedules: impl IntoIterator<Item = Schedule>,
    ) -> Result<(), ManageError> {
        let (format, limits) = (self.client.format(), self.client.store().limits());
        let now = self.now().await?;
        let new = |schedule: Schedule| schedule.into_new(format, &limits, now);
        let mut new = schedules.into_iter().map(new).collect::<Result<Vec<_>, _>>()?;
        self.keep_due_slots(&mut new, now).await?;
        for batch in new.chunks(BATCH) {
            self.configure(batch.iter().cloned().map(Change::PutSchedule).collect()).await?;
        }
        Ok(())
    }

    /// Gives an owner exactly these schedules, as a worker does when it starts
    /// ([`WorkerBuilder::schedules`](crate::WorkerBuilder::schedules)). Slots that are due are kept and
    /// dropped as [`ScheduleAdmin::put`] says.
    ///
    /// Fails with [`ManageError::Schedule`] if one is invalid.
    pub async fn declare(&self, schedules: Schedules) -> Result<(), ManageError> {
        let (format, limits) = (self.client.format(), self.client.store().limits());
        let now = self.now().await?;
        let mut declaration = schedules.into_declaration(format, &limits, now)?;
        self.keep_due_slots(&mut declaration.schedules, now).await?;
        self.configure(vec![Change::DeclareSchedules(declaration)]).await
    }

    /// A schedule, or `None` if it is not stored.
    pub async fn get(&self, name: &str) -> Result<Option<ScheduleInfo>, ManageError> {
        let name = ScheduleName::new(name)?;
        let page = self.settings(ListSettings::new(1).name(name.as_str())).await?;
        Ok(page.items.into_iter().next())
    }

    /// Lists one page of all schedules, sorted by name; `after` is the cursor that the page before
    /// returned.
    pub async fn list(
        &self,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<ScheduleInfo>, ManageError> {
        let mut request = ListSettings::new(limit);
        request.after = after;
        self.settings(request).await
    }

    /// Pauses the schedule: no slot of it is fired until it is resumed.
    pub async fn pause(&self, name: &str) -> Result<(), ManageError> {
        self.configure(vec![Change::PauseSchedule(ScheduleName::new(name)?)]).await
    }

    /// Resumes the schedule: slots after now are fired. Slots during the pause are not fired late.
    pub async fn resume(&self, name: &str) -> Result<(), ManageError> {
        for _ in 0..RESUMES {
            let (record, definition) = self.read(name).await?;
            let next_slot = definition.calendar.next_after(self.now().await?);
            let next_slot = next_slot.map_err(|error| unusable(name, &error))?;
            let (name, revision) = (record.name, record.revision);
            let resume = Change::ResumeSchedule { name, revision, next_slot };
            match self.configure(vec![resume]).await {
                Err(ManageError::Denied(Denied::ScheduleChanged)) => {}
                answer => return answer,
            }
        }
        Err(Denied::ScheduleChanged.into())
    }

    /// Removes the schedule. Its jobs stay.
    pub async fn remove(&self, name: &str) -> Result<(), ManageError> {
        self.configure(vec![Change::RemoveSchedule(ScheduleName::new(name)?)]).await
    }

    /// Returns the first `limit` slots after now, whether or not the schedule is paused.
    pub async fn upcoming(&self, name: &str, limit: usize) -> Result<Vec<Timestamp>, ManageError> {
        let (_, definition) = self.read(name).await?;
        let slots = definition.calendar.upcoming(self.now().await?, limit);
        Ok(slots.map_err(|error| unusable(name, &error))?)
    }

    /// Stores its job now, in addition to its slots, even if the schedule is paused. Returns
    /// `Existing` with the earlier job if that is not terminal and the schedule allows no overlap.
    pub async fn run_now(&self, name: &str) -> Result<Enqueued, ManageError> {
        let (record, definition) = self.read(name).await?;
        let set = definition.run_now(&record.name, self.now().await?);
        let set = set.map_err(|error| ScheduleFault::from(error).of(name, "job"))?;
        let answers = self.enqueue(name, vec![set]).await?;
        answers.into_iter().next().ok_or(ManageError::Denied(Denied::ScheduleNotFound))
    }

    /// Returns the slots from `from` on and before `to`, which [`ScheduleAdmin::backfill`] would
    /// run.
    pub async fn slots(
        &self,
        name: &str,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<Timestamp>, ManageError> {
        let (_, definition) = self.read(name).await?;
        self.slots_of(name, &definition, from, to)
    }

    /// Runs the slots from `from` on and before `to` again. A slot whose job is still stored changes
    /// nothing, so a backfill can be repeated.
    pub async fn backfill(
        &self,
        name: &str,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Backfilled, ManageError> {
        let (record, definition) = self.read(name).await?;
        let mut done = Backfilled::default();
        let batch = (BATCH_JOBS / definition.template.jobs()).max(1);
        for batch in self.slots_of(name, &definition, from, to)?.chunks(batch) {
            let sets = batch.iter().map(|slot| definition.backfill(&record.name, *slot));
            let sets = sets.collect::<Result<Vec<_>, _>>();
            let sets = sets.map_err(|error| ScheduleFault::from(error).of(name, "job"))?;
            for job in self.enqueue(name, sets).await? {
                *(if job.is_new() { &mut done.stored } else { &mut done.existing }) += 1;
            }
        }
        Ok(done)
    }

    fn slots_of(
        &self,
        name: &str,
        definition: &Definition,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<Timestamp>, ManageError> {
        let slots = definition.calendar.between(from, to, Self::MAX_BACKFILL + 1);
        let slots = slots.map_err(|error| unusable(name, &error))?;
        if slots.len() > Self::MAX_BACKFILL {
            let fault = ScheduleFault::TooManySlots { max: Self::MAX_BACKFILL };
            return Err(fault.of(name, "to").into());
        }
        Ok(slots)
    }

    /// Stores sets; returns the job that stands for each.
    async fn enqueue(&self, name: &str, sets: Vec<JobSet>) -> Result<Vec<Enqueued>, ManageError> {
        let mut jobs = Vec::with_capacity(sets.len());
        let request = Enqueue::new(sets, self.now().await?);
        for answer in self.client.store().enqueue(request).await? {
            let answers = answer.map_err(|it| ScheduleFault::from(it).of(name, "job"))?;
            jobs.extend(answers.into_iter().last());
        }
        Ok(jobs)
    }

    async fn keep_due_slots(
        &self,
        new: &mut [NewSchedule],
        now: Timestamp,
    ) -> Result<(), ManageError> {
        let mut page = Some(DueSchedules::new(BATCH, now));
        while let Some(request) = page {
            let due = self.client.store().due_schedules(request.clone()).await?;
            keep_due_slots(new, &due.schedules);
            page = request.next_page(&due);
        }
        Ok(())
    }

    async fn read(&self, name: &str) -> Result<(ScheduleRecord, Definition), ManageError> {
        let info = self.get(name).await?.ok_or(Denied::ScheduleNotFound)?;
        let definition = Definition::decode(&info.record.definition);
        Ok((info.record, definition.map_err(|error| unusable(name, &error))?))
    }

    async fn settings(&self, request: ListSettings) -> Result<Page<ScheduleInfo>, ManageError> {
        let store = self.client.store();
        let page = store.settings(request.kind(SettingKind::Schedule)).await?;
        let items = page.items.into_iter().filter_map(|setting| match setting {
            Setting::Schedule(record) => Some(ScheduleInfo::from(*record)),
            _ => None,
        });
        Ok(Page::new(items.collect(), page.next))
    }

    async fn configure(&self, changes: Vec<Change>) -> Result<(), ManageError> {
        let request = Configure::new(changes, self.now().await?);
        let answers = self.client.store().configure(request).await?;
        answers.into_iter().collect::<Result<(), _>>().map_err(ManageError::Denied)
    }

    async fn now(&self) -> Result<Timestamp, ManageError> {
        Ok(self.client.store().now().await?)
    }
}

fn unusable(name: &str, error: &impl fmt::Display) -> InvalidSchedule {
    ScheduleFault::Unusable(error.to_string()).of(name, "definition")
}

impl From<ScheduleRecord> for ScheduleInfo {
    fn from(record: ScheduleRecord) -> Self {
        let definition = Definition::decode(&record.definition);
        let details = definition.as_ref().map(details).map_err(ToString::to_string);
        Self { record, details }
    }
}

fn details(definition: &Definition) -> ScheduleDetails {
    let (timing, zone) = match &definition.calendar.timing {
        Timing::Cron(cron) => (cron.expression().to_owned(), Some(cron.zone().to_owned())),
        Timing::Every(micros) => {
            (format!("every {:?}", Duration::from_micros(micros.unsigned_abs())), None)
        }
    };
    let text = |name: fn(&NewJob) -> &str| {
        definition.template.tail().map(name).unwrap_or_default().to_owned()
    };
    ScheduleDetails {
        timing,
        zone,
        job_type: text(|job| job.job_type.as_str()),
        queue: text(|job| job.queue.as_str()),
        lane: definition.template.tail().and_then(|job| Some(job.lane.as_ref()?.to_string())),
        jobs: definition.template.jobs(),
        missed: definition.missed,
        within: definition.within,
        overlap: definition.overlap,
        jitter: definition.jitter,
        starts_at: definition.calendar.starts_at,
        ends_at: definition.calendar.ends_at,
    }
}
