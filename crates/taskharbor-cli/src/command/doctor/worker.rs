//! The check that workers run, and serve the queues that have work.

use std::collections::BTreeSet;

use taskharbor::{QueueCounts, WorkerInfo, WorkerStatus};
use taskharbor_core::admin::Diagnosis;

use super::{COUNTED, DAY, Patient};
use crate::screen::{capped, counted, relative, span};

pub(super) fn check(patient: &Patient) -> Vec<Diagnosis> {
    let mut found = Vec::new();
    if patient.workers.is_some() {
        found.push(present(patient));
        found.extend(overdue(patient));
        found.extend(stuck(patient));
        found.extend(names(patient));
        found.push(lost(patient));
    }
    let queues = || patient.queues.iter().flatten();
    let before = found.len();
    if patient.workers.is_some() {
        found.extend(queues().filter_map(|queue| unserved(patient, queue)));
    }
    found.extend(queues().filter_map(|queue| paused(patient, queue)));
    if patient.queues.is_some() && found.len() == before {
        let count = counted(queues().count(), "queue");
        found.push(Diagnosis::fine("queues", format!("{count}, none forgotten")));
    }
    found
}

fn present(patient: &Patient) -> Diagnosis {
    let count = patient.present().count();
    let queues = patient.infos().flat_map(|(_, info)| &info.queues);
    let slots: usize = queues.map(|it| it.slots).sum();
    let waiting: usize = patient.queues.iter().flatten().map(|queue| queue.states.ready).sum();
    match count {
        0 if waiting > 0 => Diagnosis::problem(
            "workers",
            format!("none has announced itself; {} ready", counted(waiting, "job")),
            "start one: taskharbor worker, or Worker::builder in your service",
        ),
        0 => Diagnosis::fine("workers", "none has announced itself, and no job is ready"),
        _ => Diagnosis::fine(
            "workers",
            format!("{} with {}", counted(count, "worker"), counted(slots, "slot")),
        ),
    }
}

fn overdue(patient: &Patient) -> Option<Diagnosis> {
    let overdue: Vec<_> = patient.workers.iter().flatten().filter(|it| it.is_overdue).collect();
    let last = overdue.iter().max_by_key(|worker| worker.seen_at)?;
    Some(Diagnosis::warning(
        "overdue workers",
        format!(
            "{} stopped announcing themselves, the last one {} ({}): dead, or unable to reach the store",
            counted(overdue.len(), "worker"),
            relative(last.seen_at, patient.now),
            last.name
        ),
        "their jobs come back when their leases end, or at once with: taskharbor workers evict NAME",
    ))
}

fn stuck(patient: &Patient) -> Vec<Diagnosis> {
    let stuck = patient.infos().filter(|(_, info)| !info.problems.is_empty());
    let tell = |(worker, info): (&WorkerStatus, &WorkerInfo)| {
        let found = format!("worker {}: {}", worker.name, info.problems.join("; "));
        Diagnosis::problem(
            "stuck worker",
            found,
            "do what the message says; restart it only if other workers are well",
        )
    };
    stuck.map(tell).collect()
}

fn names(patient: &Patient) -> Option<Diagnosis> {
    let mut seen = BTreeSet::new();
    let twice = patient.present().find(|worker| !seen.insert(&worker.name))?;
    Some(Diagnosis::warning(
        "worker names",
        format!("two workers are called {}", twice.name),
        "give each a name of its own: an eviction of one ends the leases of both",
    ))
}

/// What workers have lost in the last hour. What was lost before is in their counts for as long as they
/// run, and is nothing to be warned of.
fn lost(patient: &Patient) -> Diagnosis {
    let queues = || patient.infos().flat_map(|(_, info)| &info.queues);
    let of_all: u64 = queues().map(|it| it.lost).sum();
    let lately: u64 = patient.infos().map(|(_, info)| info.lost_in_hour).sum();
    let found = format!("{lately} were lost in the last hour, {of_all} since the workers started");
    if lately == 0 {
        return Diagnosis::fine("leases", found);
    }
    Diagnosis::warning(
        "leases lost",
        found,
        "handlers that block their runtime, a suspended process or a store that was away: see the logs",
    )
}

/// A queue that has ready jobs and no worker.
fn unserved(patient: &Patient, queue: &QueueCounts) -> Option<Diagnosis> {
    let name = queue.queue.as_str();
    let knows_all =
        patient.present().all(|it| it.info.as_ref().is_some_and(|info| info.queues_left_out == 0));
    // A worker that does not announce itself may serve it.
    let is_worked_on = queue.states.inflight > 0;
    let is_served = patient.infos().any(|(_, info)| info.queues.iter().any(|it| it.name == name));
    // Without any worker, one line says so.
    let has_workers = patient.infos().next().is_some();
    if queue.states.ready == 0
        || is_served
        || is_worked_on
        || !knows_all
        || !has_workers
        || queue.paused_since.is_some()
    {
        return None;
    }
    let ready = capped(queue.states.ready, Some(COUNTED));
    Some(Diagnosis::problem(
        "unserved queue",
        format!("queue {name} has {ready} ready jobs, and no worker serves it"),
        format!("is the name right? else start a worker: taskharbor worker --queue {name}"),
    ))
}

fn paused(patient: &Patient, queue: &QueueCounts) -> Option<Diagnosis> {
    let paused_for = patient.now.since(queue.paused_since?);
    (paused_for > DAY).then(|| {
        Diagnosis::warning(
            "paused queue",
            format!("queue {} has been paused for {}", queue.queue, span(paused_for)),
            format!("if that is an oversight: taskharbor queue resume {}", queue.queue),
        )
    })
}
