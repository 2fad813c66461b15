//! The live view: one call per second to the store for any number of browsers, and none without a
//! browser.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    body::{Body, HttpBody},
    http::{Method, StatusCode, header},
};
use serde_json::Value;
use taskharbor::{Admin, AnyDriver, Driver, DriverError, JobId, JobType, QueueName};
use taskharbor_core::{NewJob, driver::Enqueue, job::JobSet};
use taskharbor_memory::MemoryDriver;
use taskharbor_testkit::{Answer, Call, Hook, Intercept, Next, Op};
use taskharbor_web::{Access, Role, StoreKind, Stores, Web, router};
use tokio::time::{Instant, advance, sleep};
use tower::ServiceExt;

use crate::rig::{Reply, Rig, request};

const SECOND: Duration = Duration::from_secs(1);

/// The calls of a store, and whether it is away.
#[derive(Clone, Default)]
struct Watched {
    calls: Arc<Mutex<Vec<(Op, Instant)>>>,
    is_away: Arc<AtomicBool>,
    /// Whether an exact count is never answered.
    is_too_large: Arc<AtomicBool>,
}

impl<D: Driver + Admin> Hook<D> for Watched {
    async fn around(&self, call: Call, next: Next<'_, D>) -> Result<Answer, DriverError> {
        self.calls.lock().unwrap().push((call.op(), Instant::now()));
        if self.is_away.load(Ordering::Relaxed) {
            return Err(DriverError::unavailable("the secret host db-7 is away"));
        }
        let is_exact = matches!(&call, Call::Counts { request } if request.at_most.is_none());
        if is_exact && self.is_too_large.load(Ordering::Relaxed) {
            return std::future::pending().await;
        }
        next.make(call).await
    }
}

impl Watched {
    fn count(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    /// The operations since the last look.
    fn take(&self) -> Vec<(Op, Instant)> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }
}

fn rig() -> (Rig, Watched) {
    let watched = Watched::default();
    let driver = AnyDriver::new(Intercept::new(MemoryDriver::new(), watched.clone()));
    let access = Access::new("ada", Role::Viewer).with_workers();
    (Rig::on(driver, Web::new().anonymous(access)), watched)
}

/// A stream of events.
struct Stream(Body);

impl Stream {
    async fn open(rig: &Rig) -> Self {
        let response = rig.open(request(Method::GET, "events", Body::empty())).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
        assert_eq!(response.headers()["x-accel-buffering"], "no");
        Self(response.into_body())
    }

    /// The next piece as it is.
    async fn next_text(&mut self) -> Option<String> {
        let body = &mut self.0;
        let frame =
            std::future::poll_fn(|cx| std::pin::Pin::new(&mut *body).poll_frame(cx)).await?;
        let bytes = frame.unwrap().into_data().unwrap();
        Some(String::from_utf8(bytes.to_vec()).unwrap())
    }

    /// The next event: its name and its data.
    async fn next(&mut self) -> (String, Value) {
        loop {
            let text = self.next_text().await.unwrap();
            if text.starts_with(':') {
                continue;
            }
            let (name, data) =
                text.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
            let data = data.strip_suffix("\n\n").unwrap();
            return (name.to_owned(), serde_json::from_str(data).unwrap());
        }
    }

    /// The next event of this name.
    async fn until(&mut self, name: &str) -> Value {
        loop {
            let (found, data) = self.next().await;
            if found == name {
                return data;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_before_a_browser_connects() {
    let (rig, watched) = rig();
    sleep(600 * SECOND).await;
    rig.send(request(Method::GET, "history", Body::empty())).await.ok();
    sleep(600 * SECOND).await;
    assert_eq!(watched.take(), [], "a history of nothing asks for nothing");
}

#[tokio::test(start_paused = true)]
async fn twenty_browsers_cost_one_call_a_second() {
    let (rig, watched) = rig();
    let mut streams = Vec::new();
    for _ in 0..20 {
        streams.push(Stream::open(&rig).await);
    }
    for stream in &mut streams {
        stream.until("overview").await;
    }
    // The clock of the store has been started, and the first questions have been asked.
    sleep(5 * SECOND).await;
    watched.take();
    let reading = tokio::spawn(async move {
        let mut events = 0_usize;
        let end = Instant::now() + 60 * SECOND;
        while Instant::now() < end {
            for stream in &mut streams {
                stream.until("overview").await;
                events += 1;
            }
        }
        (streams, events)
    });
    sleep(60 * SECOND).await;
    let calls = watched.take();
    assert!((55..=61).contains(&calls.len()), "{} calls in a minute", calls.len());
    let gaps = calls.windows(2).map(|pair| pair[1].1.duration_since(pair[0].1));
    assert!(gaps.min().unwrap() >= SECOND, "never two at once");
    let counts = calls.iter().filter(|(op, _)| *op == Op::Counts).count();
    assert!(counts >= 40, "most are counts: {calls:?}");
    let (streams, events) = reading.await.unwrap();
    let per_stream = events / streams.len();
    assert!((50..=65).contains(&per_stream), "{per_stream} overviews a minute and browser");
}

#[tokio::test(start_paused = true)]
async fn the_calls_end_when_the_last_browser_is_gone() {
    let (rig, watched) = rig();
    let mut one = Stream::open(&rig).await;
    let two = Stream::open(&rig).await;
    one.until("overview").await;
    drop(two);
    sleep(30 * SECOND).await;
    assert!(watched.count() > 20, "one still looks");
    drop(one);
    // A stream notices at its next event that its client is gone.
    sleep(20 * SECOND).await;
    watched.take();
    sleep(600 * SECOND).await;
    assert_eq!(watched.take(), []);
    let mut again = Stream::open(&rig).await;
    again.until("overview").await;
    assert!(watched.count() > 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_for_the_overview_is_a_look_of_fifteen_seconds() {
    let (rig, watched) = rig();
    for _ in 0..50 {
        rig.get("overview").await.ok();
    }
    assert!(watched.count() <= 2, "they share one count: {}", watched.count());
    sleep(14 * SECOND).await;
    assert!((8..=16).contains(&watched.count()), "{} calls", watched.count());
    sleep(5 * SECOND).await;
    watched.take();
    sleep(600 * SECOND).await;
    assert_eq!(watched.take(), []);
}

#[tokio::test(start_paused = true)]
async fn jobs_are_seen_coming_within_two_counts() {
    let (rig, _watched) = rig();
    let mut stream = Stream::open(&rig).await;
    let first = stream.until("overview").await;
    assert_eq!(first["queues"], Value::Array(Vec::new()));
    let job = serde_json::json!({"jobs": [{"queue": "mail", "type": "email:send"}]});
    rig.post("work/enqueue", &job).await.ok();
    let began = Instant::now();
    let seen = loop {
        let overview = stream.until("overview").await;
        if overview["queues"][0]["ready"] == 1 {
            break overview;
        }
    };
    assert!(began.elapsed() <= 4 * SECOND, "{:?}", began.elapsed());
    assert_eq!(seen["queues"][0]["queue"], "mail");
    assert_eq!(rig.get("overview").await.ok()["queues"][0]["ready"], 1);
    sleep(15 * SECOND).await;
    let history = rig.get("history?minutes=10").await.ok();
    assert_eq!(history["step_s"], 1, "{history}");
    assert_eq!(rig.get("history?minutes=60").await.problem(), (400, "out_of_range".to_owned()));
    assert_eq!(rig.get("history?queue=").await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test(start_paused = true)]
async fn a_stream_says_once_that_the_store_is_away_and_once_that_it_is_back() {
    let (rig, watched) = rig();
    let mut stream = Stream::open(&rig).await;
    stream.until("overview").await;
    watched.is_away.store(true, Ordering::Relaxed);
    let away = stream.until("store").await;
    assert_eq!(away["away"]["code"], "store_unavailable");
    assert!(away["away"]["since"].is_string() && !away.to_string().contains("db-7"), "{away}");
    let overview = rig.get("overview").await.ok();
    assert_eq!(overview["away"]["code"], "store_unavailable", "what was known stays: {overview}");
    watched.take();
    sleep(60 * SECOND).await;
    let calls = watched.take().len();
    assert!((20..=40).contains(&calls), "a store that is away is asked every 2 s: {calls}");
    watched.is_away.store(false, Ordering::Relaxed);
    loop {
        let (name, data) = stream.next().await;
        if name == "store" {
            assert_eq!(data["away"], Value::Null);
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_count_that_takes_too_long_does_not_mean_that_the_store_is_away() {
    let (rig, watched) = rig();
    let queue = QueueName::new("mail").unwrap();
    for _ in 0..21 {
        let now = rig.driver.now().await.unwrap();
        let sets = (0..500).map(|_| {
            let id = JobId::generate(now).unwrap();
            JobSet::from(NewJob::new(id, queue.clone(), JobType::new("t").unwrap(), b"1".to_vec()))
        });
        rig.driver.enqueue(Enqueue::new(sets.collect(), now)).await.unwrap();
    }
    watched.is_too_large.store(true, Ordering::Relaxed);
    let mut stream = Stream::open(&rig).await;
    let (end, mut counted) = (Instant::now() + 120 * SECOND, 0);
    while Instant::now() < end {
        let (name, data) = stream.next().await;
        assert!(name != "store" || data["away"].is_null(), "{data}");
        counted +=
            usize::from(name == "overview" && data["queues"][0]["ready"].as_u64() >= Some(10_000));
    }
    let exact = |(op, at): &(Op, Instant)| (*op == Op::Counts).then_some(*at);
    let asked: Vec<_> = watched.take().iter().filter_map(exact).collect();
    let gap = asked.windows(2).map(|pair| pair[1].duration_since(pair[0])).max().unwrap();
    assert!(gap >= 10 * SECOND, "a count without a bound was asked for: {gap:?}");
    assert!(counted > 60, "{counted} overviews");
}

#[tokio::test(start_paused = true)]
async fn one_call_at_a_time_reads_a_whole_store() {
    let (rig, watched) = rig();
    watched.is_too_large.store(true, Ordering::Relaxed);
    let now = rig.driver.now().await.unwrap().to_string();
    let (exact, bounded) =
        (serde_json::json!({"now": now}), serde_json::json!({"now": now, "at_most": 1_000}));
    // The client goes away, and the store works on.
    let first = tokio::time::timeout(SECOND, rig.post("admin/counts", &exact)).await;
    assert!(first.is_err());
    watched.take();
    for (call, body) in [("admin/counts", &exact), ("admin/check", &serde_json::json!({}))] {
        let refused = rig.post(call, body).await;
        assert_eq!(refused.problem(), (503, "busy".to_owned()), "{call}");
    }
    assert_eq!(watched.take(), [], "the store was not asked");
    rig.post("admin/counts", &bounded).await.ok();
    // The store is not asked for ever.
    sleep(600 * SECOND).await;
    rig.post("admin/check", &serde_json::json!({})).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_opened_late_is_away_until_then_and_the_others_are_served() {
    let driver = AnyDriver::new(MemoryDriver::new());
    let stores = Stores::new().add("here", StoreKind::Memory, &driver).unwrap();
    let (stores, late) = stores.add_late("main", StoreKind::Postgres).unwrap();
    let web = Web::new().anonymous(Access::new("ada", Role::Admin).with_workers());
    let router = router(stores, web.share_answers(Duration::ZERO));
    let open = async |path: &str| {
        let mut sent = request(Method::GET, path, Body::empty());
        if let Some(path) = path.strip_prefix('/') {
            *sent.uri_mut() = format!("/{path}").parse().unwrap();
        }
        router.clone().oneshot(sent).await.unwrap()
    };
    let get = async |path: &str| Reply::of(open(path).await).await;
    let names = get("/v1/stores").await.ok();
    assert_eq!((&names[0]["name"], &names[1]["name"]), (&"here".into(), &"main".into()));
    get("/v1/here/jobs").await.ok();
    for path in ["jobs", "flows", "schedules", "queues/mail/lanes", "driver/limits"] {
        assert_eq!(get(path).await.problem(), (503, "store_unavailable".to_owned()), "{path}");
    }
    let overview = get("overview").await.ok();
    assert_eq!(overview["away"], serde_json::json!({"since": null, "code": "store_unavailable"}));
    for path in ["history", "sweeps", "actions"] {
        get(path).await.ok();
    }
    let mut stream = Stream(open("events").await.into_body());
    assert_eq!(stream.until("store").await["away"]["code"], "store_unavailable");
    late.open(&driver);
    assert_eq!(stream.until("store").await["away"], Value::Null);
    get("jobs").await.ok();
    assert_eq!(get("overview").await.ok()["away"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn streams_are_bounded_and_say_so() {
    let (rig, _watched) = rig();
    let mut streams = Vec::new();
    for _ in 0..100 {
        streams.push(Stream::open(&rig).await);
    }
    let refused = rig.get("events").await;
    assert_eq!(refused.problem(), (503, "too_many_streams".to_owned()));
    rig.get("overview").await.ok();
    streams.clear();
    // Their tasks notice.
    advance(20 * SECOND).await;
    sleep(SECOND).await;
    Stream::open(&rig).await.until("overview").await;
}
