//! The check for jobs that limits hold back, and for how long.

use taskharbor::{Admin, DriverError, Filter, List, QueueName, State};
use taskharbor_core::{
    admin::{Diagnosis, LaneStatus, LimitsRecord, ListLanes, ListSettings, Setting, SettingKind},
    driver::Limits,
};

use super::{Checked, HOUR, Patient};
use crate::{
    clean,
    screen::{counted, span},
};

/// How many pages of lanes are read of a queue.
const PAGES: usize = 10;

/// The lanes of a queue whose limits hold ready jobs back.
#[derive(Default)]
struct Held {
    lanes: usize,
    jobs: usize,
    /// The lane with the most ready jobs.
    fullest: Option<LaneStatus>,
    /// Whether there may be more.
    is_cut: bool,
}

pub(super) async fn check(patient: &Patient) -> Checked {
    let mut lines = Vec::new();
    let mut request = ListSettings::new(Limits::MAX_PAGE).kind(SettingKind::Limits);
    loop {
        let page = patient.driver.settings(request.clone()).await?;
        for setting in page.items {
            if let Setting::Limits(record) = setting {
                lines.extend(of_queue(patient, &record).await?);
            }
        }
        let Some(next) = page.next else { break };
        request = request.after(next);
    }
    if lines.is_empty() {
        lines.push(Diagnosis::fine("limits", "no ready job is held back by a limit"));
    }
    Ok(lines)
}

async fn of_queue(
    patient: &Patient,
    record: &LimitsRecord,
) -> Result<Option<Diagnosis>, DriverError> {
    let queue = &record.queue;
    let held = held(patient, queue).await?;
    let Some(fullest) = &held.fullest else { return Ok(None) };
    let lane = fullest.lane.as_ref();
    // The job that was enqueued first has waited for as long as any, or nearly.
    let mut filter = Filter::all().queue(queue.clone()).state(State::Ready);
    filter.lane = lane.cloned();
    let first = patient.driver.list(List::new(filter, 1, patient.now)).await?.items;
    let waited = first.first().map(|job| patient.now.since(job.due_at.unwrap_or(job.created_at)));
    let waited = waited.unwrap_or_default();
    let or_more = if held.is_cut { " or more" } else { "" };
    let shown = lane.map_or_else(
        || "the jobs without a lane".to_owned(),
        |lane| format!("lane {}", clean::line(lane.as_str())),
    );
    let found = format!(
        "queue {queue}: {}{or_more} held back in {}; most in {shown}, the oldest has been due for {}",
        counted(held.jobs, "ready job"),
        counted(held.lanes, "lane"),
        span(waited)
    );
    Ok(Some(if waited < HOUR {
        Diagnosis::fine("limits", found)
    } else {
        let advice = format!(
            "see what the running jobs do, then raise the limit if they are well: taskharbor queue lanes {queue}, \
             taskharbor queue limit {queue}"
        );
        Diagnosis::warning("limits", found, advice)
    }))
}

async fn held(patient: &Patient, queue: &QueueName) -> Result<Held, DriverError> {
    let mut held = Held::default();
    let mut request = ListLanes::new(queue.clone(), Limits::MAX_PAGE, patient.now);
    for _ in 0..PAGES {
        let page = patient.driver.lanes(request.clone()).await?;
        for lane in page.items.into_iter().filter(|it| it.ready > 0 && it.held_back.is_some()) {
            held.lanes += 1;
            held.jobs += lane.ready;
            if held.fullest.as_ref().is_none_or(|it| it.ready < lane.ready) {
                held.fullest = Some(lane);
            }
        }
        let Some(next) = page.next else { return Ok(held) };
        request = request.after(next);
    }
    held.is_cut = true;
    Ok(held)
}
