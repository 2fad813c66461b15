//! The checks of recent jobs, and of schedules that should have fired.

use taskharbor::{Admin, Driver, DriverError, Filter, List, State};
use taskharbor_core::{
    admin::{Diagnosis, TimeRange},
    driver::{DueSchedules, Limits},
};

use super::{Checked, DAY, Patient};
use crate::screen::{counted, span};

/// How many pages of dead-lettered jobs are read.
const PAGES: usize = 3;
/// A schedule that is later than this is not fired.
const LATE: std::time::Duration = std::time::Duration::from_secs(60);
/// The reason of a job that was dead-lettered because of the crash limit begins so.
const CRASHED: &str = "its lease ran out";

pub(super) async fn schedules(patient: &Patient) -> Checked {
    let before = patient.now.saturating_sub(LATE);
    let late = patient.driver.due_schedules(DueSchedules::new(Limits::MAX_PAGE, before)).await?;
    let Some(first) = late.schedules.first() else {
        return Ok(vec![Diagnosis::fine("schedules", "none is late")]);
    };
    let slot = first.next_slot.unwrap_or(patient.now);
    let or_more = if late.schedules.len() < Limits::MAX_PAGE { "" } else { " or more" };
    let found = format!(
        "{}{or_more} late, {} the most, by {}",
        counted(late.schedules.len(), "schedule"),
        first.name,
        span(patient.now.since(slot))
    );
    let advice = "any worker of the store fires them: start one, and see what it logs";
    Ok(vec![Diagnosis::problem("schedules", found, advice)])
}

/// Jobs that were dead-lettered in the last day because their lease ran out again and again.
pub(super) async fn crashes(patient: &Patient) -> Checked {
    let Found { count, or_more } = dead(patient, |filter| filter.error(CRASHED)).await?;
    if count == 0 {
        return Ok(vec![Diagnosis::fine(
            "crashes",
            "no job died with its workers in the last day",
        )]);
    }
    let jobs = counted(count, "job");
    Ok(vec![Diagnosis::problem(
        "crashes",
        format!("{jobs}{or_more} died with their workers in the last day"),
        "something kills or hangs workers: look for memory limits and for handlers that block \
         (taskharbor dlq list)",
    )])
}

pub(super) async fn dlq(patient: &Patient) -> Checked {
    let Found { count, or_more } = dead(patient, |filter| filter).await?;
    let queues = patient.queues.iter().flatten();
    let total: usize = queues.map(|queue| queue.states.dlq).sum();
    let total = counted(total.max(count), "job");
    if count == 0 {
        return Ok(vec![Diagnosis::fine("DLQ", format!("{total}, none of the last day"))]);
    }
    Ok(vec![Diagnosis::warning(
        "DLQ",
        format!("{total}, {count}{or_more} of them from the last day"),
        "see why: taskharbor dlq groups, then requeue or purge them",
    )])
}

/// This many jobs.
struct Found {
    count: usize,
    /// Says so if the search stopped there.
    or_more: &'static str,
}

/// Counts the jobs that were dead-lettered in the last day.
async fn dead(
    patient: &Patient,
    narrow: impl FnOnce(Filter) -> Filter,
) -> Result<Found, DriverError> {
    let since = TimeRange::new(Some(patient.now.saturating_sub(DAY)), None);
    let filter = narrow(Filter::all().state(State::Dlq).finished(since));
    let mut request = List::new(filter, Limits::MAX_PAGE, patient.now).newest_first();
    let mut count = 0;
    for _ in 0..PAGES {
        let page = patient.driver.list(request.clone()).await?;
        count += page.items.len();
        let Some(next) = page.next else { return Ok(Found { count, or_more: "" }) };
        request = request.after(next);
    }
    Ok(Found { count, or_more: " or more" })
}
