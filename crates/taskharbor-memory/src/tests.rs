//! The suite, and what is this driver's own.

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use taskharbor_core::{
    AnyDriver, Driver, JobId, JobType, NewJob, QueueName, Timestamp,
    clock::{Clock, StoreClock},
    driver::{Enqueue, Limits, Watch},
    error::Rejected,
    job::JobSet,
    testing::ManualClock,
};

use super::MemoryDriver;

async fn open() -> MemoryDriver {
    MemoryDriver::new()
}

taskharbor_conformance::tests!(open, also = handle);

const NOON: Timestamp = match Timestamp::from_micros(1_794_744_000_000_000) {
    Ok(at) => at,
    Err(_) => panic!("within the range"),
};

fn job(text: &str, payload: &[u8]) -> NewJob {
    let (queue, job_type) = (QueueName::new("q").unwrap(), JobType::new("work").unwrap());
    NewJob::new(JobId::new(text).unwrap(), queue, job_type, payload)
}

fn is_woken(watch: &mut Watch) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    matches!(pin!(watch.woken()).poll(&mut context), Poll::Ready(Some(_)))
}

#[tokio::test]
async fn a_watch_is_woken_before_enqueue_returns() {
    let driver = AnyDriver::new(MemoryDriver::new());
    let mut watch = driver.watch(vec![QueueName::new("q").unwrap()]).await.unwrap();
    assert!(!is_woken(&mut watch));
    driver.enqueue_job(job("a", b""), NOON).await.unwrap();
    assert!(is_woken(&mut watch));
    driver.enqueue_job(job("a", b""), NOON).await.unwrap();
    assert!(!is_woken(&mut watch), "nothing was stored, so there is nothing to look for");
}

#[tokio::test]
async fn the_payload_limit_can_be_chosen() {
    let driver = MemoryDriver::with_limits(Limits::default().with_payload_bytes(3).unwrap());
    let sets = vec![JobSet::from(job("a", b"abc")), JobSet::from(job("b", b"abcd"))];
    let answers = driver.enqueue(Enqueue::new(sets, NOON)).await.unwrap();
    assert!(answers[0].is_ok());
    let too_large = Rejected::PayloadTooLarge { job: JobId::new("b").unwrap(), bytes: 4, max: 3 };
    assert_eq!(answers[1], Err(too_large));
    assert!(Limits::default().with_payload_bytes(Limits::MAX_PAYLOAD_BYTES + 1).is_err());
}

#[tokio::test]
async fn a_store_clock_follows_the_store_and_back_only_by_more_than_a_second() {
    let store_time = ManualClock::new(NOON);
    let driver = MemoryDriver::with_clock(Arc::new(store_time.clone()));
    let clock = StoreClock::start(&driver).await.unwrap();
    assert!(clock.now() >= NOON);

    let hour = Duration::from_secs(3_600);
    store_time.advance(hour);
    let reading = clock.sync(&driver).await.unwrap();
    let ahead = clock.now();
    assert!(ahead >= NOON.saturating_add(hour));
    let off = StoreClock::wall_time().since(ahead).max(ahead.since(StoreClock::wall_time()));
    let difference = reading.wall_skew.abs_diff(off);
    assert!(difference < Duration::from_secs(60), "the wall clock is off by {difference:?} more");

    store_time.set(NOON.saturating_add(hour - Duration::from_millis(500)));
    clock.sync(&driver).await.unwrap();
    assert!(clock.now() >= ahead, "a small correction must not take time back");

    store_time.set(NOON);
    let reading = clock.sync(&driver).await.unwrap();
    assert!(reading.ahead > StoreClock::STEP_ABOVE, "{reading:?}");
    assert!(clock.now() < ahead, "it would wait for an hour otherwise");
}
