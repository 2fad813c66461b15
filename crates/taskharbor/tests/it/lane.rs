//! Lanes: which jobs get which, by every way to store a job.

use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use taskharbor::{
    Client, Context, EnqueueError, Flow, Handlers, InvalidJob, Job, JobId, JobResult, LaneName,
    Options, Schedule, flow_json,
    testing::{Harbor, call},
};

use crate::rig::{DONE, SECOND, WorkerRig, handler, work};

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(type = "bill", lane = "account", output = String)]
struct Bill {
    account: String,
}

fn bill(account: &str) -> Bill {
    Bill { account: account.to_owned() }
}

/// The lane without the derive, and one of the type for jobs that have none.
#[derive(Debug, Serialize, Deserialize)]
struct ByHand(Option<u64>);

impl Job for ByHand {
    const TYPE: &'static str = "by hand";
    type Input = ();
    type Output = ();
    fn options() -> Options {
        Options::new().lane("of the type")
    }
    fn lane(&self) -> Option<String> {
        self.0.map(|tenant| format!("tenant {tenant}"))
    }
}

fn to(lane: &str) -> Options {
    Options::new().lane(lane)
}

async fn lane_of(client: &Client, id: &JobId) -> Option<String> {
    let record = client.job(id).inspect().await.unwrap().unwrap();
    record.job.lane.map(|lane| lane.to_string())
}

async fn lanes_of(client: &Client, ids: impl IntoIterator<Item = JobId>) -> Vec<String> {
    let mut lanes = Vec::new();
    for id in ids {
        lanes.push(lane_of(client, &id).await.unwrap_or_default());
    }
    lanes
}

#[tokio::test(start_paused = true)]
async fn the_lane_of_an_enqueue_goes_before_that_of_the_job() {
    let rig = WorkerRig::new();
    let client = &rig.client;
    let ids = [
        client.enqueue(work("none")).await.unwrap().id().clone(),
        client.enqueue(bill("acme")).await.unwrap().id().clone(),
        client.enqueue(bill("acme")).lane("other").await.unwrap().id().clone(),
        client.enqueue(bill("acme")).options(to("more")).await.unwrap().id().clone(),
        client.enqueue(ByHand(Some(7))).await.unwrap().id().clone(),
        client.enqueue(ByHand(None)).await.unwrap().id().clone(),
        client.enqueue_raw("bill", b"{}").lane(String::from("raw")).await.unwrap().id().clone(),
    ];
    let expected = ["", "acme", "other", "more", "tenant 7", "of the type", "raw"];
    assert_eq!(lanes_of(client, ids).await, expected);
}

#[tokio::test(start_paused = true)]
async fn each_of_many_jobs_has_its_own_lane() {
    let rig = WorkerRig::new();
    let client = &rig.client;
    let many = || {
        [
            bill("a").with(Options::new()),
            bill("b").with(to("own")),
            bill("c").with(Options::new().priority(3)),
        ]
    };
    let handles = client.enqueue_many(many()).await.unwrap();
    let ids = handles.iter().map(|it| it.id().clone());
    assert_eq!(lanes_of(client, ids).await, ["a", "own", "c"]);
    let handles = client.enqueue_many(many()).options(to("all").priority(1)).await.unwrap();
    let ids: Vec<_> = handles.iter().map(|it| it.id().clone()).collect();
    assert_eq!(lanes_of(client, ids.clone()).await, ["all", "own", "all"]);
    let mut priorities = Vec::new();
    for id in &ids {
        priorities.push(rig.record(id).await.job.priority);
    }
    assert_eq!(priorities, [1, 1, 3]);
    let handles = client.enqueue_many([ByHand(None), ByHand(Some(1))]).await.unwrap();
    let ids = handles.iter().map(|it| it.id().clone());
    assert_eq!(lanes_of(client, ids).await, ["of the type", "tenant 1"]);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_lane_is_an_error_when_awaited() {
    let rig = WorkerRig::new();
    let client = &rig.client;
    let errors = [
        client.enqueue(work("x")).lane("").await.unwrap_err(),
        client.enqueue(bill("a\0b")).await.unwrap_err(),
        client.enqueue_many([bill("fine"), bill("")]).await.unwrap_err(),
        client.start(Flow::first(work("x").with(to(" ")))).await.unwrap_err(),
    ];
    for error in errors {
        assert!(error.to_string().contains("lane name"), "{error}");
        assert!(matches!(error, EnqueueError::Invalid(InvalidJob::Name(_))), "{error}");
    }
    assert_eq!(client.queues().await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn steps_of_a_flow_have_lanes_and_handlers_see_them() {
    let seen: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
    let (first, second) = (Arc::clone(&seen), Arc::clone(&seen));
    let handlers = Handlers::new()
        .on(move |_: Bill, cx: Context| {
            first.lock().unwrap().push(cx.lane().map(ToString::to_string));
            async { JobResult::Ok(String::new()) }
        })
        .on(move |_: ByHand, cx: Context| {
            second.lock().unwrap().push(cx.lane().map(ToString::to_string));
            async { JobResult::Ok(()) }
        });
    let harbor = Harbor::new(handlers);
    let flow = Flow::first(bill("acme")).discard().then(bill("b").with(to("c"))).discard();
    harbor.client().start(flow.then(ByHand(Some(1)))).await.unwrap();
    harbor.run_until_idle().await;
    let expected = ["acme", "c", "tenant 1"].map(|lane| Some(lane.to_owned()));
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn flows_as_json_name_lanes() {
    let rig = WorkerRig::new();
    let document = flow_json::parse(
        br#"{"flow": {"chain": [
            {"type": "a", "lane": "acme"},
            {"group": [{"type": "b", "lane": null}, {"type": "c", "lane": "x y"}]}
        ]}}"#,
    );
    let flow = rig.client.start_document(document.unwrap()).await.unwrap();
    let tree = flow.tree(100).await.unwrap();
    let mut lanes = Vec::new();
    for member in &tree.members {
        lanes.extend(lane_of(&rig.client, &member.id).await);
    }
    lanes.sort();
    assert_eq!(lanes, ["acme", "x y"]);
    for (lane, says) in
        [("\"\"", "$.flow.lane: lane name is empty"), ("1", "$.flow.lane: expected a text")]
    {
        let text = format!(r#"{{"flow": {{"type": "a", "lane": {lane}}}}}"#);
        let error = flow_json::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(says), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn schedules_make_jobs_in_lanes_and_equal_ones_stay() {
    let rig = WorkerRig::new();
    let minutely = |account: &str| Schedule::every("minutely", 60 * SECOND).job(bill(account));
    let schedules = rig.client.schedules();
    schedules.put(minutely("acme")).await.unwrap();
    let info = schedules.get("minutely").await.unwrap().unwrap();
    assert_eq!(info.details.unwrap().lane.as_deref(), Some("acme"));
    schedules.put(minutely("acme")).await.unwrap();
    let again = schedules.get("minutely").await.unwrap().unwrap();
    assert_eq!(again.record.revision, info.record.revision);
    schedules.put(minutely("acme").options(to("other"))).await.unwrap();
    let changed = schedules.get("minutely").await.unwrap().unwrap();
    assert_eq!(changed.details.unwrap().lane.as_deref(), Some("other"));
    let worker = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    rig.log.until("fired minutely@").await;
    worker.shutdown().await.unwrap();
    let jobs = rig.client.jobs(taskharbor::Filter::all().lane(LaneName::new("other").unwrap()));
    assert_eq!(jobs.list(10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_handler_that_is_called_by_itself_sees_a_lane() {
    async fn tell(_: Bill, cx: Context) -> JobResult<String> {
        Ok(cx.lane().map(ToString::to_string).unwrap_or_default())
    }
    for (called, lane) in
        [(call(tell, bill("acme"), ()), "acme"), (call(tell, bill("acme"), ()).lane("b"), "b")]
    {
        let outcome = called.await.unwrap();
        assert!(matches!(outcome, taskharbor::Outcome::Done(seen) if seen == lane));
    }
}
