//! [`Definition`]: all that any worker needs to fire a schedule.

use std::time::Duration;

use taskharbor_core::{
    Blob, JobId, Timestamp,
    driver::SlotJobs,
    job::JobSet,
    name::{IdempotencyKey, ScheduleName},
};

use super::{
    Missed, Overlap,
    calendar::Calendar,
    fault::ScheduleFault,
    template::{Stamp, Template, text},
    timing::Timing,
    wire,
};
use crate::draft::InvalidJob;

/// When a schedule is due, which jobs it makes, and the policies for slots that come too late or
/// too early.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Definition {
    pub(crate) calendar: Calendar,
    pub(crate) missed: Missed,
    pub(crate) within: Duration,
    pub(crate) overlap: Overlap,
    pub(crate) jitter: Duration,
    pub(crate) template: Template,
}

/// Why a stored definition cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DefinitionError {
    #[error("the definition has version {0}, and this worker reads version 1: update this worker")]
    LaterVersion(u64),
    #[error("this worker does not know the time zone {0:?}: update this worker")]
    UnknownZone(String),
    #[error("the definition cannot be read ({0}): define the schedule again")]
    Malformed(String),
}

impl Definition {
    /// The greatest age of a slot that [`Missed::Skip`] fires.
    pub(crate) const ON_TIME: Duration = Duration::from_secs(60);
    /// The greatest `at_most` of [`Missed::All`].
    pub(crate) const MAX_AT_MOST: u32 = 1_000;

    /// The bytes that are stored. Equal definitions give equal bytes.
    pub(crate) fn encode(&self) -> Blob {
        wire::encode(self)
    }

    /// The definition in these bytes.
    pub(crate) fn decode(bytes: &Blob) -> Result<Self, DefinitionError> {
        let definition = wire::decode(bytes)?;
        match definition.check() {
            Ok(()) => Ok(definition),
            Err((field, fault)) => Err(DefinitionError::Malformed(format!("{field}: {fault}"))),
        }
    }

    /// Checks all fields but the timing, which is valid. An error names its field.
    pub(crate) fn check(&self) -> Result<(), (&'static str, ScheduleFault)> {
        let out_of_range = |value: String, range| Err(ScheduleFault::OutOfRange(value, range));
        if let Missed::All { at_most } = self.missed
            && !(1..=Self::MAX_AT_MOST).contains(&at_most)
        {
            return out_of_range(at_most.to_string(), "1 to 1000").map_err(|it| ("missed", it));
        }
        if !(Duration::from_micros(1)..=Timing::MAX_DURATION).contains(&self.within) {
            let range = "1 µs to 100 years, or use Missed::Skip";
            return out_of_range(format!("{:?}", self.within), range).map_err(|it| ("within", it));
        }
        if self.jitter > Timing::MAX_DURATION {
            let range = "at most 100 years";
            return out_of_range(format!("{:?}", self.jitter), range).map_err(|it| ("jitter", it));
        }
        let (start, end) = (self.calendar.starts_at, self.calendar.ends_at);
        if start.zip(end).is_some_and(|(start, end)| end < start) {
            return Err(("ends_at", ScheduleFault::EndBeforeStart));
        }
        let Some(tail) = self.template.tail() else { return Err(("job", ScheduleFault::NoJob)) };
        if self.overlap.holds_key() && tail.idempotency_key.is_some() {
            return Err(("overlap", ScheduleFault::KeyInUse(self.overlap)));
        }
        Ok(())
    }

    /// The jobs of a slot that is fired.
    pub(crate) fn slot(
        &self,
        name: &ScheduleName,
        slot: Timestamp,
    ) -> Result<SlotJobs, InvalidJob> {
        let stamp = Stamp { key: self.key(name)?, ..self.stamp(name, slot) };
        Ok(SlotJobs::new(slot, self.template.stamped(name, &stamp)?))
    }

    /// The jobs of a past slot that is run again. They have the ids of a firing, so a slot whose
    /// jobs are still stored changes nothing. They hold no key: all of them run, whatever the
    /// overlap.
    pub(crate) fn backfill(
        &self,
        name: &ScheduleName,
        slot: Timestamp,
    ) -> Result<JobSet, InvalidJob> {
        self.template.stamped(name, &self.stamp(name, slot))
    }

    /// The jobs of a run outside the slots. Their handlers see `now` as the slot.
    pub(crate) fn run_now(
        &self,
        name: &ScheduleName,
        now: Timestamp,
    ) -> Result<JobSet, InvalidJob> {
        let id = format!("{name}@now:{}", JobId::generate(now)?);
        let key = self.key(name)?;
        self.template.stamped(name, &Stamp { id, slot: now, start: now, is_due: true, key })
    }

    fn stamp(&self, name: &ScheduleName, slot: Timestamp) -> Stamp {
        let start = slot.saturating_add(self.jitter_of(name, slot));
        let id = format!("{name}@{}", text(slot));
        Stamp { id, slot, start, is_due: start == slot, key: None }
    }

    /// The key that at most one job of the schedule holds at a time.
    fn key(&self, name: &ScheduleName) -> Result<Option<IdempotencyKey>, InvalidJob> {
        if !self.overlap.holds_key() {
            return Ok(None);
        }
        Ok(Some(IdempotencyKey::new(format!("th-schedule:{name}"))?))
    }

    /// How long the jobs of a slot are delayed. It follows from the name and the slot alone, so it is
    /// the same on every worker.
    fn jitter_of(&self, name: &ScheduleName, slot: Timestamp) -> Duration {
        let Some(max) = u64::try_from(self.jitter.as_micros()).ok().filter(|max| *max > 0) else {
            return Duration::ZERO;
        };
        let bytes = name.as_str().bytes().chain(slot.as_micros().to_le_bytes());
        // FNV-1a, then the finalizer of SplitMix64, because slots differ in few bits.
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Duration::from_micros((hash ^ (hash >> 31)) % max)
    }
}
