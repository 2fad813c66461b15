//! Flows on a store that misbehaves at random, with workers that come, go and die between any two
//! steps, in virtual time.
//!
//! Whatever happens, every member ends, a finalizer is done once and with the right input, and a
//! failure job runs if and only if its flow failed. `TASKHARBOR_SEED` runs one again,
//! `TASKHARBOR_SIMULATIONS` more of them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use taskharbor::{
    Admin, Context, Filter, Flow, FlowState, Handle, Handlers, Job, JobError, JobResult, List,
    State, WaitError,
};

use super::{Give, Judge, Write, gives, judge, write};
use crate::{
    faulty_store::Op,
    rig::{SECOND, WorkerRig},
    seed,
};

/// Expands into groups of groups of its numbers, this deep.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "sprout", output = i64)]
struct Sprout {
    numbers: Vec<i64>,
    depth: u32,
}

/// Adds up what it is given.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "sum", input = Vec<i64>, output = i64)]
struct Sum;

/// Produces something if it runs.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(type = "regret", output = bool)]
struct Regret;

async fn sprout(job: Sprout, cx: Context) -> JobResult<Flow<i64>> {
    tokio::time::sleep(SECOND).await;
    if cx.attempt() == 1 {
        return Err("not at once".into());
    }
    let Sprout { numbers, depth } = job;
    if depth == 0 {
        return Ok(Flow::chord(gives(numbers), Sum));
    }
    let halves = numbers.chunks(numbers.len().div_ceil(2));
    let halves = halves.map(|half| Sprout { numbers: half.to_vec(), depth: depth - 1 });
    Ok(Flow::chord(halves, Sum))
}

async fn sum(job: Sum, cx: Context) -> JobResult<i64> {
    tokio::time::sleep(5 * SECOND).await;
    Ok(cx.input(&job)?.iter().sum())
}

/// Every third number fails at first; a negative one permanently.
async fn give(job: Give, cx: Context) -> JobResult<i64> {
    tokio::time::sleep(SECOND * (job.0.unsigned_abs() as u32 % 40)).await;
    match job.0 {
        ..0 => Err(JobError::unrecoverable("negative")),
        number if number % 3 == 0 && cx.attempt() == 1 => Err("at first".into()),
        number => Ok(number),
    }
}

async fn regret(_: Regret, _: Context) -> JobResult<bool> {
    tokio::time::sleep(SECOND).await;
    Ok(true)
}

fn handlers() -> Handlers {
    Handlers::new().on(give).on(sum).on(sprout).on(write).on(judge).on(regret)
}

async fn trouble(rig: &WorkerRig, random: &mut fastrand::Rng) -> Vec<taskharbor::Running> {
    let start = |seed| {
        let worker = rig.worker(handlers()).crash_limit(u32::MAX).call_timeout(5 * SECOND);
        worker.grace(20 * SECOND).seed(seed).build().unwrap().start()
    };
    rig.store.chaos(random.u64(..), 0.15);
    let mut workers: Vec<_> = (0..3).map(|_| start(random.u64(..))).collect();
    for _ in 0..15 {
        let failing: Vec<Op> = Op::ALL.into_iter().filter(|_| random.u8(..6) == 0).collect();
        rig.store.down(&failing);
        tokio::time::sleep(Duration::from_millis(random.u64(..20_000))).await;
        rig.store.up();
        let at = random.usize(..workers.len());
        workers[at].abort();
        workers[at] = start(random.u64(..));
    }
    rig.store.calm();
    workers
}

/// How a flow ended after all its members have; and of those of this type, the states and whether they
/// produced something.
async fn ended<O>(
    rig: &WorkerRig,
    handle: &Handle<O>,
    kind: &str,
) -> (FlowState, Vec<(State, bool)>) {
    while handle.status().await.unwrap().state == FlowState::Running {
        rig.log.more().await;
    }
    let list = List::new(Filter::all().flow(handle.id().clone()), 1_000, rig.now());
    let mut states = Vec::new();
    for job in rig.driver.list(list).await.unwrap().items {
        let record = rig.finished(&job.id).await;
        if record.job.job_type.as_str() == kind {
            states.push((record.state, record.output.is_some()));
        }
    }
    (handle.status().await.unwrap().state, states)
}

async fn simulate(seed: u64) {
    let (rig, mut random) = (WorkerRig::new(), fastrand::Rng::with_seed(seed));
    let numbers: Vec<i64> = (0..random.i64(4..20)).map(|_| random.i64(0..100)).collect();
    let total: i64 = numbers.iter().sum();
    let sprout = |depth| Sprout { numbers: numbers.clone(), depth };
    let bad = Sprout { numbers: [&numbers[..], &[-1]].concat(), depth: random.u32(..3) };
    // A chord of growers and chords; outcomes of growers; a failure job around what fails and what not.
    let inner = Flow::chord(gives(numbers.clone()), Sum);
    let members = [inner, Flow::first(sprout(0)), Flow::first(sprout(2))];
    let chord = rig.client.start(Flow::chord(members, Write)).await.unwrap();
    let outcomes = Flow::gather([sprout(1), bad.clone()]).then(Judge);
    let outcomes = rig.client.start(outcomes).await.unwrap();
    let failing = rig.client.start(Flow::first(bad).on_failure(Regret)).await.unwrap();
    let good = rig.client.start(Flow::first(sprout(1)).on_failure(Regret)).await.unwrap();
    let workers = trouble(&rig, &mut random).await;

    assert_eq!(chord.wait().await.unwrap(), format!("{:?}", [total; 3]));
    let once = vec![(State::Done, true)];
    assert_eq!(ended(&rig, &chord, "write").await, (FlowState::Done, once.clone()));
    let told = outcomes.wait().await.unwrap();
    assert!(told.starts_with(&format!("{total}; cancelled: ")), "{told}");
    assert_eq!(ended(&rig, &outcomes, "judge").await, (FlowState::Done, once.clone()));
    assert!(matches!(failing.wait().await, Err(WaitError::Cancelled { .. })));
    assert_eq!(ended(&rig, &failing, "regret").await, (FlowState::Cancelled, once));
    assert_eq!(good.wait().await.unwrap(), total);
    let not_needed = vec![(State::Cancelled, false)];
    assert_eq!(ended(&rig, &good, "regret").await, (FlowState::Done, not_needed));
    for worker in &workers {
        worker.shutdown().await.unwrap();
    }
    rig.check().await;
}

#[test]
fn every_member_ends_and_a_finalizer_is_done_once_despite_faults() {
    seed::play(&[], 50, simulate);
}
