//! The testing kit, as application authors use it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use taskharbor::{
    CancelReason, Client, Context, Exponential, Handlers, Job, JobError, JobResult, Outcome, State,
    testing::{Harbor, call},
};

const HOUR: Duration = Duration::from_secs(3_600);

#[derive(Debug, PartialEq, Serialize, Deserialize, Job)]
#[job(type = "order:ship", queue = "orders", output = String)]
struct Ship {
    order: u32,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, Job)]
#[job(type = "order:thank", queue = "mail", input = String)]
struct Thank {
    order: u32,
}

async fn ship(job: Ship, cx: Context<Client>) -> JobResult<String> {
    // Packing takes two days of a clock that does not run.
    tokio::time::sleep(48 * HOUR).await;
    if job.order == 13 {
        return Err(JobError::unrecoverable("we do not ship thirteen"));
    }
    let follow_up = taskharbor::Flow::first(Ship { order: job.order + 100 });
    if job.order < 10 {
        cx.state().start(follow_up.then(Thank { order: job.order })).await?;
    }
    Ok(format!("shipped {}", job.order))
}

async fn thank(job: Thank, cx: Context<Client>) -> JobResult {
    assert_eq!(cx.input(&job)?, format!("shipped {}", job.order + 100));
    Ok(())
}

fn harbor() -> Harbor {
    let harbor = Harbor::new(Handlers::new());
    let client = harbor.client().clone();
    harbor.start(Handlers::new().on(ship).on(thank).with_state(client))
}

#[tokio::test(start_paused = true)]
async fn everything_that_can_run_runs_and_time_passes_only_for_handlers_that_sleep() {
    let harbor = harbor();
    let start = harbor.now().await;
    let job = harbor.client().enqueue(Ship { order: 1 }).await.unwrap();
    harbor.client().enqueue(Ship { order: 50 }).delay(1_000 * HOUR).await.unwrap();
    harbor.run_until_idle().await;
    assert_eq!(harbor.now().await.since(start), 96 * HOUR);
    assert_eq!(job.wait().await.unwrap(), "shipped 1");
    let orders: Vec<_> = harbor.jobs::<Ship>().await.into_iter().map(|it| it.job.order).collect();
    assert_eq!(orders, [1, 50, 101]);
    let thanked = harbor.assert_enqueued(|job: &Thank| job.order == 1).await;
    assert_eq!(thanked.state, State::Done);
    let later = harbor.assert_enqueued(|job: &Ship| job.order == 50).await;
    assert_eq!(later.state, State::Scheduled);
}

#[tokio::test(start_paused = true)]
async fn time_advances_by_exactly_as_much_as_asked_for() {
    let harbor = harbor();
    let job = harbor.client().enqueue(Ship { order: 20 }).delay(HOUR).await.unwrap();
    let start = harbor.now().await;
    harbor.advance(HOUR).await;
    assert_eq!(harbor.now().await.since(start), HOUR);
    assert_eq!(harbor.state(job.id()).await, State::Inflight);
    harbor.advance(47 * HOUR).await;
    assert_eq!(harbor.state(job.id()).await, State::Inflight);
    harbor.advance(HOUR).await;
    assert_eq!(harbor.state(job.id()).await, State::Done);
    assert_eq!(harbor.now().await.since(start), 49 * HOUR);
}

#[tokio::test(start_paused = true)]
async fn the_worker_of_a_harbor_can_be_configured_and_shut_down() {
    async fn fails(_: Ship, _: Context) -> JobResult<String> {
        Err("always")?
    }
    let harbor = Harbor::configured(Handlers::new().on(fails), |worker| {
        worker.retry(Exponential::new().base(HOUR).cap(HOUR).jitter(0.0).max_attempts(3))
    });
    let job = harbor.client().enqueue(Ship { order: 1 }).await.unwrap();
    for attempts in 1..=3 {
        harbor.run_until_idle().await;
        assert_eq!(harbor.record(job.id()).await.job.attempts, attempts);
        harbor.advance(HOUR).await;
    }
    assert_eq!(harbor.state(job.id()).await, State::Dlq);
    harbor.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn without_handlers_what_is_enqueued_stays() {
    let harbor = Harbor::new(Handlers::new());
    harbor.client().enqueue(Ship { order: 1 }).await.unwrap();
    harbor.advance(HOUR).await;
    harbor.run_until_idle().await;
    assert_eq!(harbor.jobs::<Ship>().await[0].record.state, State::Ready);
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "none of the 1 jobs of type \"order:ship\" looks as expected")]
async fn an_assertion_that_fails_says_what_was_there() {
    let harbor = Harbor::new(Handlers::new());
    harbor.client().enqueue(Ship { order: 1 }).await.unwrap();
    harbor.assert_enqueued(|job: &Ship| job.order == 2).await;
}

#[tokio::test]
#[should_panic(expected = "write #[tokio::test(start_paused = true)]")]
async fn a_harbor_needs_a_clock_that_stands_still() {
    let _harbor = Harbor::new(Handlers::new());
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "a handler never ends")]
async fn a_handler_that_never_ends_is_found_out() {
    async fn hangs(_: Ship, _: Context) -> JobResult<String> {
        std::future::pending().await
    }
    let harbor = Harbor::new(Handlers::new().on(hangs));
    harbor.client().enqueue(Ship { order: 1 }).await.unwrap();
    harbor.run_until_idle().await;
}

#[tokio::test(start_paused = true)]
async fn one_handler_runs_by_itself_with_what_it_is_given() {
    async fn looks(job: Thank, cx: Context<u32>) -> JobResult<Outcome<()>> {
        assert_eq!((cx.attempt(), cx.delivery(), *cx.state()), (3, 7, 5));
        assert_eq!((cx.input(&job)?.as_str(), cx.headers().get("tenant")), ("in", Some("acme")));
        assert_eq!(cx.time_left(), Some(HOUR));
        assert_eq!(cx.cancel_reason(), Some(CancelReason::Shutdown));
        Ok(Outcome::Snooze(HOUR))
    }
    let outcome = call(looks, Thank { order: 1 }, 5)
        .attempt(3)
        .delivery(7)
        .timeout(HOUR)
        .header("tenant", "acme")
        .input("in".into())
        .cancelled(CancelReason::Shutdown)
        .await;
    assert!(matches!(outcome, Ok(Outcome::Snooze(HOUR))));
}

#[tokio::test(start_paused = true)]
async fn a_handler_by_itself_fails_as_it_would_in_earnest() {
    async fn slow(_: Ship, _: Context) -> JobResult<String> {
        std::future::pending().await
    }
    let late = call(slow, Ship { order: 1 }, ()).timeout(HOUR).await.unwrap_err();
    assert_eq!(late.to_string(), "timed out after 3600s");
    async fn needy(job: Thank, cx: Context) -> JobResult {
        cx.input(&job)?;
        Ok(())
    }
    let missing = call(needy, Thank { order: 1 }, ()).await.unwrap_err();
    assert!(missing.is_unrecoverable());
    assert!(missing.to_string().contains("no step before order:thank"), "{missing}");
}
