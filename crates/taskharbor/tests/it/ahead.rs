//! Jobs that are reserved ahead: a job is reserved only if it will start soon, else it is released.
//!
//! Every call to the store takes a millisecond of virtual time, so a worker learns how fast jobs end.

mod simulation;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use taskharbor::{Admin, Event, Handlers, JobId, Observer, Options, ReleaseReason, Running, State};
use taskharbor_core::{
    Driver, QueueName,
    admin::{Action, Manage},
    driver::{Demand, Reserve},
    name::Holder,
};
use tokio::time::Instant;

use crate::{
    faulty_store::Op,
    rig::{DONE, LEASE, SECOND, WorkerRig, handler, work},
};

pub(crate) const MS: Duration = Duration::from_millis(1);

/// The jobs that are reserved and have not started, and how long they waited for that.
#[derive(Default)]
pub(crate) struct Waiting {
    since: Mutex<HashMap<JobId, Instant>>,
    longest: Mutex<Duration>,
    most: Mutex<usize>,
    released: Mutex<HashMap<JobId, Vec<ReleaseReason>>>,
}

impl Waiting {
    pub(crate) fn longest(&self) -> Duration {
        *self.longest.lock().unwrap()
    }

    pub(crate) fn most(&self) -> usize {
        *self.most.lock().unwrap()
    }

    pub(crate) fn now(&self) -> usize {
        self.since.lock().unwrap().len()
    }

    fn ids(&self) -> Vec<JobId> {
        self.since.lock().unwrap().keys().cloned().collect()
    }

    fn released(&self) -> HashMap<JobId, Vec<ReleaseReason>> {
        self.released.lock().unwrap().clone()
    }

    fn ended(&self, id: &JobId) {
        if let Some(since) = self.since.lock().unwrap().remove(id) {
            let mut longest = self.longest.lock().unwrap();
            *longest = longest.max(since.elapsed());
        }
    }
}

impl Observer for Waiting {
    fn on(&self, event: &Event<'_>) {
        match event {
            Event::Reserved { job, .. } => {
                let mut since = self.since.lock().unwrap();
                since.insert(job.id.clone(), Instant::now());
                let mut most = self.most.lock().unwrap();
                *most = since.len().max(*most);
            }
            Event::Started { job, .. } | Event::LeaseLost { job, .. } => self.ended(&job.id),
            Event::Released { job, why, .. } => {
                self.ended(&job.id);
                let mut released = self.released.lock().unwrap();
                released.entry(job.id.clone()).or_default().push(*why);
            }
            _ => {}
        }
    }
}

/// A job whose name is a number takes this many milliseconds.
fn sleeper() -> Handlers {
    handler(|job, _| async move {
        let millis: u32 = job.name.parse().unwrap();
        if millis > 0 {
            tokio::time::sleep(MS * millis).await;
        }
        DONE
    })
}

/// A store on which every call takes a millisecond.
fn slow_rig() -> WorkerRig {
    let rig = WorkerRig::new();
    rig.store.takes(MS);
    rig
}

async fn enqueue(rig: &WorkerRig, count: usize, millis: u32) -> Vec<JobId> {
    let jobs = (0..count).map(|_| work(millis.to_string()));
    let handles = rig.client.enqueue_many(jobs).await.unwrap();
    handles.iter().map(|handle| handle.id().clone()).collect()
}

/// A worker with eight slots.
fn start(rig: &WorkerRig, waiting: &Arc<Waiting>, ahead: Duration) -> Running {
    let worker = rig.worker(sleeper()).observer(Arc::clone(waiting)).ahead(ahead);
    worker.build().unwrap().start()
}

/// How long a worker takes for these jobs, and how many calls reserve them.
async fn drain(count: usize, millis: u32, ahead: Duration) -> (Duration, usize, Arc<Waiting>) {
    let (rig, waiting) = (slow_rig(), Arc::new(Waiting::default()));
    enqueue(&rig, count, millis).await;
    let begun = Instant::now();
    let running = start(&rig, &waiting, ahead);
    rig.log.until_count("succeeded", count).await;
    let took = begun.elapsed();
    running.shutdown().await.unwrap();
    rig.check().await;
    (took, rig.store.calls(Op::Reserve), waiting)
}

#[tokio::test(start_paused = true)]
async fn jobs_that_take_no_time_do_not_wait_for_a_call_each() {
    let (slow, many, _) = drain(4_000, 0, Duration::ZERO).await;
    let (fast, few, waiting) = drain(4_000, 0, 20 * MS).await;
    assert!(slow >= 500 * MS && many >= 500, "{slow:?}, {many} calls");
    assert!(fast <= 80 * MS && few <= 60, "{fast:?}, {few} calls");
    assert!(waiting.longest() <= 20 * MS, "{:?}", waiting.longest());
}

#[tokio::test(start_paused = true)]
async fn handlers_do_not_wait_for_the_store_between_jobs() {
    let (slow, _, _) = drain(2_000, 2, Duration::ZERO).await;
    let (fast, _, waiting) = drain(2_000, 2, 20 * MS).await;
    // Eight at a time, 2 ms each: half a second at best. Without, each waits for a call as well.
    assert!(slow >= 740 * MS, "{slow:?}");
    assert!(fast <= 560 * MS, "{fast:?}");
    // Four jobs end in a millisecond, and a call takes one: no more wait than end in 5 ms.
    assert!((1..=8 + 25).contains(&waiting.most()), "{}", waiting.most());
    assert!(waiting.longest() <= 10 * MS, "{:?}", waiting.longest());
    assert_eq!(waiting.released().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn without_reserving_ahead_a_job_is_reserved_only_when_a_handler_can_start_at_once() {
    for (ahead, crash_limit) in [(Duration::ZERO, 5), (20 * MS, 1)] {
        let (rig, waiting) = (slow_rig(), Arc::new(Waiting::default()));
        enqueue(&rig, 400, 2).await;
        let worker = rig.worker(sleeper()).observer(Arc::clone(&waiting));
        let _running = worker.ahead(ahead).crash_limit(crash_limit).build().unwrap().start();
        rig.log.until_count("succeeded", 400).await;
        let mut held = 0;
        for line in rig.log.lines() {
            held += i32::from(line.starts_with("reserved"));
            held -= i32::from(line.starts_with("succeeded"));
            // A slot is free as soon as the outcome is with the settler.
            assert!(held <= 16);
        }
        assert_eq!(waiting.longest(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_with_a_backlog_does_not_keep_the_wake_ups_of_another_from_being_heard() {
    for ahead in [Duration::ZERO, 20 * MS] {
        let (rig, waiting) = (slow_rig(), Arc::new(Waiting::default()));
        let backlog = 40_000;
        enqueue(&rig, backlog, 0).await;
        let worker = rig.worker(sleeper()).observer(Arc::clone(&waiting)).ahead(ahead);
        let _running = worker.queue("other", 1).build().unwrap().start();
        rig.log.until_count("succeeded", 400).await;
        let begun = Instant::now();
        let other = rig.client.enqueue(work("0")).queue("other").await.unwrap();
        other.wait().await.unwrap();
        assert!(rig.log.count("succeeded") < backlog, "the backlog must last");
        assert!(begun.elapsed() <= 50 * MS, "{:?} with {ahead:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn slow_jobs_are_never_reserved_ahead() {
    // Eight in 200 ms are less than one in 20 ms.
    let (_, _, waiting) = drain(80, 200, 20 * MS).await;
    assert_eq!(waiting.longest(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_lone_job_starts_as_soon_as_without() {
    for ahead in [Duration::ZERO, 20 * MS] {
        let (rig, waiting) = (slow_rig(), Arc::new(Waiting::default()));
        let _running = start(&rig, &waiting, ahead);
        for _ in 0..20 {
            tokio::time::sleep(50 * MS).await;
            let enqueued = rig.now();
            let id = enqueue(&rig, 1, 0).await.remove(0);
            rig.finished(&id).await;
            let started = rig.log.time_of(&format!("started {id}"));
            // A call to enqueue, and one to reserve.
            assert_eq!(started.since(enqueued), 2 * MS, "{ahead:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_that_do_not_start_in_time_are_released_and_start_elsewhere() {
    let rig = slow_rig();
    let (busy, idle) = (Arc::new(Waiting::default()), Arc::new(Waiting::default()));
    enqueue(&rig, 2_000, 1).await;
    let long = enqueue(&rig, 16, 10_000).await;
    let _busy = start(&rig, &busy, 20 * MS);
    rig.log.until_count("succeeded", 2_000).await;
    // It holds eight that run, and the others were reserved when jobs were short.
    assert_eq!(busy.now(), 8);
    let _idle = start(&rig, &idle, 20 * MS);
    let begun = rig.now();
    rig.log.until_count("released Waited", 8).await;
    assert!(rig.log.time_of("released Waited").since(begun) <= 30 * MS);
    tokio::time::sleep(SECOND).await;
    for id in &long {
        let record = rig.record(id).await;
        assert_eq!(record.state, State::Inflight);
        let job = record.job;
        // Nothing is charged, and no job is released twice.
        assert_eq!((job.attempts, job.expirations), (0, 0));
        assert!(job.deliveries <= 2, "{}", job.deliveries);
        assert!(record.started_at.unwrap().since(begun) <= 60 * MS);
    }
    assert_eq!(busy.released().len(), 8);
    assert_eq!((busy.now(), idle.now()), (0, 0));
    assert!(busy.longest() <= 100 * MS, "{:?}", busy.longest());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_shuts_down_releases_what_has_not_started() {
    let (rig, waiting) = (slow_rig(), Arc::new(Waiting::default()));
    let ids = enqueue(&rig, 3_000, 1).await;
    let running = start(&rig, &waiting, 20 * MS);
    rig.log.until_count("succeeded", 1_000).await;
    assert!(waiting.now() > 0);
    let begun = Instant::now();
    running.shutdown().await.unwrap();
    assert!(begun.elapsed() <= 10 * MS, "{:?}", begun.elapsed());
    let released = waiting.released();
    assert!(!released.is_empty());
    assert!(released.values().all(|why| why == &[ReleaseReason::Shutdown]));
    for id in &ids {
        let record = rig.record(id).await;
        let is_released = released.contains_key(id);
        assert_eq!((record.job.attempts, record.job.expirations), (0, 0));
        match record.state {
            State::Done => assert!(!is_released),
            State::Ready => assert_eq!(record.job.deliveries, u32::from(is_released)),
            other => panic!("{other:?}"),
        }
    }
    rig.check().await;
}

#[tokio::test(start_paused = true)]
async fn the_leases_of_jobs_that_wait_are_kept_while_outcomes_cannot_be_recorded() {
    let (rig, waiting) = (slow_rig(), Arc::new(Waiting::default()));
    let ids = enqueue(&rig, 5_000, 1).await;
    let _running = start(&rig, &waiting, 20 * MS);
    rig.log.until_count("succeeded", 1_000).await;
    rig.store.down(&[Op::Settle]);
    tokio::time::sleep(4 * LEASE).await;
    // Handlers wait with their outcomes, and others wait behind them.
    assert!(waiting.now() > 0);
    rig.store.up();
    for id in &ids {
        let record = rig.finished(id).await;
        assert_eq!((record.state, record.job.expirations), (State::Done, 0));
    }
    assert_eq!(rig.log.count("lost"), 0);
}

/// Eight short jobs run on and on, then jobs of 20 ms fill all slots while others wait behind them.
/// Leases are extended every 5 ms.
async fn with_waiting(change: impl AsyncFnOnce(&WorkerRig, &Waiting)) -> (WorkerRig, Arc<Waiting>) {
    let (rig, waiting) = (slow_rig(), Arc::new(Waiting::default()));
    enqueue(&rig, 1_000, 1).await;
    enqueue(&rig, 100, 20).await;
    let worker = rig.worker(sleeper()).observer(Arc::clone(&waiting));
    let worker = worker.lease(2 * SECOND).heartbeat(5 * MS);
    let running = worker.build().unwrap().start();
    rig.log.until_count("succeeded", 1_000).await;
    assert!(waiting.now() >= 4, "{}", waiting.now());
    change(&rig, &waiting).await;
    tokio::time::sleep(200 * MS).await;
    running.shutdown().await.unwrap();
    (rig, waiting)
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_cancelled_while_it_waits_does_not_start() {
    let cancelled = Mutex::new(Vec::new());
    let (rig, _) = with_waiting(async |rig, waiting| {
        let request = Manage::new(waiting.ids(), Action::Cancel, rig.now());
        rig.store.store.manage(request).await.unwrap();
        *cancelled.lock().unwrap() = waiting.ids();
    })
    .await;
    let cancelled = cancelled.into_inner().unwrap();
    assert!(cancelled.len() >= 4);
    for id in cancelled {
        assert_eq!(rig.state(&id).await, State::Cancelled);
        assert_eq!(rig.log.count(&format!("started {id}")), 0);
        assert_eq!(rig.log.count(&format!("released CancelRequested {id}")), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_lost_while_it_waits_does_not_start() {
    let lost = Mutex::new(Vec::new());
    let (rig, _) = with_waiting(async |rig, waiting| {
        *lost.lock().unwrap() = waiting.ids();
        let demands = vec![Demand::new(QueueName::new("default").unwrap(), 1_000)];
        let (thief, later) = (Holder::new("thief").unwrap(), rig.now().saturating_add(LEASE));
        let stolen = Reserve::new(demands, thief, later, 100 * LEASE);
        assert!(rig.store.store.reserve(stolen).await.unwrap().jobs.len() >= 12);
    })
    .await;
    let lost = lost.into_inner().unwrap();
    assert!(lost.len() >= 4);
    for id in lost {
        assert_eq!(rig.record(&id).await.held.unwrap().holder.as_str(), "thief");
        assert_eq!(rig.log.count(&format!("lost {id}")), 1);
        assert_eq!(rig.log.count(&format!("started {id}")), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_reaches_jobs_that_wait_within_20_ms() {
    let (rig, waiting) = (slow_rig(), Arc::new(Waiting::default()));
    enqueue(&rig, 3_000, 1).await;
    let _running = start(&rig, &waiting, 20 * MS);
    rig.log.until_count("succeeded", 1_000).await;
    assert!(waiting.now() > 0);
    rig.driver.pause(QueueName::new("default").unwrap(), rig.now()).await.unwrap();
    tokio::time::sleep(20 * MS).await;
    let started = rig.log.count("started");
    assert!(started < 3_000);
    tokio::time::sleep(SECOND).await;
    assert_eq!(rig.log.count("started"), started);
    assert_eq!((waiting.now(), rig.log.count("succeeded")), (0, started));
}

#[tokio::test(start_paused = true)]
async fn only_the_queues_that_a_wake_up_names_are_asked() {
    let rig = slow_rig();
    let mut worker = rig.worker(sleeper()).queue("empty", 4);
    for n in 0..10 {
        worker = worker.queue(format!("q{n}"), 4);
    }
    let _running = worker.build().unwrap().start();
    tokio::time::sleep(SECOND).await;
    let asked = || -> Vec<Vec<String>> {
        let names = |call: Vec<(QueueName, usize)>| call.into_iter().map(|it| it.0.to_string());
        rig.store.demands().into_iter().map(|call| names(call).collect()).collect()
    };
    assert_eq!(asked().concat().len(), 12, "each once");
    for queue in ["q3", "default"] {
        let options = Options::new().queue(queue);
        let job = rig.client.enqueue(work("0")).options(options).await.unwrap();
        rig.finished(job.id()).await;
        tokio::time::sleep(SECOND).await;
        assert_eq!(asked(), [[queue]]);
    }
    // So it is for a job that falls due: the queue is asked when the job comes, and when it is due.
    let options = Options::new().queue("q5");
    let job = rig.client.enqueue(work("0")).options(options).delay(3 * SECOND).await.unwrap();
    rig.finished(job.id()).await;
    assert!(asked().iter().all(|call| call == &["q5"]));
    // Without any wake-up all are asked.
    tokio::time::sleep(31 * SECOND).await;
    assert_eq!(asked().last().map(Vec::len), Some(12));
}
