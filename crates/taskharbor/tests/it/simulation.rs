//! Workers that come, go and die on a store that misbehaves at random, in virtual time.
//!
//! Whatever happens, no job is lost, none runs twice at the same time, none ends in a way that its
//! handler did not choose, and when the trouble is over everything gets done. A run is described by
//! its seed, which a failure prints: `TASKHARBOR_SEED` runs that one again, and
//! `TASKHARBOR_SIMULATIONS` runs more of them.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use taskharbor::{Handlers, JobError, Outcome, State};

use crate::{
    faulty_store::Op,
    rig::{SECOND, WorkerRig, handler, work},
    seed,
};

const JOBS: usize = 50;

/// What the handler of a job does, by the job's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Quick,
    Long,
    FailsTwice,
    Snoozes,
    Panics,
    Hopeless,
    Unrecoverable,
}

const KINDS: [Kind; 7] = [
    Kind::Quick,
    Kind::Long,
    Kind::FailsTwice,
    Kind::Snoozes,
    Kind::Panics,
    Kind::Hopeless,
    Kind::Unrecoverable,
];

/// The jobs that run at this moment, and a guard that counts one as running.
type RunningJobs = Arc<Mutex<HashSet<usize>>>;

struct Running(RunningJobs, usize);

impl Running {
    fn begin(jobs: &RunningJobs, number: usize) -> Self {
        let begins = jobs.lock().unwrap().insert(number);
        assert!(begins, "job {number} runs twice at the same time");
        Self(Arc::clone(jobs), number)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.lock().unwrap().remove(&self.1);
    }
}

fn handlers(running: &RunningJobs, overlaps: &Arc<Mutex<Vec<String>>>) -> Handlers {
    let (running, overlaps) = (Arc::clone(running), Arc::clone(overlaps));
    handler(move |job, cx| {
        let number: usize = job.name.parse().unwrap();
        let guard = std::panic::catch_unwind(|| Running::begin(&running, number));
        if guard.is_err() {
            overlaps.lock().unwrap().push(format!("{number} at delivery {}", cx.delivery()));
        }
        async move {
            let _guard = guard;
            match KINDS[number % KINDS.len()] {
                Kind::Quick => Ok(Outcome::Done(1)),
                Kind::Long => {
                    tokio::time::sleep(SECOND * (number as u32 * 4)).await;
                    Ok(Outcome::Done(1))
                }
                Kind::FailsTwice if cx.attempt() <= 2 => Err("twice".into()),
                Kind::FailsTwice => Ok(Outcome::Done(1)),
                Kind::Snoozes if cx.delivery() % 3 != 0 => Ok(Outcome::Snooze(5 * SECOND)),
                Kind::Snoozes => Ok(Outcome::Done(1)),
                Kind::Panics => {
                    tokio::time::sleep(SECOND).await;
                    std::panic::resume_unwind(Box::new("on purpose"))
                }
                Kind::Hopeless => Err("hopeless".into()),
                Kind::Unrecoverable => Err(JobError::unrecoverable("unrecoverable")),
            }
        }
    })
}

async fn simulate(seed: u64) {
    let rig = WorkerRig::new();
    let mut random = fastrand::Rng::with_seed(seed);
    let (running, overlaps) = (RunningJobs::default(), Arc::default());
    let start = |seed| {
        rig.worker(handlers(&running, &overlaps))
            .queue("other", 2)
            .crash_limit(u32::MAX)
            .call_timeout(5 * SECOND)
            .grace(20 * SECOND)
            .seed(seed)
            .build()
            .unwrap()
            .start()
    };
    let mut ids = Vec::new();
    for number in 0..JOBS {
        let queue = if number % 3 == 0 { "other" } else { "default" };
        let delay = Duration::from_millis(random.u64(..300_000));
        let job = rig.client.enqueue(work(number.to_string())).queue(queue).delay(delay);
        ids.push(job.max_attempts(4).await.unwrap().id().clone());
    }
    rig.store.chaos(random.u64(..), 0.15);
    let mut workers: Vec<_> = (0..3).map(|_| start(random.u64(..))).collect();
    if random.bool() {
        rig.store.rotate_tokens();
    }
    for _ in 0..10 {
        // Some calls fail for so long that leases are lost while others are granted.
        let failing: Vec<Op> = Op::ALL.into_iter().filter(|_| random.u8(..4) == 0).collect();
        rig.store.down(&failing);
        tokio::time::sleep(Duration::from_millis(random.u64(..60_000))).await;
        rig.store.up();
        let at = random.usize(..workers.len());
        if random.bool() {
            workers[at].abort();
        }
        // Dropping one that was not aborted shuts it down meanwhile.
        workers[at] = start(random.u64(..));
    }
    rig.store.calm();
    for (number, id) in ids.iter().enumerate() {
        let record = rig.finished(id).await;
        let kind = KINDS[number % KINDS.len()];
        let (state, attempts) = match kind {
            Kind::Quick | Kind::Long | Kind::Snoozes => (State::Done, 0),
            Kind::FailsTwice => (State::Done, 2),
            Kind::Panics | Kind::Hopeless => (State::Dlq, 4),
            Kind::Unrecoverable => (State::Dlq, 1),
        };
        assert_eq!((record.state, record.job.attempts), (state, attempts), "{number} {kind:?}");
    }
    for worker in &workers {
        worker.shutdown().await.unwrap();
    }
    let overlaps = overlaps.lock().unwrap().clone();
    assert_eq!(overlaps, Vec::<String>::new());
    rig.check().await;
}

#[test]
fn nothing_is_lost_and_nothing_overlaps_despite_faults() {
    seed::play(&[], 100, simulate);
}
