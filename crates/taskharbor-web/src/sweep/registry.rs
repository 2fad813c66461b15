//! [`Sweeps`]: the sweeps of one store, running ones and the last that have ended.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use schemars::JsonSchema;
use serde::Serialize;
use taskharbor::Timestamp;
use tokio::sync::watch;

use super::wanted::{SweepAction, Wanted};
use crate::{filter::JobFilter, problem::Problem};

/// How many sweeps are kept.
pub(super) const KEPT: usize = 100;
/// How many sweeps run at once.
const MAX_RUNNING: usize = 4;

/// One sweep, as it is told.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Sweep {
    /// Identifies it.
    pub(super) id: String,
    /// What it does.
    action: SweepAction,
    /// To which jobs.
    filter: Shown,
    /// Whether it runs, and how it ended.
    state: SweepState,
    /// How many jobs it is for, as the preview counted them: this many or more, if there are 20,000.
    count: usize,
    /// To how many jobs it was done.
    done: usize,
    /// How many jobs the store refused: they have changed, or their state does not allow it.
    refused: usize,
    /// Why it ended early, or what it waits for.
    error: Option<&'static str>,
    /// The name of the caller that started it.
    who: String,
    /// When it started.
    started_at: Timestamp,
    /// When it ended; null also if the store could not tell its time then.
    finished_at: Option<Timestamp>,
}

/// The filter of a sweep.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "SweepFilter")]
struct Shown {
    #[serde(flatten)]
    filter: JobFilter,
    /// With an error of this fingerprint.
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<String>,
}

/// Whether a sweep runs, and how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum SweepState {
    /// It runs.
    Running,
    /// It was asked to stop, and finishes the jobs it is working on.
    Stopping,
    /// It was stopped.
    Stopped,
    /// It has seen all jobs, or as many as it may.
    Done,
    /// It was given up: the store failed.
    Failed,
}

impl Sweep {
    /// A sweep that begins.
    pub(super) fn new(
        id: String,
        wanted: &Wanted,
        count: usize,
        who: String,
        started_at: Timestamp,
    ) -> Self {
        let (filter, fingerprint) = (wanted.filter.clone(), wanted.fingerprint.clone());
        Self {
            id,
            action: wanted.action,
            filter: Shown { filter, fingerprint },
            state: SweepState::Running,
            count,
            done: 0,
            refused: 0,
            error: None,
            who,
            started_at,
            finished_at: None,
        }
    }

    fn is_running(&self) -> bool {
        matches!(self.state, SweepState::Running | SweepState::Stopping)
    }

    /// Says how far it is.
    pub(super) fn progress(&mut self, done: usize, refused: usize) {
        (self.done, self.refused) = (done, refused);
        if self.state == SweepState::Running {
            self.error = None;
        }
    }

    /// Says what it waits for.
    pub(super) fn waits(&mut self, error: &'static str) {
        if self.state == SweepState::Running {
            self.error = Some(error);
        }
    }

    /// Says how it ended. What it was stopped for stays.
    pub(super) fn end(
        &mut self,
        state: SweepState,
        error: Option<&'static str>,
        at: Option<Timestamp>,
    ) {
        (self.state, self.finished_at) = (state, at);
        if state != SweepState::Stopped {
            self.error = error;
        }
    }
}

/// The answer to a request to start a sweep.
pub(super) enum Started {
    /// It starts, and stops when this becomes true.
    New(Sweep, watch::Receiver<bool>),
    /// It was started before, with the same digest.
    Existing(Sweep),
}

/// The sweeps of one store.
pub(crate) struct Sweeps {
    /// A number that grows with every change that is told.
    news: watch::Sender<u64>,
    /// The last one first.
    all: Mutex<VecDeque<Entry>>,
}

struct Entry {
    sweep: Sweep,
    digest: String,
    /// The number of the last change that was told.
    revision: u64,
    stop: watch::Sender<bool>,
}

impl Default for Sweeps {
    fn default() -> Self {
        Self { news: watch::Sender::new(0), all: Mutex::default() }
    }
}

impl Sweeps {
    /// Notices changes.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// The number of changes so far.
    pub(crate) fn revision(&self) -> u64 {
        *self.news.borrow()
    }

    /// The sweeps that have changed since then; then becomes now.
    pub(crate) fn changed_since(&self, seen: &mut u64) -> Vec<Sweep> {
        let all = self.all();
        let changed = all.iter().filter(|entry| entry.revision > *seen);
        let changed = changed.map(|entry| entry.sweep.clone()).collect();
        *seen = self.revision();
        changed
    }

    /// Completes when no sweep runs.
    pub(crate) async fn idle(&self) {
        let mut news = self.news();
        while self.all().iter().any(|entry| entry.sweep.is_running()) {
            // The sender is a field, so it cannot be gone.
            let _ = news.changed().await;
        }
    }

    /// Adds a sweep that begins.
    pub(super) fn start(&self, sweep: Sweep, digest: String) -> Result<Started, Problem> {
        let mut all = self.all();
        if let Some(existing) = all.iter().find(|entry| entry.digest == digest) {
            return Ok(Started::Existing(existing.sweep.clone()));
        }
        if all.iter().filter(|entry| entry.sweep.is_running()).count() >= MAX_RUNNING {
            return Err(Problem::conflict(
                "too_many_sweeps",
                "too many sweeps are running",
                format!("{MAX_RUNNING} sweeps are running: stop one, or wait for the end of one"),
            ));
        }
        if all.len() >= KEPT
            && let Some(oldest) = all.iter().rposition(|entry| !entry.sweep.is_running())
        {
            all.remove(oldest);
        }
        let (stop, stopped) = watch::channel(false);
        let mut entry = Entry { sweep: sweep.clone(), digest, revision: 0, stop };
        self.tell(&mut entry);
        all.push_front(entry);
        Ok(Started::New(sweep, stopped))
    }

    /// Changes a sweep, and tells of it if that is due.
    pub(super) fn change(&self, id: &str, is_told: bool, change: impl FnOnce(&mut Sweep)) {
        if let Some(entry) = self.all().iter_mut().find(|entry| entry.sweep.id == id) {
            change(&mut entry.sweep);
            if is_told {
                self.tell(entry);
            }
        }
    }

    /// Asks a sweep to stop, and notes why. One that has ended stays as it is. `None` if it is not kept.
    pub(super) fn stop(&self, id: &str, reason: Option<&'static str>) -> Option<Sweep> {
        let mut all = self.all();
        let entry = all.iter_mut().find(|entry| entry.sweep.id == id)?;
        if entry.sweep.state == SweepState::Running {
            entry.sweep.state = SweepState::Stopping;
            entry.sweep.error = reason;
            entry.stop.send_replace(true);
            self.tell(entry);
        }
        Some(entry.sweep.clone())
    }

    pub(super) fn get(&self, id: &str) -> Option<Sweep> {
        self.all().iter().find(|entry| entry.sweep.id == id).map(|entry| entry.sweep.clone())
    }

    /// The last sweeps, the last one first.
    pub(super) fn last(&self, limit: usize) -> Vec<Sweep> {
        self.all().iter().take(limit).map(|entry| entry.sweep.clone()).collect()
    }

    fn tell(&self, entry: &mut Entry) {
        self.news.send_modify(|revision| {
            *revision += 1;
            entry.revision = *revision;
        });
    }

    fn all(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(sweeps: &Sweeps, id: &str) {
        let wanted: Wanted = serde_json::from_str(r#"{"action":"cancel"}"#).unwrap();
        let sweep = Sweep::new(id.to_owned(), &wanted, 1, "ada".to_owned(), Timestamp::EPOCH);
        assert!(matches!(sweeps.start(sweep, id.to_owned()), Ok(Started::New(..))));
    }

    fn changed(sweeps: &Sweeps, seen: &mut u64) -> Vec<String> {
        sweeps.changed_since(seen).into_iter().map(|sweep| sweep.id).collect()
    }

    #[test]
    fn each_listener_hears_of_the_sweeps_that_have_changed_since_it_listened() {
        let sweeps = Sweeps::default();
        let (mut early, mut late) = (sweeps.revision(), 0);
        started(&sweeps, "a");
        started(&sweeps, "b");
        assert_eq!(changed(&sweeps, &mut early), ["b", "a"]);
        sweeps.change("a", true, |sweep| sweep.progress(1, 0));
        sweeps.change("b", false, |sweep| sweep.progress(1, 0));
        assert_eq!(changed(&sweeps, &mut early), ["a"]);
        assert_eq!(changed(&sweeps, &mut early), [""; 0]);
        assert_eq!(changed(&sweeps, &mut late), ["b", "a"]);
    }

    #[test]
    fn what_a_sweep_was_stopped_for_stays() {
        let sweeps = Sweeps::default();
        started(&sweeps, "a");
        sweeps.change("a", true, |sweep| sweep.waits("the store is away"));
        sweeps.stop("a", Some("the server was shut down"));
        sweeps.change("a", true, |sweep| {
            sweep.waits("the store is away");
            sweep.progress(1, 0);
            sweep.end(SweepState::Stopped, None, None);
        });
        let sweep = sweeps.get("a").unwrap();
        assert_eq!(
            (sweep.state, sweep.error),
            (SweepState::Stopped, Some("the server was shut down"))
        );
        let again = sweeps.stop("a", Some("later")).unwrap();
        assert_eq!(again.error, sweep.error);
    }
}
