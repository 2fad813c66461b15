//! Limits and rates: declared by workers, set by operators, carried out by the store.

mod declare;
mod harbor;
mod simulation;
mod throttle;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use taskharbor::{
    Denied, Handlers, HeldBack, JobId, LaneStatus, ManageError, QueueLimits, Rate, State,
};

use crate::{
    ahead::MS,
    rig::{DONE, SECOND, WorkerRig, handler, work},
};

/// How many handlers run in each lane, and how many did at most.
#[derive(Default)]
pub(crate) struct Lanes {
    now: Mutex<HashMap<String, usize>>,
    most: Mutex<HashMap<String, usize>>,
}

/// One running handler of a lane.
pub(crate) struct InLane(Arc<Lanes>, String);

impl Lanes {
    pub(crate) fn enter(self: &Arc<Self>, lane: Option<&taskharbor::LaneName>) -> InLane {
        let lane = lane.map(ToString::to_string).unwrap_or_default();
        for name in [&lane, "*"] {
            let mut now = self.now.lock().unwrap();
            let count = now.entry(name.to_owned()).or_default();
            *count += 1;
            let mut most = self.most.lock().unwrap();
            let most = most.entry(name.to_owned()).or_default();
            *most = (*most).max(*count);
        }
        InLane(Arc::clone(self), lane)
    }

    /// The most that ran at once in a lane; in all of them for `*`.
    pub(crate) fn most(&self, lane: &str) -> usize {
        self.most.lock().unwrap().get(lane).copied().unwrap_or_default()
    }
}

impl Drop for InLane {
    fn drop(&mut self) {
        for name in [&*self.1, "*"] {
            *self.0.now.lock().unwrap().get_mut(name).unwrap() -= 1;
        }
    }
}

/// Each job takes a second.
fn counting(lanes: &Arc<Lanes>) -> Handlers {
    let lanes = Arc::clone(lanes);
    handler(move |_, cx| {
        let running = lanes.enter(cx.lane());
        async move {
            let _running = running;
            tokio::time::sleep(SECOND).await;
            DONE
        }
    })
}

async fn enqueue(rig: &WorkerRig, lane: &str, jobs: usize) -> Vec<JobId> {
    let mut ids = Vec::new();
    for n in 0..jobs {
        let job = rig.client.enqueue(work(format!("{lane}{n}"))).lane(lane);
        ids.push(job.await.unwrap().id().clone());
    }
    ids
}

#[tokio::test(start_paused = true)]
async fn a_worker_runs_as_many_jobs_of_a_lane_as_its_limit_says_and_goes_on_at_once() {
    let (rig, lanes) = (WorkerRig::new(), Arc::new(Lanes::default()));
    let queue = rig.client.queue("default");
    queue.limit(QueueLimits::new().per_lane(2).inflight(5)).await.unwrap();
    let mut ids = Vec::new();
    for lane in ["a", "b", "c"] {
        ids.extend(enqueue(&rig, lane, 10).await);
    }
    let start = rig.now();
    let _worker = rig.worker(counting(&lanes)).build().unwrap().start();
    for id in &ids {
        assert_eq!(rig.finished(id).await.state, State::Done);
    }
    assert_eq!(["a", "b", "c", "*"].map(|lane| lanes.most(lane)), [2, 2, 2, 5]);
    // Thirty jobs of a second, five at once: a place that is freed is used at once.
    assert_eq!(rig.now().since(start), 6 * SECOND);
    rig.check().await;
}

/// The most jobs that a worker with eight slots asks for at once, under these limits.
async fn greatest_demand(limits: QueueLimits) -> usize {
    let rig = WorkerRig::new();
    rig.store.takes(MS);
    rig.client.queue("default").limit(limits).await.unwrap();
    rig.client.enqueue_many((0..500).map(|n| work(n.to_string()))).await.unwrap();
    let brief = handler(|_, _| async {
        tokio::time::sleep(MS).await;
        DONE
    });
    let _worker = rig.worker(brief).build().unwrap().start();
    rig.log.until_count("succeeded", 500).await;
    rig.store.demands().into_iter().flatten().map(|(_, asked)| asked).max().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_worker_reserves_nothing_ahead_while_a_limit_keeps_jobs_back() {
    assert!(greatest_demand(QueueLimits::new()).await > 8);
    assert_eq!(greatest_demand(QueueLimits::new().inflight(2)).await, 8);
    let rate = Rate::per(1, MS).burst(4);
    assert_eq!(greatest_demand(QueueLimits::new().rate(rate)).await, 8);
}

#[tokio::test(start_paused = true)]
async fn a_lane_with_one_job_does_not_wait_for_one_with_many() {
    let rig = WorkerRig::new();
    let many = enqueue(&rig, "a", 20).await;
    let one = enqueue(&rig, "b", 1).await;
    let worker = rig.worker(handler(|_, _| async { DONE })).ahead(Duration::ZERO);
    let _worker = worker.build().unwrap().start();
    for id in many.iter().chain(&one) {
        rig.finished(id).await;
    }
    let reserved = |id: &JobId| {
        let line = format!("reserved {id}");
        rig.log.lines().iter().filter(|it| it.starts_with("reserved")).position(|it| *it == line)
    };
    // It is in the first call, which takes eight jobs.
    assert!(reserved(&one[0]).unwrap() < 8);
    assert!(reserved(&many[7]).unwrap() >= 8);
}

#[tokio::test(start_paused = true)]
async fn a_worker_sleeps_until_a_rate_allows_the_next_job() {
    let rig = WorkerRig::new();
    let rate = Rate::per(1, 10 * SECOND);
    rig.client.queue("default").limit(QueueLimits::new().rate(rate)).await.unwrap();
    let ids = enqueue(&rig, "a", 5).await;
    let start = rig.now();
    let _worker = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    for (n, id) in (0..).zip(&ids) {
        let started = rig.finished(id).await.started_at.unwrap();
        assert_eq!(started.since(start), 10 * SECOND * n);
    }
    // One call for each job, and few beside them.
    let calls = rig.store.calls(crate::faulty_store::Op::Reserve);
    assert!(calls <= 12, "{calls}");
}

fn held(lanes: &[LaneStatus], name: &str) -> Option<(bool, HeldBack)> {
    let lane = lanes.iter().find(|it| it.lane.as_ref().is_some_and(|it| it.as_str() == name));
    lane.and_then(|it| it.held_back).map(|held| (held.by_lane, held.why))
}

#[tokio::test(start_paused = true)]
async fn an_operator_sets_reads_and_removes_limits_and_holds() {
    let rig = WorkerRig::new();
    let queue = rig.client.queue("default");
    assert_eq!(queue.limits().await.unwrap(), None);
    let limits = QueueLimits::new().per_lane(1).weight("gold", 3);
    queue.limit(limits.clone()).await.unwrap();
    let record = queue.limits().await.unwrap().unwrap();
    assert_eq!((record.limits, record.owner), (limits, None));
    assert_eq!(rig.client.queue("other").limits().await.unwrap(), None);

    enqueue(&rig, "a", 2).await;
    enqueue(&rig, "b", 1).await;
    queue.hold_lane("a", 60 * SECOND).await.unwrap();
    let until = rig.now().saturating_add(60 * SECOND);
    queue.hold_lane("a", SECOND).await.unwrap();
    let lanes = queue.lanes(None, 1).await.unwrap();
    assert_eq!(lanes.items.len(), 1);
    assert_eq!((lanes.items[0].ready, lanes.items[0].inflight), (2, 0));
    assert_eq!(held(&lanes.items, "a"), Some((true, HeldBack::OnHold { until })));
    let rest = queue.lanes(lanes.next, 10).await.unwrap();
    assert_eq!((rest.items.len(), rest.next), (1, None));
    assert_eq!(held(&rest.items, "b"), None);

    queue.hold(30 * SECOND).await.unwrap();
    let lanes = queue.lanes(None, 10).await.unwrap().items;
    let until = rig.now().saturating_add(30 * SECOND);
    assert_eq!(held(&lanes, "b"), Some((false, HeldBack::OnHold { until })));
    queue.end_hold().await.unwrap();
    queue.end_hold_of("a").await.unwrap();
    let lanes = queue.lanes(None, 10).await.unwrap().items;
    assert_eq!((held(&lanes, "a"), held(&lanes, "b")), (None, None));
    queue.unlimit().await.unwrap();
    assert_eq!(queue.limits().await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_ended_lets_a_worker_go_on_at_once() {
    let rig = WorkerRig::new();
    rig.client.queue("default").hold(3_600 * SECOND).await.unwrap();
    let id = rig.enqueue("a").await;
    let _worker = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    tokio::time::sleep(100 * SECOND).await;
    assert_eq!(rig.state(&id).await, State::Ready);
    let ended = rig.now();
    rig.client.queue("default").end_hold().await.unwrap();
    assert_eq!(rig.finished(&id).await.started_at, Some(ended));
}

#[tokio::test(start_paused = true)]
async fn invalid_limits_and_names_are_errors() {
    let rig = WorkerRig::new();
    let queue = rig.client.queue("default");
    let error = queue.limit(QueueLimits::new().inflight(0)).await.unwrap_err();
    assert!(matches!(error, ManageError::Store(taskharbor::DriverError::Invalid(_))), "{error}");
    let error = queue.hold_lane("", SECOND).await.unwrap_err();
    assert!(matches!(error, ManageError::Name(_)), "{error}");
    let error = rig.client.queue("").lanes(None, 1).await.unwrap_err();
    assert!(matches!(error, ManageError::Name(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn limits_that_a_service_declares_are_its_own() {
    let rig = WorkerRig::new();
    let ours = taskharbor::DeclaredLimits::owned_by("billing")
        .queue("default", QueueLimits::new().inflight(3));
    let worker = rig.worker(handler(|_, _| async { DONE })).limits(ours);
    let _worker = worker.build().unwrap().start();
    let id = rig.enqueue("a").await;
    rig.finished(&id).await;
    let queue = rig.client.queue("default");
    let record = queue.limits().await.unwrap().unwrap();
    assert_eq!(record.owner.unwrap().as_str(), "billing");
    for error in [queue.limit(QueueLimits::new()).await, queue.unlimit().await] {
        let error = error.unwrap_err();
        assert!(matches!(error, ManageError::Denied(Denied::LimitsOwned { .. })), "{error}");
    }
}
