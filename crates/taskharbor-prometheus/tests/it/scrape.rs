//! The scraped metrics agree with the store after jobs of every outcome.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use taskharbor::{
    Admin, AnyDriver, Client, Context, Counts, Driver, DriverError, Exponential, Filter, Handlers,
    Job, JobError, JobResult, Options, Outcome, Schedule, State, Timestamp, Worker,
    testing::Harbor,
};
use taskharbor_core::{
    Blob,
    admin::List,
    driver::{Announce, Incarnation, Limits},
    name::Holder,
};
use taskharbor_prometheus::{CONTENT_TYPE, Metrics, QueueGauges};

use crate::{samples, sum};

const SECOND: Duration = Duration::from_secs(1);

/// What the handler does with the job.
#[derive(Clone, Copy, Serialize, Deserialize)]
enum End {
    Succeed,
    FailOnce,
    FailPermanently,
    Snooze,
    Panic,
    WaitForCancel,
}

#[derive(Serialize, Deserialize, Job)]
#[job(type = "work", queue = "busy", output = u32)]
struct Work(End);

#[derive(Serialize, Deserialize, Job)]
#[job(type = "other:work", queue = "calm")]
struct Calm;

async fn work(Work(end): Work, cx: Context) -> JobResult<Outcome<u32>> {
    tokio::time::sleep(SECOND).await;
    match end {
        End::FailOnce if cx.attempt() == 1 => Err("for now")?,
        End::FailPermanently => return Err(JobError::unrecoverable("permanently")),
        End::Panic => panic!("the handler panics"),
        End::Snooze if cx.delivery() == 1 => return Ok(Outcome::Snooze(SECOND)),
        End::WaitForCancel => {
            cx.cancelled().await;
            Err("cancelled")?;
        }
        _ => {}
    }
    Ok(Outcome::Done(1))
}

async fn calm(_: Calm, _: Context) -> JobResult {
    Ok(())
}

/// What a store says about its jobs, in numbers that metrics have too.
#[derive(Debug, Default, PartialEq)]
struct Totals {
    jobs: BTreeMap<(String, &'static str), usize>,
    failures: usize,
    deliveries: usize,
}

async fn totals(driver: &AnyDriver) -> Totals {
    let mut totals = Totals::default();
    let now = driver.now().await.unwrap();
    for queue in driver.counts(Counts::new(now)).await.unwrap() {
        for &state in State::ALL {
            let key = (queue.queue.to_string(), state.as_str());
            totals.jobs.insert(key, queue.states.get(state));
        }
    }
    let list = List::new(Filter::all(), Limits::MAX_PAGE, now);
    for job in driver.list(list).await.unwrap().items {
        let record = driver.inspect(job.id, now).await.unwrap().unwrap();
        totals.failures += record.job.attempts as usize;
        totals.deliveries += record.job.deliveries as usize;
    }
    totals
}

#[expect(clippy::cast_precision_loss, reason = "there are a few hundred jobs")]
#[tokio::test(start_paused = true)]
async fn what_is_scraped_is_what_the_store_says() {
    let metrics = Metrics::new();
    let handlers = Handlers::new().on(work).on(calm);
    let observer = metrics.clone();
    let harbor = Harbor::configured(handlers, |worker| {
        worker.observer(observer).retry(Exponential::default().max_attempts(2))
    });
    let client = Client::builder(harbor.driver()).observer(metrics.clone()).build().unwrap();
    for end in [End::Succeed, End::FailOnce, End::FailPermanently, End::Snooze, End::Panic] {
        for _ in 0..20 {
            client.enqueue(Work(end)).await.unwrap();
        }
    }
    client.enqueue_many((0..40).map(|_| Calm)).await.unwrap();
    for _ in 0..3 {
        client.enqueue(Calm).idempotency_key("once").await.unwrap();
    }
    client.enqueue(Calm).delay(Duration::from_secs(86_400)).await.unwrap();
    harbor.advance(Duration::from_secs(3_600)).await;
    let stopped = client.enqueue(Work(End::WaitForCancel)).await.unwrap();
    harbor.advance(SECOND * 2).await;
    client.job(stopped.id()).cancel().await.unwrap();
    harbor.advance(Duration::from_secs(600)).await;

    let said = totals(harbor.driver()).await;
    metrics.queues().refresh(harbor.driver()).await.unwrap();
    let scraped = samples(&metrics.encode());
    for ((queue, state), count) in &said.jobs {
        let labels = [("queue", queue.as_str()), ("state", state)];
        assert_eq!(sum(&scraped, "taskharbor_queue_jobs", &labels), *count as f64, "{labels:?}");
    }
    let count_of = |state| -> f64 {
        said.jobs.iter().filter(|((_, it), _)| *it == state).map(|(_, count)| *count as f64).sum()
    };
    let enqueued = |new| sum(&scraped, "taskharbor_jobs_enqueued_total", &[("new", new)]);
    assert_eq!(enqueued("true"), said.jobs.values().sum::<usize>() as f64);
    assert_eq!(enqueued("false"), 2.0);
    let finished =
        |outcome| sum(&scraped, "taskharbor_jobs_finished_total", &[("outcome", outcome)]);
    assert_eq!(finished("done"), count_of("done"));
    assert_eq!(finished("dead"), count_of("dlq"));
    assert_eq!(finished("cancelled"), count_of("cancelled"));
    assert_eq!(finished("retried") + finished("dead"), said.failures as f64);
    assert_eq!(finished("released"), 20.0, "each snooze is a release");
    assert_eq!(finished("lost"), 0.0);
    let all = sum(&scraped, "taskharbor_jobs_finished_total", &[]);
    assert_eq!(all, said.deliveries as f64);
    assert_eq!(sum(&scraped, "taskharbor_jobs_started_total", &[]), all);
    assert_eq!(sum(&scraped, "taskharbor_job_wait_seconds_count", &[]), all);
    assert_eq!(sum(&scraped, "taskharbor_worker_info", &[("name", "harbor")]), 1.0);
    assert_eq!(sum(&scraped, "taskharbor_store_up", &[]), 1.0);
    let ended = finished("done") + finished("dead");
    assert_eq!(sum(&scraped, "taskharbor_job_attempts_count", &[]), ended);
    let attempts = finished("retried") + ended;
    assert_eq!(sum(&scraped, "taskharbor_job_attempts_sum", &[]), attempts);
    let runs = sum(&scraped, "taskharbor_job_run_seconds_count", &[("type", "work")]);
    let seconds = sum(&scraped, "taskharbor_job_run_seconds_sum", &[("type", "work")]);
    assert!(seconds >= runs, "each run of this type takes a second or more");
    assert!(runs >= 120.0, "{runs}");
}

#[tokio::test(start_paused = true)]
async fn a_job_waits_from_the_time_it_became_available_by_the_given_clock() {
    let harbor = Harbor::new(Handlers::new());
    let clock = harbor.driver().clock().await.unwrap();
    let metrics = Metrics::with_clock(clock);
    harbor.client().enqueue(Calm).delay(SECOND * 60).await.unwrap();
    harbor.advance(SECOND * 67).await;
    let observer = metrics.clone();
    let harbor = harbor.start_configured(Handlers::new().on(calm), |it| it.observer(observer));
    harbor.run_until_idle().await;
    let scraped = samples(&metrics.encode());
    let waited = sum(&scraped, "taskharbor_job_wait_seconds_sum", &[("queue", "calm")]);
    assert!((7.0..7.1).contains(&waited), "{waited}");
    assert_eq!(sum(&scraped, "taskharbor_job_wait_seconds_bucket", &[("le", "10.0")]), 1.0);
    assert_eq!(sum(&scraped, "taskharbor_job_wait_seconds_bucket", &[("le", "5.0")]), 0.0);
}

#[tokio::test(start_paused = true)]
async fn the_gauges_tell_what_is_late_and_what_is_paused() {
    let harbor = Harbor::new(Handlers::new());
    let client = harbor.client();
    client.enqueue(Calm).await.unwrap();
    client.queue("calm").pause().await.unwrap();
    let job = Calm.with(Options::new().queue("scheduled"));
    let schedule = Schedule::every("tick", SECOND * 60).job(job);
    client.schedules().put(schedule).await.unwrap();
    harbor.advance(SECOND * 90).await;

    let gauges = QueueGauges::new();
    assert!(samples(&gauges.encode()).is_empty());
    gauges.refresh(harbor.driver()).await.unwrap();
    let scraped = samples(&gauges.encode());
    assert_eq!(sum(&scraped, "taskharbor_queue_paused", &[("queue", "calm")]), 1.0);
    assert!(scraped.keys().any(|series| series.contains("taskharbor_queue_workers{")));
    assert_eq!(sum(&scraped, "taskharbor_queue_workers", &[("queue", "calm")]), 0.0);
    let oldest = sum(&scraped, "taskharbor_queue_oldest_seconds", &[("queue", "calm")]);
    assert!((90.0..91.0).contains(&oldest), "{oldest}");
    let late = sum(&scraped, "taskharbor_schedule_late_seconds", &[("schedule", "tick")]);
    assert!((29.0..=91.0).contains(&late), "{late}");

    client.queue("calm").resume().await.unwrap();
    client.schedules().remove("tick").await.unwrap();
    let harbor = harbor.start(Handlers::new().on(calm));
    harbor.run_until_idle().await;
    gauges.refresh(harbor.driver()).await.unwrap();
    let scraped = samples(&gauges.encode());
    assert_eq!(sum(&scraped, "taskharbor_queue_paused", &[]), 0.0);
    assert_eq!(sum(&scraped, "taskharbor_queue_oldest_seconds", &[]), 0.0);
    assert!(!scraped.keys().any(|series| series.contains("tick")), "the schedule is removed");
}

fn announced(holder: &str, info: &str, now: Timestamp) -> Announce {
    let (holder, info) = (Holder::new(holder).unwrap(), Blob::from(info.as_bytes()));
    Announce::new(holder, Incarnation::from_bits(1), info, SECOND * 30, now)
}

#[tokio::test(start_paused = true)]
async fn slots_and_workers_are_those_that_are_announced() {
    let harbor = Harbor::new(Handlers::new());
    let (driver, gauges) = (harbor.driver(), QueueGauges::new());
    harbor.client().enqueue(Calm).await.unwrap();
    let now = driver.now().await.unwrap();
    let queue = r#"{"queues":[{"name":"mail","slots":8,"busy":3}]}"#;
    for holder in ["a", "b"] {
        driver.announce(announced(holder, queue, now)).await.unwrap();
    }
    gauges.refresh(driver).await.unwrap();
    let scraped = samples(&gauges.encode());
    let slots = |state| sum(&scraped, "taskharbor_slots", &[("queue", "mail"), ("state", state)]);
    assert_eq!((slots("busy"), slots("free")), (6.0, 10.0));
    assert_eq!(sum(&scraped, "taskharbor_queue_workers", &[("queue", "mail")]), 2.0);
    let shows = |text: &str, queue: &str| {
        text.contains(&format!("taskharbor_queue_workers{{queue=\"{queue}\"}}"))
    };
    assert!(shows(&gauges.encode(), "calm"));
    // This one may serve any queue.
    let more = r#"{"queues":[{"name":"mail","slots":8}],"queues_left_out":2}"#;
    driver.announce(announced("c", more, now)).await.unwrap();
    gauges.refresh(driver).await.unwrap();
    let text = gauges.encode();
    assert!(!shows(&text, "calm") && shows(&text, "mail"), "{text}");
    harbor.advance(SECOND * 31).await;
    gauges.refresh(driver).await.unwrap();
    let text = gauges.encode();
    assert!(shows(&text, "calm") && !shows(&text, "mail"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn slots_of_a_schedule_for_which_no_job_was_stored_are_counted() {
    let (harbor, gauges) = (Harbor::new(Handlers::new()), QueueGauges::new());
    let schedule =
        Schedule::every("tick", SECOND * 60).job(Calm).missed(taskharbor::Missed::Latest);
    harbor.client().schedules().put(schedule).await.unwrap();
    harbor.advance(SECOND * 601).await;
    let harbor = harbor.start(Handlers::new().on(calm));
    harbor.advance(SECOND).await;
    gauges.refresh(harbor.driver()).await.unwrap();
    let scraped = samples(&gauges.encode());
    let skipped = sum(&scraped, "taskharbor_schedule_skipped_total", &[("schedule", "tick")]);
    let record = harbor.client().schedules().get("tick").await.unwrap().unwrap();
    let totals = record.record.totals;
    assert!(skipped >= 5.0 && totals.stored >= 1, "{skipped}, {totals:?}");
}

#[tokio::test]
async fn a_worker_is_shown_with_its_version_until_it_stops() {
    let driver = taskharbor::connect("memory:").await.unwrap();
    let metrics = Metrics::new();
    let start = || {
        let worker = Worker::builder(&driver).handlers(Handlers::new().on(calm)).queue("calm", 1);
        let worker = worker.name("w").version("1.4").observer(metrics.clone());
        worker.build().unwrap().start()
    };
    let (first, second) = (start(), start());
    let info = || {
        let scraped = samples(&metrics.encode());
        sum(&scraped, "taskharbor_worker_info", &[("name", "w"), ("version", "1.4")])
    };
    while info() < 2.0 {
        tokio::task::yield_now().await;
    }
    first.shutdown().await.unwrap();
    assert_eq!(info(), 1.0);
    second.shutdown().await.unwrap();
    assert!(!metrics.encode().contains("taskharbor_worker_info{"));
}

#[tokio::test]
async fn a_store_that_cannot_be_read_shows_no_old_gauges() {
    let driver = taskharbor::connect("memory:").await.unwrap();
    Client::new(&driver).enqueue(Calm).await.unwrap();
    let metrics = Metrics::new();
    metrics.queues().refresh(&driver).await.unwrap();
    assert_eq!(sum(&samples(&metrics.encode()), "taskharbor_queue_jobs", &[]), 1.0);
    driver.close().await.unwrap();
    let refreshed = metrics.queues().refresh(&driver).await;
    assert!(matches!(refreshed, Err(DriverError::Closed)), "{refreshed:?}");
    assert!(!metrics.encode().contains("taskharbor_queue_jobs{"));
}

#[test]
fn the_text_is_what_the_media_type_says() {
    let text = Metrics::new().encode();
    assert!(CONTENT_TYPE.starts_with("application/openmetrics-text"));
    assert!(text.ends_with("# EOF\n"), "{text}");
    for line in text.lines().filter(|line| line.starts_with("# HELP")) {
        assert!(line.starts_with("# HELP taskharbor_") && line.ends_with('.'), "{line}");
    }
}

#[test]
fn a_registry_of_the_application_gets_all_metrics() {
    let metrics = Metrics::new();
    let mut registry = prometheus_client::registry::Registry::default();
    metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert_eq!(text, metrics.encode());
}
