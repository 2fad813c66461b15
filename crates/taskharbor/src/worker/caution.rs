//! Care for jobs whose lease ran out before: one of them may have killed its worker.
//!
//! When a process dies, the store charges an expiration to every job that it held, also to those
//! beside the one that killed it and to those that had not started. These rules keep the others away
//! from the crash limit:
//!
//! 1. A job whose lease ran out never waits for a slot. So only a job without an expiration can be
//!    charged one that never started, and only once.
//! 2. While a job runs whose lease ran out, and for a moment after, no job waits for a slot.
//! 3. A job whose lease ran out twice in a row runs in quarantine: it starts when the worker holds no
//!    other such job, and while it runs the worker reserves nothing. Others that came with it are
//!    released first, and it starts once the store has recorded that.
//!
//! So one job that kills its process can charge any other at most twice: once while that has no
//! expiration, and once while it has one. Long jobs would keep all others from running, so the worker
//! reserves again when a job in quarantine has run for 10 s, and starts another such job when it has run
//! for a minute.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// How long a job that runs is suspected of being about to kill its worker.
pub(crate) const WATCHED: Duration = Duration::from_secs(10);
/// How long a job that runs keeps others like it away.
const APART: Duration = Duration::from_secs(60);
/// A job that is kept away comes back after this time at the earliest.
const SHORTEST_DELAY: Duration = Duration::from_millis(100);
/// Jobs whose leases ran out come together: how long after the last one to reserve nothing ahead.
const QUIET: Duration = Duration::from_secs(1);

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
    is_quarantined: bool,
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
        is_suspect(expirations, self.crash_limit)
    }

    /// Whether a job runs in quarantine: from the second expiration on, or the first if a second would
    /// be the last.
    pub(super) const fn needs_quarantine(&self, expirations: u32) -> bool {
        needs_quarantine(expirations, self.crash_limit)
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

    /// Until when nothing is reserved, unless the job for which that is so ends before.
    pub(super) fn quarantine_ends_at(&self, now: Instant) -> Option<Instant> {
        let state = self.state();
        let quarantined = state.running.iter().filter(|suspect| suspect.is_quarantined);
        quarantined.map(|suspect| suspect.since + WATCHED).filter(|end| now < *end).max()
    }

    /// How long a job that needs a quarantine stays away, if one like it runs: as long again as that
    /// has been running, so the number of times is bounded.
    pub(super) fn keeps_away_for(&self, now: Instant) -> Option<Duration> {
        let state = self.state();
        let quarantined = state.running.iter().filter(|suspect| suspect.is_quarantined);
        let ran = now.saturating_duration_since(quarantined.map(|suspect| suspect.since).max()?);
        (ran < APART).then(|| ran.max(SHORTEST_DELAY).min(APART - ran))
    }

    /// A suspect starts; it is named, so that its end can be told.
    pub(super) fn begin(&self, expirations: u32, now: Instant) -> u64 {
        let is_quarantined = self.needs_quarantine(expirations);
        let mut state = self.state();
        let name = state.next;
        state.next += 1;
        state.running.push(Suspect { name, since: now, is_quarantined });
        name
    }

    pub(super) fn end(&self, name: u64) {
        self.state().running.retain(|suspect| suspect.name != name);
    }
}

const fn is_suspect(expirations: u32, crash_limit: u32) -> bool {
    expirations > 0 && expirations < crash_limit
}

/// Whether a job whose lease ran out so often runs in quarantine.
pub(crate) const fn needs_quarantine(expirations: u32, crash_limit: u32) -> bool {
    is_suspect(expirations, crash_limit) && (expirations >= 2 || expirations + 1 >= crash_limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn nothing_is_reserved_while_a_job_runs_whose_lease_ran_out_twice() {
        let (caution, start) = (Caution::new(5), Instant::now());
        caution.begin(1, start);
        assert_eq!(caution.quarantine_ends_at(start), None);
        let suspect = caution.begin(2, start);
        assert_eq!(caution.quarantine_ends_at(start), Some(start + WATCHED));
        caution.end(suspect);
        assert_eq!(caution.quarantine_ends_at(start), None);
    }

    #[test]
    fn a_job_that_has_run_for_a_while_is_not_suspected_any_more() {
        let (caution, start) = (Caution::new(5), Instant::now());
        caution.begin(2, start);
        let (before, after) = (start + WATCHED - MS, start + WATCHED);
        assert!(caution.is_careful(before) && !caution.is_careful(after));
        assert!(caution.quarantine_ends_at(before).is_some());
        assert_eq!(caution.quarantine_ends_at(after), None);
        // It keeps its like away for longer.
        let away_at = |millis| caution.keeps_away_for(start + millis * MS);
        assert_eq!(away_at(1), Some(100 * MS));
        assert_eq!(away_at(10_000), Some(10_000 * MS));
        assert_eq!(away_at(59_000), Some(1_000 * MS));
        assert_eq!(away_at(60_000), None);
    }

    #[test]
    fn the_last_run_before_the_crash_limit_is_in_quarantine_for_every_limit() {
        for (limit, first) in [(2, 1), (3, 2), (5, 2), (u32::MAX, 2)] {
            let caution = Caution::new(limit);
            let quarantined = (0..limit.min(10)).find(|it| caution.needs_quarantine(*it));
            assert_eq!(quarantined, Some(first), "{limit}");
            assert!(caution.needs_quarantine(limit - 1), "{limit}");
            // It is dead-lettered, and does not run.
            assert!(!caution.is_suspect(limit) && !caution.needs_quarantine(limit), "{limit}");
        }
        assert!(!Caution::new(1).is_suspect(1));
    }

    #[test]
    fn no_job_waits_for_a_second_after_the_last_suspect() {
        let (caution, start) = (Caution::new(5), Instant::now());
        assert!(!caution.is_careful(start));
        caution.see(start);
        let suspect = caution.begin(1, start);
        caution.end(suspect);
        assert!(caution.is_careful(start + 999 * MS));
        assert!(!caution.is_careful(start + 1_000 * MS));
    }
}
