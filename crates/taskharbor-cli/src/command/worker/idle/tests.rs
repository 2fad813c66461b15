//! The work that is left, on a store in memory.

use std::time::Duration;

use taskharbor::{Action, Client, JobId, JobType, Manage, QueueName, Schedule};
use taskharbor_core::{
    NewJob,
    admin::{Change, Configure},
    driver::{Fire, FireSchedule, SlotJobs},
};

use super::{Admin, AnyDriver, Driver, Left, Overlap, ScheduleRecord, left};

const NIGHTLY: &str = "nightly";

async fn stored(driver: &AnyDriver) -> ScheduleRecord {
    Client::new(driver).schedules().get(NIGHTLY).await.unwrap().unwrap().record
}

/// A store with a schedule that is due.
async fn with_due_schedule(overlap: Overlap) -> AnyDriver {
    let driver = taskharbor::connect("memory:").await.unwrap();
    let schedules = Client::new(&driver);
    let schedules = schedules.schedules();
    let nightly = Schedule::every(NIGHTLY, Duration::from_secs(86_400)).raw("report", b"{}");
    schedules.put(nightly.overlap(overlap)).await.unwrap();
    schedules.pause(NIGHTLY).await.unwrap();
    let (record, now) = (stored(&driver).await, driver.now().await.unwrap());
    let (name, revision, next_slot) = (record.name, record.revision, Some(now));
    let resume = Change::ResumeSchedule { name, revision, next_slot };
    driver.configure(Configure::new(vec![resume], now)).await.unwrap();
    driver
}

/// Fires the slot that is due with a job in this queue; the schedule stays due.
async fn fire(driver: &AnyDriver, queue: &str) -> JobId {
    let (record, now) = (stored(driver).await, driver.now().await.unwrap());
    let id = JobId::generate(now).unwrap();
    let (queue, job_type) = (QueueName::new(queue).unwrap(), JobType::new("report").unwrap());
    let slot = SlotJobs::new(now, NewJob::new(id.clone(), queue, job_type, &[]).into());
    let fire = FireSchedule::new(record.name, record.revision, Some(now)).slots([slot]);
    driver.fire(Fire::new(vec![fire], now)).await.unwrap().remove(0).unwrap();
    id
}

async fn left_of(driver: &AnyDriver) -> Left {
    left(driver, &[("default".to_owned(), None)]).await.unwrap()
}

#[tokio::test]
async fn a_schedule_that_is_due_is_left_to_be_fired() {
    let driver = with_due_schedule(Overlap::Allow).await;
    assert_eq!(left_of(&driver).await, Left { schedules: 1, jobs: 0 });
    Client::new(&driver).schedules().pause(NIGHTLY).await.unwrap();
    assert_eq!(left_of(&driver).await, Left::default());
}

#[tokio::test]
async fn the_job_of_a_slot_is_left_to_be_run_where_its_queue_is_served() {
    let driver = with_due_schedule(Overlap::Allow).await;
    fire(&driver, "default").await;
    fire(&driver, "other").await;
    Client::new(&driver).schedules().remove(NIGHTLY).await.unwrap();
    assert_eq!(left_of(&driver).await, Left { schedules: 0, jobs: 1 });
}

#[tokio::test]
async fn a_slot_that_waits_for_an_earlier_job_is_not_left() {
    let driver = with_due_schedule(Overlap::Queue).await;
    let earlier = fire(&driver, "other").await;
    assert_eq!(left_of(&driver).await, Left::default());
    let now = driver.now().await.unwrap();
    driver.manage(Manage::new(vec![earlier], Action::Cancel, now)).await.unwrap();
    assert_eq!(left_of(&driver).await, Left { schedules: 1, jobs: 0 });
}
