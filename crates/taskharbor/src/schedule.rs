//! [`Schedule`]: jobs that are due again and again.
//!
//! A schedule is stored with all that is needed to fire it, so any worker of any service can do so.
//! Nothing here does I/O: which slots are due follows from the record and the current time.

mod calendar;
mod declaration;
mod definition;
mod fault;
mod plan;
mod template;
mod timing;
mod wire;

use std::time::Duration;

use taskharbor_core::{
    Blob, Timestamp, admin::NewSchedule, driver::Limits, job::FailurePolicy, name::ScheduleName,
};

use crate::{Flow, IntoFlow, IntoStep, NoInput, Options, codec::Format};

pub use declaration::Schedules;
pub(crate) use declaration::{first_slots, keep_due_slots};
pub use fault::{InvalidSchedule, ScheduleFault};

use calendar::Calendar;
pub(crate) use definition::Definition;
pub(crate) use plan::plan;
use template::Template;
pub(crate) use timing::Timing;

/// Jobs that are due again and again: when, which ones, and under which policies.
///
/// ```
/// # use std::time::Duration;
/// # use serde::{Deserialize, Serialize};
/// use taskharbor::{Job, Missed, Overlap, Schedule};
///
/// #[derive(Serialize, Deserialize, Job)]
/// #[job(type = "invoices:make")]
/// struct MakeInvoices;
///
/// let nightly = Schedule::cron("invoices", "0 3 * * *")
///     .zone("Europe/Berlin")
///     .job(MakeInvoices)
///     .missed(Missed::Latest)
///     .within(Duration::from_secs(6 * 3_600))
///     .overlap(Overlap::Skip);
/// let poll = Schedule::every("poll", Duration::from_secs(30)).raw("feed:poll", b"{}");
/// ```
///
/// An invalid value is reported as [`InvalidSchedule`] when the schedule is stored.
#[derive(Debug)]
#[must_use = "a schedule does nothing until it is stored"]
pub struct Schedule {
    name: String,
    timing: Asked,
    zone: Option<String>,
    work: Option<Work>,
    options: Options,
    missed: Missed,
    within: Duration,
    overlap: Option<Overlap>,
    jitter: Duration,
    starts_at: Option<Timestamp>,
    ends_at: Option<Timestamp>,
}

/// A timing before it is checked.
#[derive(Debug)]
enum Asked {
    Cron(String),
    Every(Duration),
}

/// What a schedule makes, before it is encoded.
#[derive(Debug)]
enum Work {
    Job(Flow<Blob>),
    Raw(Flow<Blob>),
    Flow(Flow<Blob>),
}

/// Which slots are fired late if they were due while no worker was running.
///
/// Slots older than [`Schedule::within`] are not fired. All slots that are not fired are counted in
/// the schedule's record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missed {
    /// The latest slot is fired. The default.
    #[default]
    Latest,
    /// A slot is fired only if it is at most 60 seconds old.
    Skip,
    /// The latest slots are fired, up to this many.
    All {
        /// 1 to 1,000.
        at_most: u32,
    },
}

/// What happens if a slot is due while the job of an earlier slot is not terminal.
///
/// A flow is terminal when its last step is terminal. With [`Overlap::Skip`] and [`Overlap::Queue`], steps
/// of a flow that have no failure policy get [`FailurePolicy::Cancel`]: a step that fails ends the flow, and
/// the next slot is fired. With [`FailurePolicy::Block`] the flow is blocked behind the step, and no slot is
/// fired until the step is requeued and the flow ends, or the flow is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// Both jobs run. The default of cron expressions.
    Allow,
    /// The slot is skipped. The default of intervals.
    Skip,
    /// The slot waits until the earlier job is terminal, as long as [`Missed`] still fires it.
    Queue,
    /// The earlier job is cancelled.
    Replace,
}

impl Missed {
    /// The policy's name, as it is stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Latest => "latest",
            Self::Skip => "skip",
            Self::All { .. } => "all",
        }
    }

    /// The policy with this name. `at_most` belongs to `all`.
    #[must_use]
    pub fn named(name: &str, at_most: Option<u32>) -> Option<Self> {
        match (name, at_most) {
            ("latest", None) => Some(Self::Latest),
            ("skip", None) => Some(Self::Skip),
            ("all", Some(at_most)) => Some(Self::All { at_most }),
            _ => None,
        }
    }
}

impl Overlap {
    /// All policies.
    pub const ALL: &[Self] = &[Self::Allow, Self::Skip, Self::Queue, Self::Replace];

    /// The policy's name, as it is stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Skip => "skip",
            Self::Queue => "queue",
            Self::Replace => "replace",
        }
    }

    /// Whether the job of a slot holds the key of its schedule.
    const fn holds_key(self) -> bool {
        matches!(self, Self::Skip | Self::Queue)
    }
}

impl Schedule {
    /// Due when the clock matches a cron expression: five fields (minute, hour, day of month,
    /// month, weekday), six with the second first, or `@hourly`, `@daily`, `@midnight`, `@weekly`,
    /// `@monthly`, `@yearly` and `@annually`. If day of month and weekday are both restricted, one
    /// of them has to match.
    ///
    /// When the clock of the zone is changed, a time of day is still due once a day: at the end of
    /// the gap if the clock skips it, and the first time if it comes twice. An expression with `*`
    /// in its second, minute or hour follows the clock.
    pub fn cron(name: impl Into<String>, expression: impl Into<String>) -> Self {
        Self::new(name.into(), Asked::Cron(expression.into()))
    }

    /// Due each time this interval has passed, counted from the Unix epoch: an interval of an hour is
    /// due on the hour. Daylight saving does not matter. The interval is at least one second.
    pub fn every(name: impl Into<String>, interval: Duration) -> Self {
        Self::new(name.into(), Asked::Every(interval))
    }

    fn new(name: String, timing: Asked) -> Self {
        Self {
            name,
            timing,
            zone: None,
            work: None,
            options: Options::new(),
            missed: Missed::Latest,
            within: Duration::from_secs(24 * 3_600),
            overlap: None,
            jitter: Duration::ZERO,
            starts_at: None,
            ends_at: None,
        }
    }

    /// The time zone of a cron expression, by its IANA name. Defaults to UTC.
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.zone = Some(zone.into());
        self
    }

    /// The job that is stored for each slot: a job, or `job.with(options)`.
    pub fn job<J>(mut self, job: J) -> Self
    where
        J: IntoStep,
        J::Input: NoInput,
    {
        self.work = Some(Work::Job(job.into_flow().taking_nothing().untyped()));
        self
    }

    /// The flow that is started for each slot. [`Overlap`] says what a step that fails means for later
    /// slots.
    pub fn flow<F>(mut self, flow: F) -> Self
    where
        F: IntoFlow,
        F::Input: NoInput,
    {
        self.work = Some(Work::Flow(flow.into_flow().taking_nothing().untyped()));
        self
    }

    /// The job that is stored for each slot, by the name of its type. The bytes are JSON, unless
    /// the handler takes raw bytes.
    pub fn raw(mut self, job_type: impl Into<String>, payload: impl Into<Blob>) -> Self {
        self.work = Some(Work::Raw(Flow::raw(job_type.into(), payload.into())));
        self
    }

    /// Options of the job. A delay counts from the slot. Defaults to those of its type.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options.over(self.options);
        self
    }

    /// Which slots are fired late if they were due while no worker was running. Defaults to
    /// [`Missed::Latest`].
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// The greatest age of a slot that is still fired. Defaults to 24 hours.
    pub fn within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }

    /// What happens if the job of an earlier slot is not terminal. Defaults to [`Overlap::Allow`]
    /// for cron expressions and to [`Overlap::Skip`] for intervals.
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = Some(overlap);
        self
    }

    /// Delays each job by up to this time. The delay depends on the schedule's name and the slot
    /// alone. Defaults to none.
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }

    /// The earliest slot is not before this instant. Defaults to no start.
    pub fn starts_at(mut self, starts_at: Timestamp) -> Self {
        self.starts_at = Some(starts_at);
        self
    }

    /// The last slot is not after this instant. Defaults to no end.
    pub fn ends_at(mut self, ends_at: Timestamp) -> Self {
        self.ends_at = Some(ends_at);
        self
    }

    /// What is stored: the definition, and the first slot after `now`.
    pub(crate) fn into_new(
        self,
        format: &Format,
        limits: &Limits,
        now: Timestamp,
    ) -> Result<NewSchedule, InvalidSchedule> {
        let name = self.name.clone();
        self.checked(format, limits, now).map_err(|(field, fault)| fault.of(&name, field))
    }

    fn checked(
        self,
        format: &Format,
        limits: &Limits,
        now: Timestamp,
    ) -> Result<NewSchedule, (&'static str, ScheduleFault)> {
        let in_field = |field| move |fault: ScheduleFault| (field, fault);
        let name = ScheduleName::new(&self.name).map_err(|it| ("name", it.into()))?;
        let (field, timing, overlap) = match &self.timing {
            Asked::Cron(expression) => {
                let zone = self.zone.as_deref().unwrap_or(Timing::DEFAULT_ZONE);
                let zone = timing::zone(zone).map_err(in_field("zone"))?;
                ("cron", Timing::cron(expression, zone), Overlap::Allow)
            }
            Asked::Every(_) if self.zone.is_some() => {
                return Err(("zone", ScheduleFault::ZoneOfInterval));
            }
            Asked::Every(interval) => ("every", Timing::every(*interval), Overlap::Skip),
        };
        let overlap = self.overlap.unwrap_or(overlap);
        let (starts_at, ends_at) = (self.starts_at, self.ends_at);
        let definition = Definition {
            calendar: Calendar { timing: timing.map_err(in_field(field))?, starts_at, ends_at },
            missed: self.missed,
            within: whole_micros(self.within),
            overlap,
            jitter: whole_micros(self.jitter),
            template: template(self.work, self.options, overlap, format)?,
        };
        definition.check()?;
        let due = |after| {
            let next = definition.calendar.next_after(after);
            next.map_err(|it| (field, ScheduleFault::Cron(it.to_string())))
        };
        let Some(first) = due(Timestamp::EPOCH)? else {
            return Err((field, ScheduleFault::NeverDue));
        };
        let sample = definition.slot(&name, first).map_err(|it| ("job", it.into()))?;
        sample.set.check(limits).map_err(|it| ("job", it.into()))?;
        let (bytes, max) = (definition.encode(), Limits::MAX_DEFINITION_BYTES);
        if bytes.len() > max {
            return Err(("job", ScheduleFault::TooLarge { bytes: bytes.len(), max }));
        }
        Ok(NewSchedule::new(name, bytes, due(now)?))
    }
}

/// Drops the fraction of a microsecond, since timestamps have none.
fn whole_micros(time: Duration) -> Duration {
    u64::try_from(time.as_micros()).map_or(Duration::MAX, Duration::from_micros)
}

fn template(
    work: Option<Work>,
    options: Options,
    overlap: Overlap,
    format: &Format,
) -> Result<Template, (&'static str, ScheduleFault)> {
    let (flow, is_flow, format) = match work {
        None => return Err(("job", ScheduleFault::NoJob)),
        Some(Work::Flow(_)) if options != Options::new() => {
            return Err(("options", ScheduleFault::OptionsOfFlow));
        }
        // A flow that stays blocked would hold the key forever, and no slot would be fired any more.
        Some(Work::Flow(flow)) if overlap.holds_key() => {
            (flow.policy(FailurePolicy::Cancel), true, format)
        }
        Some(Work::Flow(flow)) => (flow, true, format),
        Some(Work::Job(job)) => (job.with_options(options), false, format),
        Some(Work::Raw(job)) => (job.with_options(options), false, &Format::json()),
    };
    if flow.has_fixed_time() {
        return Err(("options", ScheduleFault::FixedTime));
    }
    Template::new(flow, is_flow, format).map_err(|it| ("job", it.into()))
}

#[cfg(test)]
mod tests;
