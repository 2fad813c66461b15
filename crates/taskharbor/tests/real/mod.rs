//! A [`Harbor`] on a real store: the same for every driver.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use taskharbor::{
    AnyDriver, Context, Handlers, Job, JobResult, State,
    testing::{Harbor, Time},
};

const DAY: Duration = Duration::from_secs(86_400);

/// Fails on the first attempt.
#[derive(Serialize, Deserialize, Job)]
#[job(type = "remind")]
struct Remind {
    who: String,
}

async fn remind(_: Remind, cx: Context) -> JobResult {
    if cx.attempt() == 1 { Err("the mail server is away")? } else { Ok(()) }
}

fn remind_ada() -> Remind {
    Remind { who: "Ada".to_owned() }
}

/// Schedules and retries follow the clock of the test, on a store whose own clock goes on.
pub(crate) async fn time_is_moved_by_hand(driver: &AnyDriver) {
    let harbor = Harbor::on(driver, Time::Manual, Handlers::new().on(remind));
    let started = harbor.now().await;
    let job = harbor.client().enqueue(remind_ada()).delay(DAY).await.unwrap();
    harbor.run_until_idle().await;
    assert_eq!(harbor.state(job.id()).await, State::Scheduled);
    harbor.advance(DAY).await;
    assert_eq!(harbor.record(job.id()).await.job.attempts, 1);
    assert_eq!(harbor.state(job.id()).await, State::Scheduled);
    harbor.advance(DAY).await;
    assert_eq!(harbor.state(job.id()).await, State::Done);
    assert_eq!(harbor.now().await, started.saturating_add(DAY * 2));
    // The retry ran when it was due, and not when the test had finished waiting.
    let finished = harbor.record(job.id()).await.finished_at.unwrap();
    assert!(finished < started.saturating_add(DAY + Duration::from_secs(60)), "{finished}");
    harbor.assert_enqueued(|it: &Remind| it.who == "Ada").await;
    harbor.shutdown().await;
}

/// In real time, what is ready runs, and the test waits for that.
pub(crate) async fn real_time_passes_by_itself(driver: &AnyDriver) {
    async fn at_once(_: Remind, _: Context) -> JobResult {
        Ok(())
    }
    let harbor = Harbor::on(driver, Time::Real, Handlers::new().on(at_once));
    let job = harbor.client().enqueue(remind_ada()).await.unwrap();
    harbor.run_until_idle().await;
    assert_eq!(harbor.state(job.id()).await, State::Done);
    harbor.shutdown().await;
}
