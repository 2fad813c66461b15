//! The check that a worker has a handler for each type of job that waits.

use std::collections::{BTreeMap, BTreeSet};

use taskharbor::{Admin, DriverError, Filter, JobSummary, List, QueueCounts, State};
use taskharbor_core::{admin::Diagnosis, driver::Limits};

use super::{Checked, Patient};
use crate::screen::counted;

/// How many pages of a queue are read, from each end.
const PAGES: usize = 2;
/// How many pages are read of all queues.
const PAGES_OF_ALL: usize = 40;
/// The number of types that are reported.
const TOLD: usize = 10;

/// Which ready jobs no worker of their queue has a handler for. The oldest and the newest 2,000 of a queue
/// are looked at. Another check reports queues that no worker serves.
pub(super) async fn check(patient: &Patient) -> Checked {
    let (Some(queues), Some(_)) = (&patient.queues, &patient.workers) else {
        return Ok(Vec::new());
    };
    let (mut missing, mut looked_at, mut pages) = (BTreeMap::new(), 0, 0);
    for queue in queues.iter().filter(|queue| queue.states.ready > 0) {
        let Some(known) = known_types(patient, queue) else { continue };
        if pages >= PAGES_OF_ALL {
            break;
        }
        let jobs = ends(patient, queue, &mut pages).await?;
        looked_at += jobs.len();
        for job_type in jobs.into_values().filter(|it| !known.contains(it.as_str())) {
            *missing.entry((queue.queue.clone(), job_type)).or_insert(0_usize) += 1;
        }
    }
    if missing.is_empty() {
        let found = match looked_at {
            0 => "no job is ready in a queue that workers serve".to_owned(),
            _ => format!("workers have handlers for {}", counted(looked_at, "ready job")),
        };
        return Ok(vec![Diagnosis::fine("types", found)]);
    }
    let advice = "deploy a worker that has one: a worker without it dead-letters such jobs 10 minutes after it \
                  first met them, by default";
    let count = missing.len();
    let tell = |((queue, name), jobs): (_, usize)| {
        let jobs = counted(jobs, "ready job");
        let found = format!(
            "no worker of queue {queue} has a handler for {name}, the type of {jobs} or more"
        );
        Diagnosis::problem("unhandled type", found, advice)
    };
    let mut lines: Vec<_> = missing.into_iter().take(TOLD).map(tell).collect();
    if count > TOLD {
        let found = format!("{} more without a handler", counted(count - TOLD, "type"));
        lines.push(Diagnosis::problem("unhandled type", found, advice));
    }
    Ok(lines)
}

/// The types that the workers of a queue have handlers for; `None` if none serves it, or not all are known.
fn known_types<'a>(patient: &'a Patient, queue: &QueueCounts) -> Option<BTreeSet<&'a str>> {
    let name = queue.queue.as_str();
    if patient.present().any(|worker| worker.info.is_none()) {
        return None;
    }
    let infos = || patient.infos().map(|(_, info)| info);
    let serves = |info: &&taskharbor::WorkerInfo| info.queues.iter().any(|it| it.name == name);
    if infos().any(|info| info.queues_left_out > 0)
        || infos().filter(serves).any(|info| info.types_left_out > 0)
        || !infos().any(|info| serves(&info))
    {
        return None;
    }
    Some(infos().filter(serves).flat_map(|info| &info.types).map(String::as_str).collect())
}

/// The types of the oldest and the newest ready jobs of a queue, by job.
async fn ends(
    patient: &Patient,
    queue: &QueueCounts,
    pages: &mut usize,
) -> Result<BTreeMap<String, String>, DriverError> {
    let mut types = BTreeMap::new();
    let filter = Filter::all().queue(queue.queue.clone()).state(State::Ready);
    let oldest = List::new(filter, Limits::MAX_PAGE, patient.now);
    for first in [oldest.clone(), oldest.newest_first()] {
        let mut request = first;
        for _ in 0..PAGES {
            *pages += 1;
            let page = patient.driver.list(request.clone()).await?;
            let of_job = |job: JobSummary| (job.id.to_string(), job.job_type.to_string());
            types.extend(page.items.into_iter().map(of_job));
            // What lies beyond is asked for from the other end.
            let Some(next) = page.next else { return Ok(types) };
            request = request.after(next);
        }
    }
    Ok(types)
}
