//! Jobs that this worker cannot run, and another one perhaps can: of a type without a handler, in an
//! unknown codec, or with a payload that does not decode.
//!
//! In a rolling deploy new producers meet old workers. So such a job is released for a while before it is
//! dead-lettered. The time counts from when this worker first met the job. That is kept in memory, so
//! the store needs no column for it, and each worker of a fleet counts for itself.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use taskharbor_core::{JobId, Timestamp};

/// How long such jobs are released by default.
const WAIT: Duration = Duration::from_secs(600);
/// The delays grow from the first of these to the second.
const SHORTEST_DELAY: Duration = Duration::from_secs(1);
const LONGEST_DELAY: Duration = Duration::from_secs(60);
/// How many jobs are remembered. The others are released until there is room for them.
const REMEMBERED: usize = 10_000;

/// How a worker treats a job for which it has no handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingHandler {
    /// The job is released again and again, after delays that grow from 1 s to 60 s, and nothing is
    /// charged: a worker of another version may have the handler. It is dead-lettered when this long
    /// has passed since this worker first met it. [`Duration::MAX`] releases it for ever.
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

/// The jobs that this worker cannot run, and when it first met each.
#[derive(Debug, Default)]
pub(super) struct Unfit {
    met: Mutex<HashMap<JobId, Timestamp>>,
}

impl Unfit {
    /// After which delay the job is tried again; `None` if its time is over.
    pub(super) fn delay(&self, id: &JobId, wait: Unreadable, now: Timestamp) -> Option<Duration> {
        let Unreadable::Wait(wait) = wait else { return None };
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        if met.len() >= REMEMBERED {
            // Another worker has run them, or they would have come back.
            met.retain(|_, first| now.since(*first) < wait.saturating_mul(2));
        }
        if met.len() >= REMEMBERED && !met.contains_key(id) {
            return Some(LONGEST_DELAY);
        }
        let waited = now.since(*met.entry(id.clone()).or_insert(now));
        let Some(rest) = wait.checked_sub(waited).filter(|rest| !rest.is_zero()) else {
            met.remove(id);
            return None;
        };
        Some((waited / 2).clamp(SHORTEST_DELAY, LONGEST_DELAY).min(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: usize) -> JobId {
        JobId::new(n.to_string()).unwrap()
    }

    #[test]
    fn the_delays_grow_and_add_up_to_the_wait() {
        let (unfit, mut now, mut delays) = (Unfit::default(), Timestamp::EPOCH, Vec::new());
        while let Some(delay) = unfit.delay(&id(0), Unreadable::default(), now) {
            delays.push(delay.as_millis());
            now = now.saturating_add(delay);
        }
        assert_eq!(now.since(Timestamp::EPOCH), WAIT);
        assert_eq!(delays[..5], [1_000, 1_000, 1_000, 1_500, 2_250]);
        assert!(delays.len() < 30, "{delays:?}");
        // Forgotten: a job that is requeued has all its time again.
        assert!(unfit.delay(&id(0), Unreadable::default(), now).is_some());
    }

    #[test]
    fn no_delay_is_zero_and_none_ends_a_wait_for_ever() {
        let unfit = Unfit::default();
        let wait = Unreadable::Wait(Duration::from_micros(1));
        assert_eq!(unfit.delay(&id(0), wait, Timestamp::EPOCH), Some(Duration::from_micros(1)));
        for now in [Timestamp::EPOCH, Timestamp::MAX] {
            assert!(unfit.delay(&id(1), Unreadable::Wait(Duration::MAX), now).is_some());
        }
        for wait in [Unreadable::Fail, Unreadable::Wait(Duration::ZERO)] {
            assert_eq!(unfit.delay(&id(2), wait, Timestamp::EPOCH), None);
        }
    }

    #[test]
    fn no_more_jobs_are_remembered_than_there_is_room_for() {
        let (unfit, wait) = (Unfit::default(), Unreadable::default());
        for n in 0..REMEMBERED + 5 {
            let expected = if n < REMEMBERED { SHORTEST_DELAY } else { LONGEST_DELAY };
            assert_eq!(unfit.delay(&id(n), wait, Timestamp::EPOCH), Some(expected));
        }
        assert_eq!(unfit.met.lock().unwrap().len(), REMEMBERED);
        let later = Timestamp::EPOCH.saturating_add(2 * WAIT);
        assert_eq!(unfit.delay(&id(REMEMBERED), wait, later), Some(SHORTEST_DELAY));
        assert_eq!(unfit.met.lock().unwrap().len(), 1);
    }
}
