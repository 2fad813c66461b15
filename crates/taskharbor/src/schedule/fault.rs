//! [`InvalidSchedule`]: which field of a schedule is invalid, and what to do about it.

use taskharbor_core::{
    error::Rejected,
    name::{NameError, OwnerName, ScheduleName},
};

use crate::InvalidJob;

/// A schedule cannot be stored. Nothing was changed.
#[derive(thiserror::Error)]
#[error("schedule {name:?}: {field}: {fault}")]
#[non_exhaustive]
pub struct InvalidSchedule {
    /// The schedule; the owner, if its name or version is invalid.
    pub name: String,
    /// The method of the builder that set the invalid value.
    pub field: &'static str,
    /// What is wrong with it.
    pub fault: ScheduleFault,
}

taskharbor_core::debug_as_display!(InvalidSchedule);

/// What is wrong with a field of a schedule.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleFault {
    /// Invalid name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Invalid cron expression.
    #[error(
        "{0}: write five fields (minute, hour, day of month, month, weekday), six with the second \
         first, or @hourly, @daily, @weekly, @monthly or @yearly"
    )]
    Cron(String),
    /// No slot is ever due.
    #[error(
        "it would never be due: no instant from its start to its end matches, as with 31 February"
    )]
    NeverDue,
    /// Unknown time zone.
    #[error("unknown time zone {0:?}: use an IANA name, as in Europe/Berlin or UTC")]
    UnknownZone(String),
    /// An interval has no time zone.
    #[error("an interval counts elapsed time: remove the zone, or use Schedule::cron")]
    ZoneOfInterval,
    /// A value is too small or too large.
    #[error("{0} is out of range: choose {1}")]
    OutOfRange(String, &'static str),
    /// It ends before it starts.
    #[error("it ends before it starts: choose a later end")]
    EndBeforeStart,
    /// Two schedules have one name.
    #[error("two schedules of one owner have this name: rename one of them")]
    DuplicateName,
    /// It has no job.
    #[error("a schedule needs a job: add one with job, flow or raw")]
    NoJob,
    /// The options of a flow are those of its steps.
    #[error("a flow takes no options: give them to its steps")]
    OptionsOfFlow,
    /// A job has a fixed start time.
    #[error("run_at is one instant for all slots: use delay, which counts from each slot")]
    FixedTime,
    /// The job has an idempotency key of its own.
    #[error(
        "Overlap::{0:?} needs the job's idempotency key: remove that of the job, or choose \
         Overlap::Allow"
    )]
    KeyInUse(super::Overlap),
    /// What is stored cannot be used.
    #[error("{0}")]
    Unusable(String),
    /// There are more slots than one call takes.
    #[error("there are more than {max} slots: choose a shorter time")]
    TooManySlots {
        /// The most that one call takes.
        max: usize,
    },
    /// The job cannot be made.
    #[error(transparent)]
    InvalidJob(#[from] InvalidJob),
    /// The job cannot be stored.
    #[error(transparent)]
    Rejected(#[from] Rejected),
    /// The definition is larger than a store keeps.
    #[error(
        "it takes {bytes} bytes of at most {max}: store the data elsewhere and pass a reference"
    )]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The greatest size allowed.
        max: usize,
    },
}

taskharbor_core::debug_as_display!(ScheduleFault);

impl ScheduleFault {
    /// This fault in a field of the schedule or owner with this name.
    pub(crate) fn of(self, name: &str, field: &'static str) -> InvalidSchedule {
        // A name that is too long is cut, since the text of an error is read by people.
        let max = ScheduleName::MAX_BYTES.max(OwnerName::MAX_BYTES);
        let name = name[..name.floor_char_boundary(max)].to_owned();
        InvalidSchedule { name, field, fault: self }
    }
}
