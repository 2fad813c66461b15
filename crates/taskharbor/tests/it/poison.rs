//! A job that kills its process again and again, beside others that do not.
//!
//! The store charges an expiration to every job that the process held. Only the job that kills it may
//! reach the crash limit.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use taskharbor::{Handlers, JobId, Running, State};

use crate::{
    ahead::{MS, Waiting},
    rig::{DONE, SECOND, WorkerRig, handler, work},
    seed,
};

/// A process: the worker in it, while that lives.
type Process = Arc<Mutex<Option<Arc<Running>>>>;

/// Jobs that kill their process, at once and after a while.
const BOMB: &str = "bomb";
const POISON: &str = "poison";

/// A job whose name is a number takes this many milliseconds.
fn handlers(process: &Process, seed: u64) -> Handlers {
    let process = Arc::clone(process);
    let random = Mutex::new(fastrand::Rng::with_seed(seed));
    handler(move |job, _| {
        let process = Arc::clone(&process);
        let fuse = Duration::from_micros(random.lock().unwrap().u64(..20_000));
        async move {
            if ![BOMB, POISON].contains(&&*job.name) {
                let millis: u32 = job.name.parse().unwrap();
                if millis > 0 {
                    tokio::time::sleep(MS * millis).await;
                }
                return DONE;
            }
            if job.name == POISON {
                tokio::time::sleep(fuse).await;
            }
            if let Some(running) = process.lock().unwrap().take() {
                running.abort();
            }
            std::future::pending().await
        }
    })
}

/// Keeps a process running: starts it again whenever it has died.
async fn keep_alive(
    rig: &WorkerRig,
    waiting: &Arc<Waiting>,
    crashes: &Mutex<Vec<usize>>,
    seed: u64,
) {
    let mut random = fastrand::Rng::with_seed(seed);
    loop {
        let process = Process::default();
        let worker = rig.worker(handlers(&process, random.u64(..))).observer(Arc::clone(waiting));
        let worker = worker.queue("other", 8).seed(random.u64(..));
        let running = Arc::new(worker.build().unwrap().start());
        *process.lock().unwrap() = Some(Arc::clone(&running));
        running.ended().await.unwrap();
        crashes.lock().unwrap().push(waiting.now());
        tokio::time::sleep(Duration::from_millis(random.u64(..2_000))).await;
    }
}

#[derive(Default)]
struct Worst {
    expirations: u32,
    waiting: usize,
    charged: usize,
}

/// Jobs that take no time, so that very many wait; or all kinds, of which some always run.
fn names(random: &mut fastrand::Rng, is_plain: bool, poisons: usize) -> Vec<String> {
    let times: &[u32] = if is_plain { &[0] } else { &[0, 0, 0, 0, 1, 1, 2, 5, 30] };
    let count = random.usize(1_000..3_000);
    let mut names: Vec<String> =
        (0..count).map(|_| times[random.usize(..times.len())].to_string()).collect();
    if !is_plain {
        names.extend((0..6).map(|_| random.u32(1_000..25_000).to_string()));
        random.shuffle(&mut names);
    }
    for _ in 0..poisons {
        let name = if is_plain || random.bool() { BOMB } else { POISON };
        names.insert(random.usize(count / 4..count), name.to_owned());
    }
    names
}

async fn simulate(seed: u64, worst: &Mutex<Worst>) {
    let (rig, waiting) = (WorkerRig::new(), Arc::new(Waiting::default()));
    rig.store.takes(MS);
    let mut random = fastrand::Rng::with_seed(seed);
    let poisons = random.usize(1..=2);
    let names = names(&mut random, seed.is_multiple_of(2), poisons);
    let (mut killers, mut others) = (HashSet::<JobId>::new(), Vec::new());
    for some in names.chunks(250) {
        let jobs = some.iter().map(work);
        for (handle, name) in rig.client.enqueue_many(jobs).await.unwrap().iter().zip(some) {
            if [BOMB, POISON].contains(&&**name) {
                killers.insert(handle.id().clone());
            } else {
                others.push(handle.id().clone());
            }
        }
    }
    let crashes = Mutex::new(Vec::new());
    let ended = async {
        for id in &killers {
            let record = rig.finished(id).await;
            assert_eq!(record.state, State::Dlq);
            assert!(record.job.expirations >= 5);
        }
        let mut charged = 0;
        for id in &others {
            let record = rig.finished(id).await;
            assert_eq!((record.state, record.job.attempts), (State::Done, 0), "{record:?}");
            let expirations = record.job.expirations;
            assert!(expirations <= 2 * u32::try_from(poisons).unwrap(), "{record:?}");
            charged += usize::from(expirations > 0);
            let mut worst = worst.lock().unwrap();
            worst.expirations = worst.expirations.max(expirations);
        }
        charged
    };
    let processes = [random.u64(..), random.u64(..)];
    let alive = async {
        let first = keep_alive(&rig, &waiting, &crashes, processes[0]);
        if random.bool() {
            tokio::join!(first, keep_alive(&rig, &waiting, &crashes, processes[1]));
        } else {
            first.await;
        }
    };
    let charged = tokio::select! {
        biased;
        charged = ended => charged,
        () = alive => unreachable!("processes are started again for ever"),
    };
    let crashes = crashes.into_inner().unwrap();
    // One may be charged for what the other did.
    assert!((5..=5 * poisons).contains(&crashes.len()), "{crashes:?}");
    rig.check().await;
    let mut worst = worst.lock().unwrap();
    worst.waiting = worst.waiting.max(crashes.into_iter().max().unwrap_or(0));
    worst.charged = worst.charged.max(charged);
}

#[test]
fn only_the_jobs_that_kill_their_process_reach_the_crash_limit() {
    let worst = Mutex::new(Worst::default());
    seed::play(&[2, 4, 6, 8], 30, async |seed| simulate(seed, &worst).await);
    let Worst { expirations, waiting, charged } = worst.into_inner().unwrap();
    println!("{expirations} expirations at most, {charged} jobs charged, {waiting} waited");
    // Otherwise nothing was tried: some process died while many jobs waited in it.
    assert!(expirations >= 1 && waiting > 100 && charged > 100, "{expirations}, {waiting}");
}

#[tokio::test(start_paused = true)]
async fn jobs_whose_lease_ran_out_twice_run_one_at_a_time() {
    let rig = WorkerRig::new();
    let ids: Vec<_> = {
        let jobs = (0..4).map(|_| work("1500"));
        let handles = rig.client.enqueue_many(jobs).await.unwrap();
        handles.iter().map(|handle| handle.id().clone()).collect()
    };
    for round in 1..=2 {
        let dies = rig.worker(handler(|_, _| std::future::pending())).build().unwrap().start();
        rig.log.until_count("started", 4 * round).await;
        dies.abort();
        dies.ended().await.unwrap();
    }
    let running = Process::default();
    let _alive = rig.worker(handlers(&running, 7)).build().unwrap().start();
    for id in &ids {
        let record = rig.finished(id).await;
        assert_eq!((record.state, record.job.expirations), (State::Done, 2));
    }
    let mut at_once = 0;
    for line in rig.log.lines().iter().skip_while(|line| !line.starts_with("succeeded")) {
        at_once +=
            i32::from(line.starts_with("started")) - i32::from(line.starts_with("succeeded"));
        assert!(at_once <= 1);
    }
    // Each that waits comes back when the one before it has ended.
    assert!(rig.log.count("released KeptApart") <= 3 + 2 + 1, "{:#?}", rig.log.lines());
    let ended: Vec<_> = ids.iter().map(|id| rig.log.time_of(&format!("succeeded {id}"))).collect();
    let took = ended.iter().max().unwrap().since(*ended.iter().min().unwrap());
    assert_eq!(took, 3 * 1_500 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_long_job_is_in_quarantine_only_for_a_while() {
    let rig = WorkerRig::new();
    let long = rig.enqueue("1000000").await;
    for round in 1..=2 {
        let dies = rig.worker(handler(|_, _| std::future::pending())).build().unwrap().start();
        rig.log.until_count("started", round).await;
        dies.abort();
        dies.ended().await.unwrap();
    }
    let alive = rig.worker(handlers(&Process::default(), 7)).build().unwrap().start();
    rig.log.until_count("started", 3).await;
    let (begun, other) = (rig.now(), rig.enqueue("0").await);
    rig.finished(&other).await;
    assert_eq!(rig.log.time_of(&format!("started {other}")).since(begun), 10 * SECOND);
    assert_eq!(rig.state(&long).await, State::Inflight);
    alive.abort();
}
