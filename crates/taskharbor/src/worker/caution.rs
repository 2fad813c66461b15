//! Care for jobs whose lease ran out before: one of them may have killed its worker.
//!
//! When a process dies, the store charges an expiration to every job that it held, also to those
//! beside the one that killed it and to those that had not started. Three rules keep these others away
//! from the crash limit:
//!
//! 1. A job whose lease ran out never waits for a slot. So only a job without an expiration can be
//!    charged one that never started, and only once.
//! 2. While such a job runs, and for a moment after, no job waits for a slot.
//! 3. Of the jobs whose lease ran out twice in a row, one runs at a time; the others are given back.
//!
//! So one job that kills its process can charge any other at most twice: once while that has no
//! expiration, and once while it has one. All of this ends for a job that has run for a minute, because
//! long jobs would keep each other from running.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// How long a job that runs is suspected of being about to kill its worker.
const WATCHED: Duration = Duration::from_secs(60);
/// Jobs whose leases ran out come together: how long after the last one to reserve nothing ahead.
const QUIET: Duration = Duration::from_secs(1);
/// A job that was kept apart comes back after this time at the earliest.
const SHORTEST_DELAY: Duration = Duration::from_millis(100);

/// The jobs whose lease ran out before, as far as a worker runs them.
#[derive(Debug)]
pub(super) struct Caution {
    crash_limit: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: Vec<Suspect>,
    last_seen: Option<Instant>,
    /// What the next one is called.
    next: u64,
}

#[derive(Debug)]
struct Suspect {
    name: u64,
    since: Instant,
    is_alone: bool,
}

impl Caution {
    pub(super) fn new(crash_limit: u32) -> Self {
        Self { crash_limit, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a job that runs may kill its worker. One that has reached the crash limit does not run.
    pub(super) const fn is_suspect(&self, expirations: u32) -> bool {
        expirations > 0 && expirations < self.crash_limit
    }

    /// Whether it runs without others like it: from the second expiration on, or the first if a
    /// second would be the last.
    const fn is_alone(&self, expirations: u32) -> bool {
        expirations >= 2 || expirations + 1 >= self.crash_limit
    }

    /// A suspect has arrived.
    pub(super) fn see(&self, now: Instant) {
        self.state().last_seen = Some(now);
    }

    /// Whether no job may wait for a slot.
    pub(super) fn is_careful(&self, now: Instant) -> bool {
        let state = self.state();
        state.last_seen.is_some_and(|seen| now < seen + QUIET)
            || state.running.iter().any(|suspect| now < suspect.since + WATCHED)
    }

    /// Lets a suspect run, and names it; or says how long it should stay away.
    pub(super) fn begin(&self, expirations: u32, now: Instant) -> Result<u64, Duration> {
        let is_alone = self.is_alone(expirations);
        let mut state = self.state();
        let in_the_way = |it: &&Suspect| it.is_alone && now < it.since + WATCHED;
        if is_alone && let Some(other) = state.running.iter().find(in_the_way) {
            // As long again as the other has been running, so the number of times is bounded.
            let ran = now.saturating_duration_since(other.since);
            return Err(ran.max(SHORTEST_DELAY).min(WATCHED.saturating_sub(ran)));
        }
        let name = state.next;
        state.next += 1;
        state.running.push(Suspect { name, since: now, is_alone });
        Ok(name)
    }

    pub(super) fn end(&self, name: u64) {
        self.state().running.retain(|suspect| suspect.name != name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn of_jobs_whose_lease_ran_out_twice_one_runs_at_a_time() {
        let (caution, start) = (Caution::new(5), Instant::now());
        let first = caution.begin(2, start).unwrap();
        assert_eq!(caution.begin(2, start), Err(100 * MS));
        assert_eq!(caution.begin(4, start + 300 * MS), Err(300 * MS));
        assert!(caution.begin(1, start).is_ok());
        caution.end(first);
        assert!(caution.begin(3, start + 301 * MS).is_ok());
    }

    #[test]
    fn a_job_that_has_run_for_a_minute_keeps_no_other_away() {
        let (caution, start) = (Caution::new(5), Instant::now());
        caution.begin(2, start).unwrap();
        assert_eq!(caution.begin(2, start + 50_000 * MS), Err(10_000 * MS));
        assert!(caution.is_careful(start + 59_999 * MS));
        assert!(!caution.is_careful(start + 60_000 * MS));
        assert!(caution.begin(2, start + 60_000 * MS).is_ok());
    }

    #[test]
    fn the_last_run_before_the_crash_limit_is_alone_whatever_the_limit() {
        let start = Instant::now();
        for (limit, first_alone) in [(2, 1), (3, 2), (5, 2), (u32::MAX, 2)] {
            let caution = Caution::new(limit);
            let alone = (1..limit.min(10)).find(|it| caution.is_alone(*it));
            assert_eq!(alone, Some(first_alone), "{limit}");
            assert!(caution.is_suspect(1) && !caution.is_suspect(0) && !caution.is_suspect(limit));
            caution.begin(first_alone, start).unwrap();
            assert!(caution.begin(first_alone, start).is_err());
        }
        assert!(!Caution::new(1).is_suspect(1));
    }

    #[test]
    fn no_job_waits_for_a_second_after_the_last_suspect() {
        let (caution, start) = (Caution::new(5), Instant::now());
        assert!(!caution.is_careful(start));
        caution.see(start);
        let suspect = caution.begin(1, start).unwrap();
        caution.end(suspect);
        assert!(caution.is_careful(start + 999 * MS));
        assert!(!caution.is_careful(start + 1_000 * MS));
    }
}
