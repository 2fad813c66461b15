//! The fields of a job: stored and read back as they were given, or refused.

use std::time::Duration;

use taskharbor_core::{
    Blob, JobType, NewJob,
    driver::Limits,
    error::Rejected,
    job::{FailurePolicy, Headers, JobKind, JobSet, JobView, KeyHold},
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{T0, at, id, job, job_in, key, queue},
    limits_under_test::lane,
};

group! {
    field {
        every_field_is_read_back_by_people ["JOB-1"]
        every_field_is_read_back_by_the_worker ["JOB-1"]
        what_was_not_given_is_absent ["JOB-1"]
        numbers_at_their_limits_are_stored_exactly ["JOB-1" "JOB-5"]
        every_failure_policy_is_stored ["JOB-1"]
        headers_of_the_greatest_size_are_stored ["JOB-1"]
        a_timeout_below_microseconds_rejects_the_set ["JOB-5"]
        a_timeout_out_of_range_rejects_the_set ["JOB-5" "ENQ-2"]
        a_number_of_attempts_out_of_range_rejects_the_set ["JOB-5" "ENQ-2"]
        a_flow_is_rejected_for_a_bad_field_too ["JOB-5" "ENQ-2"]
        jobs_of_one_call_do_not_mix_up_their_fields ["JOB-1"]
    }
    flows {}
}

/// The longest timeout in whole microseconds.
const LONGEST: Duration = Duration::from_micros(9_223_372_036_854_775);

fn full_job() -> NewJob {
    let headers = Headers::new()
        .with("tenant", "acme")
        .and_then(|headers| headers.with("trace", "00-4bf9-01"))
        .expect("valid headers");
    let mut job = job_in("mail", "full")
        .priority(-7)
        .run_at(at(5))
        .timeout(Duration::from_micros(1_500_001))
        .max_attempts(3)
        .headers(headers)
        .idempotency_key(key("once"))
        .key_hold(KeyHold::UntilDone)
        .lane(lane("Acme 🦀"))
        .on_failure(FailurePolicy::Continue);
    job.job_type = JobType::new("email:send").expect("a valid type");
    job.payload = Blob::from(b"{\"to\":\"ada\"}");
    job
}

fn assert_is_as_given(job: &JobView, given: &NewJob) {
    assert_eq!(job.id, given.id);
    assert_eq!(job.queue, given.queue);
    assert_eq!(job.lane, given.lane);
    assert_eq!(job.job_type, given.job_type);
    assert_eq!(job.payload, given.payload);
    assert_eq!(job.headers, given.headers);
    assert_eq!(job.priority, given.priority);
    assert_eq!(job.run_at, given.run_at);
    assert_eq!(job.timeout, given.timeout);
    assert_eq!(job.max_attempts, given.max_attempts);
    assert_eq!(job.idempotency_key, given.idempotency_key);
}

async fn every_field_is_read_back_by_people(t: DriverUnderTest) {
    t.put(full_job(), T0).await;
    let record = t.record("full", T0).await;
    assert_is_as_given(&record.job, &full_job());
    assert_eq!(record.job.created_at, T0);
    assert_eq!(record.kind, JobKind::Work);
    assert_eq!(record.key_hold, KeyHold::UntilDone);
    assert_eq!(record.job.on_failure, FailurePolicy::Continue);
}

async fn every_field_is_read_back_by_the_worker(t: DriverUnderTest) {
    t.put(full_job(), T0).await;
    let leased = t.take_from("mail", at(5)).await.expect("a grant");
    assert_is_as_given(&leased.job, &full_job());
    assert_eq!(leased.job.created_at, T0);
    assert_eq!(leased.job, t.record("full", at(5)).await.job);
}

async fn what_was_not_given_is_absent(t: DriverUnderTest) {
    t.put(job("bare"), T0).await;
    let record = t.record("bare", T0).await;
    let stored = &record.job;
    assert_eq!(stored.headers, Headers::new());
    assert_eq!((stored.priority, &stored.lane), (0, &None));
    assert_eq!((stored.run_at, stored.timeout), (None, None));
    assert_eq!((stored.max_attempts, &stored.idempotency_key), (None, &None));
    assert_eq!((&stored.last_error, stored.failed_at), (&None, None));
    let numbers = (stored.attempts, stored.deliveries, stored.expirations);
    assert_eq!(numbers, (0, 0, 0));
    assert_eq!((&stored.flow, stored.parent_count), (&None, 0));
    assert_eq!(record.held_back, None);
    assert_eq!((&record.held, record.cancel_requested), (&None, false));
    assert_eq!((&record.progress, &record.output), (&None, &None));
    assert_eq!((&record.expanded_into, &record.reason), (&None, &None));
    assert_eq!((&record.errors, record.finished_at), (&Vec::new(), None));
    assert_eq!((record.epoch, record.pending), (0, 0));
    assert_eq!(record.parents, []);
    assert_eq!(record.key_hold, KeyHold::UntilPruned);
    assert_eq!(record.job.on_failure, FailurePolicy::Block);
}

async fn numbers_at_their_limits_are_stored_exactly(t: DriverUnderTest) {
    for (text, priority, timeout, max_attempts) in [
        ("least", i16::MIN, Duration::from_micros(1), 1),
        ("greatest", i16::MAX, LONGEST, Limits::MAX_ATTEMPTS),
    ] {
        let given =
            job_in(text, text).priority(priority).timeout(timeout).max_attempts(max_attempts);
        t.put(given.clone(), T0).await;
        assert_is_as_given(&t.record(text, T0).await.job, &given);
        let leased = t.take_from(text, T0).await.expect("a grant");
        assert_is_as_given(&leased.job, &given);
    }
}

async fn every_failure_policy_is_stored(t: DriverUnderTest) {
    for (text, policy) in [
        ("hold", FailurePolicy::Block),
        ("cancel", FailurePolicy::Cancel),
        ("fail fast", FailurePolicy::FailFast),
        ("release", FailurePolicy::Continue),
    ] {
        t.put(job(text).on_failure(policy), T0).await;
        assert_eq!(t.record(text, T0).await.job.on_failure, policy);
    }
}

async fn headers_of_the_greatest_size_are_stored(t: DriverUnderTest) {
    let named = |n: usize| format!("{n:0255}");
    let many = (0..Headers::MAX_ENTRIES)
        .try_fold(Headers::new(), |all, n| all.with(&named(n), "v"))
        .expect("32 headers of 256 bytes");
    assert_eq!(many.bytes(), Headers::MAX_BYTES);
    let value = "v".repeat(Headers::MAX_BYTES - 1);
    let large = Headers::new().with("n", &value).expect("8 KiB of headers");
    for (text, headers) in [("many", many), ("large", large)] {
        t.put(job(text).headers(headers.clone()), T0).await;
        assert_eq!(t.record(text, T0).await.job.headers, headers);
        assert_eq!(t.take_the(text, T0).await.job.headers, headers);
    }
}

async fn a_timeout_below_microseconds_rejects_the_set(t: DriverUnderTest) {
    for nanos in [1, 999, 1_001, 1_000_000_001] {
        let mut bad = job("bad");
        bad.timeout = Some(Duration::from_nanos(nanos));
        let rejected = Rejected::TimeoutOutOfRange { job: id("bad") };
        assert_eq!(t.enqueue_set(bad, T0).await, Err(rejected), "{nanos}");
    }
    assert_eq!(t.snapshot(T0).await.counts, []);
}

async fn a_timeout_out_of_range_rejects_the_set(t: DriverUnderTest) {
    for timeout in [
        Duration::ZERO,
        LONGEST + Duration::from_micros(1),
        Duration::from_secs(293 * 366 * 86_400),
        Duration::MAX,
    ] {
        let set = JobSet::plain(vec![job("good"), job("bad").timeout(timeout)]);
        let rejected = Rejected::TimeoutOutOfRange { job: id("bad") };
        assert_eq!(t.enqueue_set(set, T0).await, Err(rejected), "{timeout:?}");
    }
    assert_eq!(t.snapshot(T0).await.counts, []);
}

async fn a_number_of_attempts_out_of_range_rejects_the_set(t: DriverUnderTest) {
    for max_attempts in [0, Limits::MAX_ATTEMPTS + 1, u32::MAX] {
        let set = JobSet::plain(vec![job("good"), job("bad").max_attempts(max_attempts)]);
        let rejected = Rejected::MaxAttemptsOutOfRange { job: id("bad") };
        assert_eq!(t.enqueue_set(set, T0).await, Err(rejected), "{max_attempts}");
    }
    assert_eq!(t.snapshot(T0).await.counts, []);
}

async fn a_flow_is_rejected_for_a_bad_field_too(t: DriverUnderTest) {
    let child = job_in("elsewhere", "child").after([id("parent")]);
    let set = JobSet::flow(vec![job("parent").max_attempts(0), child]);
    let rejected = Rejected::MaxAttemptsOutOfRange { job: id("parent") };
    assert_eq!(t.enqueue_set(set, T0).await, Err(rejected));
    let stored = t.snapshot(T0).await;
    assert_eq!((stored.counts, stored.flows), (Vec::new(), Vec::new()));
}

async fn jobs_of_one_call_do_not_mix_up_their_fields(t: DriverUnderTest) {
    let given: Vec<NewJob> = (0..100_i16)
        .map(|n| {
            let headers = Headers::new().with("n", &n.to_string()).expect("valid");
            let mut given = job_in(&format!("queue {}", n % 3), &format!("job {n}")).priority(n);
            if n % 2 == 0 {
                given = given.headers(headers).max_attempts(u32::from(n.unsigned_abs()) + 1);
            }
            if n % 5 == 0 {
                given = given.run_at(at(7)).idempotency_key(key(&n.to_string()));
            }
            given
        })
        .collect();
    t.put_all(given.clone(), T0).await;
    for given in &given {
        assert_is_as_given(&t.record(given.id.as_str(), T0).await.job, given);
    }
    assert_eq!(t.record("job 4", T0).await.job.queue, queue("queue 1"));
}
