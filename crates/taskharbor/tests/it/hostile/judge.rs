//! Panics while the outcome of a job is decided.

use super::*;

struct PanickingPolicy;
impl RetryPolicy for PanickingPolicy {
    fn delay(&self, _: &Failed<'_>) -> Duration {
        panic!("a policy with a bug")
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_retry_policy_ends_the_job_and_not_the_worker() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    let run = rig.worker(handler(|_, _| async { Err("fails".into()) })).retry(PanickingPolicy);
    let running = run.build().unwrap().start();
    tokio::time::sleep(50 * LEASE).await;
    let record = rig.record(&id).await;
    let start = rig.now();
    running.shutdown().await.unwrap();
    let took = rig.now().since(start);
    assert!(
        record.state != State::Inflight || record.job.deliveries > 1,
        "after 50 leases it is {:?} on delivery {}, extended {} times; shutdown took {took:?}",
        record.state,
        record.job.deliveries,
        rig.log.count("extended"),
    );
}

#[derive(Debug)]
struct Unprintable;
impl fmt::Display for Unprintable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("an error that cannot be printed")
    }
}
impl std::error::Error for Unprintable {}

#[tokio::test(start_paused = true)]
async fn an_error_whose_display_panics_ends_the_job() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    let run = rig.worker(handler(|_, _| async { Err(Unprintable.into()) }));
    let _running = run.build().unwrap().start();
    tokio::time::sleep(50 * LEASE).await;
    let record = rig.record(&id).await;
    assert!(record.state != State::Inflight || record.job.deliveries > 1, "{:?}", record.state);
}

#[derive(Deserialize, Job)]
#[job(type = "unwritable", output = u64)]
struct Unwritable {}
impl Serialize for Unwritable {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("a job that cannot be written")
    }
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_panics_when_it_is_written_ends_the_job() {
    let rig = WorkerRig::new();
    let id = rig.enqueue("a").await;
    let handlers = Handlers::new()
        .on(|_: Work, _: Context| async { JobResult::Ok(Flow::first(Unwritable {})) });
    let _running = rig.worker(handlers).build().unwrap().start();
    tokio::time::sleep(50 * LEASE).await;
    let record = rig.record(&id).await;
    assert!(record.state != State::Inflight || record.job.deliveries > 1, "{:?}", record.state);
}
