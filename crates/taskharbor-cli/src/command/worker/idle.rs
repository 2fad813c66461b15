//! `--until-idle`: when a worker has nothing left to do.

use std::time::Duration;

use taskharbor::{Admin, AnyDriver, Driver, DriverError, Overlap, ScheduleInfo, ScheduleRecord};
use taskharbor_core::{admin::Counts, driver::DueSchedules};
use tokio::time::{MissedTickBehavior, interval};

use super::status::Status;
use crate::{failure::Outcome, screen::counted};

/// Time between two looks at what is left.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// After this many looks the worker says what it waits for.
const TOLD_AFTER: u32 = 50;
/// Where counting the jobs that are left stops, and how many due schedules are looked at.
const COUNTED: usize = 1_000;

/// What a worker still has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Left {
    /// Schedules that are due.
    schedules: usize,
    /// Jobs that are ready, running or scheduled.
    jobs: usize,
}

/// Waits until no schedule is left to fire and no job of these queues is left to run.
pub(super) async fn until_idle(
    driver: &AnyDriver,
    queues: &[(String, Option<usize>)],
    status: &Status,
) -> Outcome {
    let mut busy_looks = 0;
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        if status.running() > 0 {
            continue;
        }
        let left = match left(driver, queues).await {
            Ok(left) => left,
            // A store without a schema will not answer later either.
            Err(error @ DriverError::Backend(_)) => return Err(error.into()),
            // A store that is unavailable for a moment is no reason to end.
            Err(_) => continue,
        };
        if left == Left::default() {
            return Ok(());
        }
        busy_looks += 1;
        if busy_looks == TOLD_AFTER {
            status.say("waiting", &left.to_string());
        }
    }
}

/// Schedules first: a slot that is fired between the two questions has its job counted.
async fn left(driver: &AnyDriver, queues: &[(String, Option<usize>)]) -> Result<Left, DriverError> {
    let mut left = Left::default();
    let now = driver.now().await?;
    for record in driver.due_schedules(DueSchedules::new(COUNTED, now)).await?.schedules {
        left.schedules += usize::from(can_be_fired(driver, record).await?);
    }
    let counts = driver.counts(Counts::new(driver.now().await?).at_most(COUNTED)).await?;
    let served = counts.iter().filter(|it| {
        // No job of a paused queue will run.
        it.paused_since.is_none() && queues.iter().any(|(name, _)| *name == it.queue.as_str())
    });
    left.jobs = served.map(|it| it.states.ready + it.states.scheduled + it.states.inflight).sum();
    Ok(left)
}

/// Whether this worker fires a schedule that is due. It does not if only a newer worker can read the
/// schedule, or if the slot waits for an earlier job, which counts by itself.
async fn can_be_fired(driver: &AnyDriver, record: ScheduleRecord) -> Result<bool, DriverError> {
    let ScheduleInfo { record, details, .. } = record.into();
    let Ok(details) = details else { return Ok(false) };
    let Some(last) = record.firings.last().filter(|_| details.overlap == Overlap::Queue) else {
        return Ok(true);
    };
    let earlier = driver.inspect(last.job.id().clone(), driver.now().await?).await?;
    Ok(earlier.is_none_or(|job| job.state.is_terminal()))
}

impl std::fmt::Display for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.jobs == 0 {
            return write!(f, "waiting for {} to be fired", counted(self.schedules, "schedule"));
        }
        let or_more = if self.jobs >= COUNTED { " or more" } else { "" };
        write!(
            f,
            "waiting for {}{or_more}: scheduled, held back by a limit, held by other workers, or of a type without a handler here",
            counted(self.jobs, "job")
        )
    }
}

#[cfg(test)]
mod tests;
