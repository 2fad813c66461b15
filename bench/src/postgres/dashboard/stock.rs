//! The content of the measured store beside plain jobs: flows, schedules, failures, lanes and workers.

use std::time::Duration;

use taskharbor::{AnyDriver, Client, Job, Schedule};
use taskharbor_core::{
    Driver, JobId, JobType, NewJob, QueueName, Text,
    driver::{Announce, Demand, Enqueue, Incarnation, Reserve, Settle, Settlement, Transition},
    job::{FailedAttempt, JobSet},
    name::{FlowName, Holder, LaneName},
};

use super::super::{
    Outcome,
    store::{LEASE, Store},
};

/// Flows, of this many members each.
const FLOWS: usize = 500;
const MEMBERS: usize = 20;
const SCHEDULES: usize = 300;
/// Dead-lettered jobs, and this many different errors.
const DEAD: usize = 5_000;
const ERRORS: usize = 50;
const LANES: usize = 1_000;
const WORKERS: u64 = 200;
/// Jobs of one call.
const BATCH: usize = 500;
/// The queue whose lanes are listed.
const LANE_QUEUE: &str = "lanes";

#[derive(serde::Serialize, serde::Deserialize, Job)]
#[job(type = "report:build", queue = "reports")]
struct BuildReport;

/// Stores all of it.
pub(super) async fn fill(store: &Store) -> Outcome {
    flows(store).await?;
    lanes(store).await?;
    failures(store).await?;
    workers(store).await?;
    let client = Client::new(&AnyDriver::new(store.driver.clone()));
    for number in 0..SCHEDULES {
        let schedule = Schedule::cron(format!("nightly-{number}"), "0 3 * * *").job(BuildReport);
        client.schedules().put(schedule).await?;
    }
    Ok(())
}

fn job(store: &Store, queue: &str, job_type: &str) -> Outcome<NewJob> {
    let id = JobId::generate(store.clock.now())?;
    Ok(NewJob::new(id, QueueName::new(queue)?, JobType::new(job_type)?, b"{}"))
}

async fn enqueue(store: &Store, sets: Vec<JobSet>) -> Outcome {
    for stored in store.driver.enqueue(Enqueue::new(sets, store.clock.now())).await? {
        stored.map_err(|rejected| format!("a job was rejected: {rejected}"))?;
    }
    Ok(())
}

async fn flows(store: &Store) -> Outcome {
    for number in 0..FLOWS {
        let first = job(store, "flows", "report:plan")?;
        let parts =
            (2..MEMBERS).map(|_| Ok(job(store, "flows", "report:part")?.after([first.id.clone()])));
        let parts = parts.collect::<Outcome<Vec<_>>>()?;
        let last = job(store, "flows", "report:merge")?;
        let last = last.after(parts.iter().map(|part| part.id.clone()));
        let name = FlowName::new(format!("report {number}"))?;
        let jobs = [first].into_iter().chain(parts).chain([last]).collect();
        enqueue(store, vec![JobSet::named_flow(name, jobs)]).await?;
    }
    Ok(())
}

async fn lanes(store: &Store) -> Outcome {
    for from in (0..LANES).step_by(BATCH) {
        let jobs = (from..from + BATCH).map(|number| {
            let lane = LaneName::new(format!("customer-{number}"))?;
            Ok(JobSet::from(job(store, LANE_QUEUE, "email:send")?.lane(lane)))
        });
        enqueue(store, jobs.collect::<Outcome<_>>()?).await?;
    }
    Ok(())
}

async fn failures(store: &Store) -> Outcome {
    for from in (0..DEAD).step_by(BATCH) {
        let jobs = (0..BATCH).map(|_| Ok(JobSet::from(job(store, "dead", "card:charge")?)));
        enqueue(store, jobs.collect::<Outcome<_>>()?).await?;
        let (demands, now) = (vec![Demand::new(QueueName::new("dead")?, BATCH)], store.clock.now());
        let request = Reserve::new(demands, Holder::new("bench")?, now, LEASE);
        let leased = store.driver.reserve(request).await?.jobs;
        let fail = |(number, it): (usize, taskharbor_core::driver::Leased)| {
            // Numbers do not tell errors apart, and words do.
            let cause = "x".repeat((from + number) % ERRORS + 1);
            let error = Text::new(format!("card {number} was declined: cause {cause}"));
            let failure = FailedAttempt::new(it.job.attempts + 1, error.clone(), now);
            let end = Transition::Fail { failure, reason: error };
            Settlement::new(it.job.id, it.lease.token, end)
        };
        let items = leased.into_iter().enumerate().map(fail).collect();
        for answer in store.driver.settle(Settle::new(items, now)).await? {
            answer.map_err(|refusal| format!("a failure was refused: {refusal}"))?;
        }
    }
    Ok(())
}

async fn workers(store: &Store) -> Outcome {
    let info = br#"{"library":"0.1.0","version":"1","host":"web-1","pid":1,"phase":"working","wake_ups":true,
        "types":["email:send"],"queues":[{"name":"default","slots":100,"busy":50,"started":100,"done":50}]}"#;
    for number in 0..WORKERS {
        let (holder, now) = (Holder::new(format!("worker-{number}"))?, store.clock.now());
        let incarnation = Incarnation::from_bits(number);
        let announce = Announce::new(
            holder,
            incarnation,
            (&info[..]).into(),
            Duration::from_secs(86_400),
            now,
        );
        store.driver.announce(announce).await?;
    }
    Ok(())
}
