//! The rules by which the parts of a worker take turns with a job, one by one.

use taskharbor_core::{JobId, JobType, NewJob, QueueName, life::Life};

use super::*;

fn registry_of(count: usize) -> (Registry, Vec<Arc<Inflight>>) {
    let registry = Registry::default();
    let jobs = (0..count).map(|n| {
        let id = JobId::new(n.to_string()).unwrap();
        let job = NewJob::new(id, QueueName::new("q").unwrap(), JobType::new("t").unwrap(), b"");
        let job =
            JobView::assemble(&job, Timestamp::EPOCH, &Life::new(&job, 0, None, Timestamp::EPOCH));
        Leased::new(job, Lease::new(LeaseToken::from_bits(1), Timestamp::MAX))
    });
    let held = registry.insert(jobs.collect(), Duration::ZERO, Timestamp::EPOCH);
    (registry, held)
}

#[test]
fn a_job_is_in_flight_for_one_purpose_at_a_time() {
    let (_, held) = registry_of(1);
    let job = &held[0];
    assert!(job.begin_extending().is_some());
    assert_eq!(job.begin_settling(), None);
    let rotated = LeaseToken::from_bits(2);
    job.end_extending(Some(Lease::new(rotated, Timestamp::EPOCH)));
    assert_eq!(job.begin_settling(), Some(rotated));
    assert!(job.begin_extending().is_none());
    job.end_settling();
    assert!(job.begin_extending().is_some());
}

#[tokio::test]
async fn a_handler_acknowledges_its_job_once_and_after_the_keeper_has_its_answer() {
    let (_, held) = registry_of(1);
    let job = &held[0];
    assert!(job.begin_extending().is_some());
    assert_eq!(job.try_begin_ack(), None);
    let rotated = LeaseToken::from_bits(2);
    job.end_extending(Some(Lease::new(rotated, Timestamp::EPOCH)));
    assert_eq!(job.begin_ack().await, Ok(rotated));
    assert_eq!(job.begin_ack().await, Err(NoAck::Again));
    assert!(job.begin_extending().is_none());
    assert!(job.end_ack() && job.may_be_acked());
    assert!(job.begin_extending().is_some());
}

#[tokio::test]
async fn a_handler_that_has_ended_acknowledges_nothing() {
    let (_, held) = registry_of(1);
    assert!(!held[0].end_ack());
    assert_eq!(held[0].begin_ack().await, Err(NoAck::Over));
}

#[test]
fn a_report_is_passed_on_once_unless_it_did_not_arrive() {
    let (_, held) = registry_of(1);
    let job = &held[0];
    let reported = || job.begin_extending().unwrap().1;
    job.report(Text::new("half"));
    assert_eq!(reported(), Some(Text::new("half")));
    job.end_extending(None);
    assert_eq!(reported(), Some(Text::new("half")));
    job.end_extending(Some(Lease::new(LeaseToken::from_bits(1), Timestamp::MAX)));
    assert_eq!(reported(), None);
}

#[tokio::test]
async fn a_mark_is_passed_on_until_it_has_arrived() {
    let (_, held) = registry_of(1);
    let job = &held[0];
    let lease = Lease::new(LeaseToken::from_bits(1), Timestamp::MAX);
    let passed_on = |answer| {
        let mark = job.begin_extending().unwrap().2;
        job.end_extending(answer);
        mark
    };
    assert_eq!((job.needs_mark(), passed_on(Some(lease))), (false, None));
    job.set_mark(LeaseMark::Started);
    assert_eq!(passed_on(None), Some(LeaseMark::Started));
    assert!(job.needs_mark());
    assert_eq!(passed_on(Some(lease)), Some(LeaseMark::Started));
    job.marked().await;
    assert_eq!((job.needs_mark(), passed_on(Some(lease))), (false, None));
    job.set_mark(LeaseMark::Leaving);
    assert_eq!(passed_on(Some(lease)), Some(LeaseMark::Leaving));
}

#[test]
fn removing_a_job_twice_does_not_remove_its_successor() {
    let (registry, held) = registry_of(2);
    registry.remove(&held[..1]);
    let (_, others) = registry_of(1);
    let reused = registry.insert(
        vec![Leased::new(
            others[0].job.clone(),
            Lease::new(LeaseToken::from_bits(3), Timestamp::MAX),
        )],
        Duration::ZERO,
        Timestamp::EPOCH,
    );
    assert_eq!(reused[0].place, held[0].place);
    registry.remove(&held[..1]);
    assert_eq!(registry.len(), 2);
}

#[test]
fn a_handler_that_starts_while_its_worker_is_leaving_leaves_the_mark() {
    let (_, held) = registry_of(1);
    let job = &held[0];
    job.set_mark(LeaseMark::Leaving);
    job.set_mark(LeaseMark::Started);
    assert_eq!(job.begin_extending().unwrap().2, Some(LeaseMark::Leaving));
}
