//! Jobs that this worker cannot run, and another one perhaps can: of a type without a handler, in an
//! unknown codec, or with a payload that does not decode.
//!
//! In a rolling deploy new producers meet old workers. So such a job is released for a while before it is
//! dead-lettered. The time counts from when the first worker could not run it, which is in the note that
//! each release leaves with the job. So it ends also where workers come and go. It counts anew after a
//! worker may have run the job: the store drops the note then.

use std::time::Duration;

use taskharbor_core::{
    Text, Timestamp,
    job::{JobView, ReleaseNote, ReleaseReason},
    name::Holder,
};

use super::resolution::{self, Resolution, Started};

/// How long such jobs are released by default.
const WAIT: Duration = Duration::from_secs(600);
/// The delays grow from the first of these to the second.
const SHORTEST_DELAY: Duration = Duration::from_secs(1);
const LONGEST_DELAY: Duration = Duration::from_secs(60);

/// How a worker treats a job for which it has no handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingHandler {
    /// The job is released again and again, after delays that grow from 1 s to 60 s, and nothing is
    /// charged: a worker of another version may have the handler. It is dead-lettered when this long
    /// has passed since the first worker could not run it. [`Duration::MAX`] releases it for ever.
    Wait(Duration),
    /// The job is dead-lettered at once.
    Fail,
}

/// Waits for 10 minutes.
impl Default for MissingHandler {
    fn default() -> Self {
        Self::Wait(WAIT)
    }
}

/// How a worker treats a job that it cannot read: the job was written with a codec that the worker
/// does not have, or its payload does not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unreadable {
    /// The job is released as with [`MissingHandler::Wait`], and dead-lettered when this long has passed.
    Wait(Duration),
    /// The job is dead-lettered at once.
    Fail,
}

/// Waits for 10 minutes.
impl Default for Unreadable {
    fn default() -> Self {
        Self::Wait(WAIT)
    }
}

impl From<MissingHandler> for Unreadable {
    fn from(missing: MissingHandler) -> Self {
        match missing {
            MissingHandler::Wait(wait) => Self::Wait(wait),
            MissingHandler::Fail => Self::Fail,
        }
    }
}

/// The handling of a job whose type has no handler in this worker.
pub(crate) fn without_handler(
    worker: &Holder,
    job: &JobView,
    wait: Unreadable,
    now: Timestamp,
) -> Resolution {
    let found = format!("worker {worker} has no handler for type {}", job.job_type);
    release(job, wait, now, ReleaseReason::NoHandler, &found, None).unwrap_or_else(|| {
        let reason = Text::new(format!("no handler for job type {:?} is registered", job.job_type));
        resolution::dead_letter(job.attempts, reason.clone(), reason, now)
    })
}

/// The release of a job that this worker cannot run; `None` if its time has ended. `found` says what the
/// worker found, and `detail` goes into it.
pub(super) fn release(
    job: &JobView,
    wait: Unreadable,
    now: Timestamp,
    reason: ReleaseReason,
    found: &str,
    detail: Option<&Text>,
) -> Option<Resolution> {
    let Unreadable::Wait(wait) = wait else { return None };
    // A time to come is of a store whose clock was ahead.
    let since = job.released.as_ref().and_then(|note| note.unfit_since).unwrap_or(now).min(now);
    let delay = delay(now.since(since), wait)?;
    let end = since.checked_add(wait).map_or_else(String::new, |end| {
        format!(", and it is dead-lettered at {end} if no other worker can run it")
    });
    let detail = detail.map_or_else(String::new, |detail| format!(": {detail}"));
    let note = ReleaseNote::new(reason, format!("{found}{end}{detail}")).unfit_since(Some(since));
    Some(resolution::release_noted(Some(now.saturating_add(delay)), Started::No, note))
}

/// After which delay a job is tried again that no worker could run for this long; `None` if its time is
/// over.
fn delay(waited: Duration, wait: Duration) -> Option<Duration> {
    let rest = wait.checked_sub(waited).filter(|rest| !rest.is_zero())?;
    Some((waited / 10).clamp(SHORTEST_DELAY, LONGEST_DELAY).min(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delays_grow_and_add_up_to_the_wait() {
        let (mut waited, mut delays) = (Duration::ZERO, Vec::new());
        while let Some(delay) = delay(waited, WAIT) {
            delays.push(delay.as_millis());
            waited += delay;
        }
        assert_eq!(waited, WAIT);
        assert_eq!(delays[..13], [[1_000; 11].as_slice(), &[1_100, 1_210]].concat());
        assert!(delays.len() < 60, "{delays:?}");
    }

    #[test]
    fn no_delay_is_zero_and_none_ends_a_wait_for_ever() {
        let moment = Duration::from_micros(1);
        assert_eq!(delay(Duration::ZERO, moment), Some(moment));
        assert_eq!(delay(moment, moment), None);
        assert_eq!(delay(Duration::ZERO, Duration::ZERO), None);
        let age = Timestamp::MAX.since(Timestamp::EPOCH);
        assert_eq!(delay(age, Duration::MAX), Some(LONGEST_DELAY));
    }
}
