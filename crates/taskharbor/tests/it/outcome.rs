//! The end of a job, by the result of its handler.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use taskharbor::{
    Context, Exponential, Failed, Flow, Handlers, Job, JobError, JobResult, Options, Outcome,
    RetryPolicy, State,
};

use crate::rig::{DONE, SECOND, Work, WorkerRig, handler, work};

#[tokio::test(start_paused = true)]
async fn a_job_that_succeeds_is_done_with_its_output() {
    let rig = WorkerRig::new();
    let handle = rig.client.enqueue(work("a")).await.unwrap();
    let run = rig.worker(handler(|job, _| async move {
        assert_eq!(job, work("a"));
        Ok(Outcome::Done(42))
    }));
    let _running = run.build().unwrap().start();
    assert_eq!(handle.wait().await.unwrap(), 42);
    let record = rig.record(handle.id()).await;
    assert_eq!((record.state, record.job.attempts, record.job.deliveries), (State::Done, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_fails_is_tried_again_after_the_policys_delay() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    let log = Arc::clone(&rig.log);
    let run = rig.worker(handler(move |_, cx| {
        log.note(format!("attempt {}", cx.attempt()));
        async move { if cx.attempt() < 4 { Err("not yet".into()) } else { DONE } }
    }));
    let start = rig.now();
    let _running = run.build().unwrap().start();
    let record = rig.finished(&id).await;
    assert_eq!((record.state, record.job.attempts, record.job.deliveries), (State::Done, 3, 4));
    assert_eq!(record.errors.len(), 3);
    let times = [1, 2, 3, 4].map(|n| rig.log.time_of(&format!("attempt {n}")).since(start));
    assert_eq!(times, [0, 1, 3, 7].map(Duration::from_secs));
}

/// Keeps the random numbers that it is given.
#[derive(Clone, Default)]
struct Drawn(Arc<Mutex<Vec<f64>>>);

impl RetryPolicy for Drawn {
    fn delay(&self, failed: &Failed<'_>) -> Duration {
        self.0.lock().unwrap().push(failed.chance);
        SECOND
    }

    fn max_attempts(&self) -> u32 {
        41
    }
}

/// What a policy is given by a worker with this seed, for one job that always fails.
async fn drawn_with(seed: u64) -> Vec<f64> {
    let (rig, policy) = (WorkerRig::new(), Drawn::default());
    let id = rig.enqueue("a").await;
    let run = rig.worker(handler(|_, _| async { Err("no luck".into()) }));
    let _running = run.seed(seed).retry(policy.clone()).build().unwrap().start();
    assert_eq!(rig.finished(&id).await.job.attempts, 41);
    let drawn = policy.0.lock().unwrap();
    drawn.clone()
}

#[tokio::test(start_paused = true)]
async fn the_policy_is_given_another_random_number_for_each_retry() {
    let drawn = drawn_with(7).await;
    assert!(drawn.len() >= 40 && drawn.iter().all(|chance| (0.0..1.0).contains(chance)));
    let different: HashSet<_> = drawn.iter().map(|chance| chance.to_bits()).collect();
    assert_eq!(different.len(), drawn.len(), "{drawn:?}");
    assert_eq!(drawn_with(7).await, drawn);
    assert_ne!(drawn_with(8).await, drawn);
}

/// Runs a job that always fails; answers how often it ran and what it came to.
async fn always_failing(rig: &WorkerRig, options: Options, policy: Exponential) -> (u32, String) {
    let ran = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&ran);
    let handle = rig.client.enqueue(work("a")).options(options).await.unwrap();
    let run = rig.worker(handler(move |_, _| {
        counter.fetch_add(1, Ordering::SeqCst);
        async { Err("no luck".into()) }
    }));
    let _running = run.retry(policy).build().unwrap().start();
    let record = rig.finished(handle.id()).await;
    assert_eq!(record.state, State::Dlq);
    assert_eq!(record.job.attempts, ran.load(Ordering::SeqCst));
    assert_eq!(record.job.last_error.unwrap().as_str(), "no luck");
    (ran.load(Ordering::SeqCst), record.reason.unwrap().to_string())
}

#[tokio::test(start_paused = true)]
async fn a_job_is_dead_lettered_at_exactly_its_max_attempts() {
    for max_attempts in [1, 2, 3, 25] {
        let options = Options::new().max_attempts(max_attempts);
        let (ran, reason) = always_failing(&WorkerRig::new(), options, Exponential::new()).await;
        assert_eq!(ran, max_attempts);
        assert!(reason.ends_with("last error: no luck"), "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_says_nothing_gets_the_policys_attempts() {
    let policy = Exponential::new().max_attempts(4);
    assert_eq!(always_failing(&WorkerRig::new(), Options::new(), policy).await.0, 4);
    assert_eq!(always_failing(&WorkerRig::new(), Options::new(), Exponential::new()).await.0, 20);
    let own = Options::new().max_attempts(2);
    assert_eq!(always_failing(&WorkerRig::new(), own, policy).await.0, 2);
}

#[tokio::test(start_paused = true)]
async fn an_unrecoverable_failure_is_dead_lettered_at_once() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    let run = rig.worker(handler(|_, _| async { Err(JobError::unrecoverable("no such user")) }));
    let _running = run.build().unwrap().start();
    let record = rig.finished(&id).await;
    assert_eq!((record.state, record.job.attempts, record.job.deliveries), (State::Dlq, 1, 1));
    assert_eq!(record.reason.unwrap().as_str(), "no such user");
}

#[tokio::test(start_paused = true)]
async fn retry_after_sets_the_delay_and_counts_as_an_attempt() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    let run = rig.worker(handler(|_, cx| async move {
        match cx.attempt() {
            1 => Err(JobError::retry_after(500 * SECOND, "rate limited")),
            _ => DONE,
        }
    }));
    let start = rig.now();
    let _running = run.build().unwrap().start();
    let record = rig.finished(&id).await;
    assert_eq!((record.state, record.job.attempts), (State::Done, 1));
    assert_eq!(record.finished_at.unwrap().since(start), 500 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn retry_after_does_not_save_a_job_from_its_last_attempt() {
    let rig = WorkerRig::new();
    let handle = rig.client.enqueue(work("a")).max_attempts(2).await.unwrap();
    let run = rig.worker(handler(|_, _| async { Err(JobError::retry_after(SECOND, "wait")) }));
    let _running = run.build().unwrap().start();
    let record = rig.finished(handle.id()).await;
    assert_eq!((record.state, record.job.attempts), (State::Dlq, 2));
}

#[tokio::test(start_paused = true)]
async fn a_snoozed_job_comes_back_without_an_attempt_charged() {
    let rig = WorkerRig::new();
    let handle = rig.client.enqueue(work("a")).max_attempts(1).await.unwrap();
    let run = rig.worker(handler(|_, cx| async move {
        assert_eq!(cx.attempt(), 1);
        Ok(if cx.delivery() < 10 { Outcome::Snooze(60 * SECOND) } else { Outcome::Done(9) })
    }));
    let start = rig.now();
    let _running = run.build().unwrap().start();
    assert_eq!(handle.wait().await.unwrap(), 9);
    let record = rig.record(handle.id()).await;
    assert_eq!((record.job.attempts, record.job.deliveries), (0, 10));
    assert_eq!(record.started_at.unwrap().since(start), 540 * SECOND);
    assert_eq!(rig.log.count("released Snoozed"), 9);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_snoozes_for_no_time_comes_back_a_millisecond_later() {
    let rig = WorkerRig::new();
    let handle = rig.client.enqueue(work("a")).await.unwrap();
    let log = Arc::clone(&rig.log);
    let run = rig.worker(handler(move |_, cx| {
        log.note(format!("delivery {}", cx.delivery()));
        let again = cx.delivery() < 4;
        async move { Ok(if again { Outcome::Snooze(Duration::ZERO) } else { Outcome::Done(4) }) }
    }));
    let start = rig.now();
    let _running = run.build().unwrap().start();
    assert_eq!(handle.wait().await.unwrap(), 4);
    let times = [1, 2, 3, 4].map(|n| rig.log.time_of(&format!("delivery {n}")).since(start));
    assert_eq!(times, [0, 1, 2, 3].map(Duration::from_millis));
}

/// Tells the log when the handler is dropped.
struct Dropped(Arc<crate::rig::Log>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.note("dropped");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_takes_too_long_is_stopped_and_tried_again() {
    let rig = WorkerRig::new();
    let handle = rig.client.enqueue(work("a")).timeout(5 * SECOND).await.unwrap();
    let log = Arc::clone(&rig.log);
    let run = rig.worker(handler(move |_, cx| {
        let log = Arc::clone(&log);
        async move {
            assert_eq!(cx.time_left(), Some(5 * SECOND));
            let _dropped = Dropped(log);
            if cx.attempt() == 1 {
                tokio::time::sleep(3_600 * SECOND).await;
            }
            DONE
        }
    }));
    let start = rig.now();
    let _running = run.build().unwrap().start();
    let record = rig.finished(handle.id()).await;
    assert_eq!((record.state, record.job.attempts), (State::Done, 1));
    assert_eq!(record.errors[0].error.as_str(), "timed out after 5s");
    assert_eq!(rig.log.time_of("dropped").since(start), 5 * SECOND);
    assert_eq!(record.finished_at.unwrap().since(start), 6 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn the_workers_timeout_holds_for_jobs_that_have_none() {
    let rig = WorkerRig::new();
    let plain = rig.client.enqueue(work("plain")).max_attempts(1).await.unwrap();
    let long = rig.client.enqueue(work("long")).timeout(100 * SECOND).await.unwrap();
    let run = rig.worker(handler(|_, _| async {
        tokio::time::sleep(50 * SECOND).await;
        DONE
    }));
    let _running = run.timeout(10 * SECOND).build().unwrap().start();
    assert_eq!(rig.finished(plain.id()).await.state, State::Dlq);
    assert_eq!(rig.finished(long.id()).await.state, State::Done);
}

/// Panics when it is dropped.
struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_anywhere_in_a_handler_is_one_failed_attempt() {
    let rig = WorkerRig::new();
    let run = rig.worker(handler(|job, cx| {
        let name = job.name.clone();
        assert!(name != "before" || cx.attempt() > 1, "before the first await");
        async move {
            if cx.attempt() > 1 {
                return DONE;
            }
            match name.as_str() {
                "early" => panic!("early"),
                "late" => {
                    tokio::time::sleep(SECOND).await;
                    std::panic::panic_any(String::from("late"))
                }
                "odd" => std::panic::panic_any(17),
                "dropped" => {
                    let _guard = PanicsWhenDropped;
                    std::future::pending().await
                }
                _ => DONE,
            }
        }
    }));
    let _running = run.timeout(60 * SECOND).build().unwrap().start();
    for (name, error) in [
        ("before", "panicked: before the first await"),
        ("early", "panicked: early"),
        ("late", "panicked: late"),
        ("odd", "panicked: the payload of the panic is not text"),
        ("dropped", "panicked: dropped"),
    ] {
        let id = rig.enqueue(name).await;
        let record = rig.finished(&id).await;
        assert_eq!((record.state, record.job.attempts), (State::Done, 1), "{name}");
        assert_eq!(record.errors[0].error.as_str(), error);
    }
    let id = rig.enqueue("quiet").await;
    assert_eq!(rig.finished(&id).await.job.attempts, 0);
}

#[tokio::test(start_paused = true)]
async fn an_output_that_is_too_large_is_dead_lettered_and_not_tried_again() {
    #[derive(serde::Serialize, serde::Deserialize, Job)]
    #[job(type = "large", output = String)]
    struct Large {}

    let rig = WorkerRig::new();
    let large = |_: Large, _: Context| async { JobResult::Ok("x".repeat(2 << 20)) };
    let handle = rig.client.enqueue(Large {}).await.unwrap();
    let _running = rig.worker(Handlers::new().on(large)).build().unwrap().start();
    let record = rig.finished(handle.id()).await;
    assert_eq!((record.state, record.job.deliveries), (State::Dlq, 1));
    assert!(record.reason.unwrap().as_str().contains("store it elsewhere"));
}

#[tokio::test(start_paused = true)]
async fn a_job_may_expand_into_a_flow_that_produces_its_output() {
    #[derive(serde::Serialize, serde::Deserialize, Job)]
    #[job(type = "plan", output = u64)]
    struct Plan {}
    #[derive(serde::Serialize, serde::Deserialize, Job)]
    #[job(type = "add", input = u64, output = u64)]
    struct Add(u64);

    async fn plan(_: Plan, _: Context) -> JobResult<Flow<u64>> {
        Ok(Flow::first(work("first")).then(Add(10)).then(Add(100)))
    }
    async fn add(job: Add, cx: Context) -> JobResult<u64> {
        Ok(cx.input(&job)? + job.0)
    }
    async fn first(_: Work, _: Context) -> JobResult<u64> {
        Ok(1)
    }

    let rig = WorkerRig::new();
    let handlers = Handlers::new().on(plan).on(add).on(first);
    let handle = rig.client.enqueue(Plan {}).await.unwrap();
    let _running = rig.worker(handlers).build().unwrap().start();
    assert_eq!(handle.wait().await.unwrap(), 111);
    rig.check().await;
}
