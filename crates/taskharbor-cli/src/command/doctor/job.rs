//! Whether jobs can run, and what became of them lately.

use std::collections::BTreeMap;

use taskharbor::{Admin, Driver, Filter, JobSummary, List, State, Timestamp};
use taskharbor_core::{
    admin::{Diagnosis, ListLanes, ListSettings, Setting, SettingKind},
    driver::{DueSchedules, Limits},
};

use super::{DAY, Patient};
use crate::{
    failure::Outcome,
    screen::{counted, span},
};

/// How many jobs are looked at, and how many records for that.
const LOOKED_AT: usize = 500;
const SCANNED: usize = 5_000;
/// A schedule that is later than this is not fired.
const LATE: std::time::Duration = std::time::Duration::from_secs(60);

pub(super) async fn check(patient: &Patient) -> Outcome<Vec<Diagnosis>> {
    let mut found = unhandled(patient).await?;
    found.push(schedules(patient).await?);
    found.extend(lanes(patient).await?);
    found.extend(dlq(patient).await?);
    Ok(found)
}

async fn newest(patient: &Patient, state: State) -> Outcome<Vec<JobSummary>> {
    let list = List::new(Filter::all().state(state), LOOKED_AT, patient.now);
    Ok(patient.driver.list(list.newest_first().scan(SCANNED)).await?.items)
}

/// The types of ready jobs for which no worker has a handler.
async fn unhandled(patient: &Patient) -> Outcome<Vec<Diagnosis>> {
    let infos: Vec<_> = patient.present().filter_map(|worker| worker.info.as_ref()).collect();
    if infos.is_empty() || infos.iter().any(|info| info.types_left_out > 0) {
        return Ok(Vec::new());
    }
    let mut missing: BTreeMap<String, usize> = BTreeMap::new();
    for job in newest(patient, State::Ready).await? {
        let name = job.job_type.as_str();
        if !infos.iter().any(|info| info.types.iter().any(|it| it == name)) {
            *missing.entry(name.to_owned()).or_default() += 1;
        }
    }
    let tell = |(name, count): (String, usize)| {
        Diagnosis::problem(
            "unhandled type",
            format!(
                "no worker has a handler for {name}, and {} of it are ready",
                counted(count, "new job")
            ),
            "deploy a worker that has one: a worker without it dead-letters such jobs 10 minutes after it first met them, by default",
        )
    };
    Ok(missing.into_iter().map(tell).collect())
}

async fn schedules(patient: &Patient) -> Outcome<Diagnosis> {
    let before = patient.now.saturating_sub(LATE);
    let late = patient.driver.due_schedules(DueSchedules::new(Limits::MAX_PAGE, before)).await?;
    let Some(first) = late.schedules.first() else {
        return Ok(Diagnosis::fine("schedules", "none is late"));
    };
    let slot = first.next_slot.unwrap_or(patient.now);
    let found = format!(
        "{} late, {} the most, by {}",
        counted(late.schedules.len(), "schedule"),
        first.name,
        span(patient.now.since(slot))
    );
    let advice = "any worker of the store fires them: start one, and see what it logs";
    Ok(Diagnosis::problem("schedules", found, advice))
}

/// Lanes whose limit holds jobs back.
async fn lanes(patient: &Patient) -> Outcome<Vec<Diagnosis>> {
    let mut found = Vec::new();
    let settings = ListSettings::new(Limits::MAX_PAGE).kind(SettingKind::Limits);
    for setting in patient.driver.settings(settings).await?.items {
        let Setting::Limits(record) = setting else { continue };
        let request = ListLanes::new(record.queue.clone(), Limits::MAX_PAGE, patient.now);
        let lanes = patient.driver.lanes(request).await?.items;
        let held: Vec<_> =
            lanes.iter().filter(|it| it.ready > 0 && it.held_back.is_some()).collect();
        if held.is_empty() {
            continue;
        }
        let jobs: usize = held.iter().map(|lane| lane.ready).sum();
        let text = format!(
            "queue {}: {} held back in {}",
            record.queue,
            counted(jobs, "ready job"),
            counted(held.len(), "lane")
        );
        found.push(Diagnosis::fine("limits", text));
    }
    Ok(found)
}

async fn dlq(patient: &Patient) -> Outcome<Vec<Diagnosis>> {
    let total: usize = patient.queues.iter().map(|queue| queue.states.dlq).sum();
    let since = patient.now.saturating_sub(DAY);
    let is_new = |job: &&JobSummary| job.finished_at.is_some_and(|at: Timestamp| at >= since);
    let all = newest(patient, State::Dlq).await?;
    let new: Vec<_> = all.iter().filter(is_new).collect();
    let crashed = new.iter().filter(|job| {
        job.reason.as_ref().is_some_and(|reason| reason.as_str().starts_with("its lease ran out"))
    });
    let crashed = crashed.count();
    let mut found = Vec::new();
    if crashed > 0 {
        found.push(Diagnosis::problem(
            "crashes",
            format!("{} died with their workers in the last day", counted(crashed, "job")),
            "something kills or hangs workers: look for memory limits and for handlers that block \
             (taskharbor dlq list)",
        ));
    }
    found.push(if new.is_empty() {
        Diagnosis::fine("DLQ", format!("{}, none of the last day", counted(total, "job")))
    } else {
        Diagnosis::warning(
            "DLQ",
            format!("{}, {} of them from the last day", counted(total, "job"), new.len()),
            "see why: taskharbor dlq list, then requeue or purge them",
        )
    });
    Ok(found)
}
