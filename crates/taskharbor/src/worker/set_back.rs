//! The reaction of a worker to a store whose clock was set back.
//!
//! The clocks of all handles follow the store, each when it asks for the time. A worker asks every
//! second while it reserves. Two things go wrong until all have asked. A clock that is still ahead takes
//! leases for over that are not: so a worker asks for the time before it starts a job whose lease ran
//! out, and if its clock was ahead when it reserved the job, it does not start it. And jobs that were
//! stored by a clock that was ahead are due too late by as much: those are made available when they
//! would have been.

use std::{sync::Arc, time::Duration};

use taskharbor_core::{
    Admin, DriverError, State,
    admin::{Action, Filter, List, Manage, TimeRange},
};
use tokio::{task::JoinHandle, time::Instant};

use super::shared::Shared;

/// How old the last answer about the time may be when jobs are reserved.
pub(super) const CLOCK_AGE: Duration = Duration::from_secs(1);
/// How many jobs one call makes available, and how many records it looks at.
const PAGE: usize = 1_000;
const SCANNED: usize = 20_000;
/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks the store for its time beside the work of a worker.
pub(super) struct ClockWatch {
    asked: Instant,
    asking: Option<JoinHandle<()>>,
}

impl ClockWatch {
    pub(super) fn new() -> Self {
        Self { asked: Instant::now(), asking: None }
    }

    /// Asks if the last answer is old, without waiting for the next.
    pub(super) fn ask_soon(&mut self, shared: &Arc<Shared>) {
        let is_asking = self.asking.as_ref().is_some_and(|asking| !asking.is_finished());
        if shared.driver.has_own_clock() || is_asking || self.asked.elapsed() < CLOCK_AGE {
            return;
        }
        self.asked = Instant::now();
        let shared = Arc::clone(shared);
        self.asking = Some(tokio::spawn(async move {
            // Asked again a second later.
            let _ = shared.sync_clock(&shared.driver, Duration::ZERO).await;
            if shared.driver.clock_set_back().is_some() {
                // What fails is done the next time.
                let _ = tokio::time::timeout(CALL_TIMEOUT, make_available(&shared)).await;
            }
        }));
    }
}

/// Makes jobs available that were stored by a clock that was ahead, and are due by that clock.
async fn make_available(shared: &Shared) -> Result<(), DriverError> {
    let Some(by) = shared.driver.clock_set_back() else { return Ok(()) };
    let now = shared.now();
    let stored_ahead = TimeRange::new(Some(now), None);
    let filter = Filter::all().state(State::Scheduled).created(stored_ahead);
    let list = List::new(filter, PAGE, now).newest_first().scan(SCANNED);
    let due = now.saturating_add(by);
    let jobs = shared.driver.list(list).await?.items.into_iter();
    let jobs = jobs.filter(|job| job.due_at.is_none_or(|due_at| due_at <= due));
    let ids: Vec<_> = jobs.map(|job| job.id).collect();
    if !ids.is_empty() {
        shared.driver.manage(Manage::new(ids, Action::RunNow, now)).await?;
    }
    Ok(())
}
