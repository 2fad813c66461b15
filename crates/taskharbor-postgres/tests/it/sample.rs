//! Jobs, names and times for the tests of what is the driver's own.

use taskharbor_core::{
    Demand, FailurePolicy, Holder, JobId, JobType, LeaseToken, Leased, NewJob, QueueName, Reserve,
    Timestamp,
};

/// A time at which tests begin.
pub(crate) fn noon() -> Timestamp {
    Timestamp::from_micros(1_794_744_000_000_000).unwrap()
}

pub(crate) fn id(text: impl AsRef<str>) -> JobId {
    JobId::new(text.as_ref()).unwrap()
}

pub(crate) fn queue() -> QueueName {
    QueueName::new("q").unwrap()
}

pub(crate) fn job(text: impl AsRef<str>) -> NewJob {
    NewJob::new(id(text), queue(), JobType::new("work").unwrap(), b"{}".as_slice())
}

/// A flow of five: two that begin, one after both, one after the first, and the tail after those.
pub(crate) fn flow(name: &str, policy: FailurePolicy) -> Vec<NewJob> {
    let member = |part: &str, parents: &[&str]| {
        let parents = parents.iter().map(|parent| id(format!("{name}-{parent}")));
        job(format!("{name}-{part}")).after(parents).on_failure(policy)
    };
    vec![
        member("a", &[]),
        member("b", &[]),
        member("c", &["a", "b"]),
        member("d", &["a"]),
        member("tail", &["c", "d"]),
    ]
}

pub(crate) fn reserve(limit: usize, now: Timestamp, lease_for: std::time::Duration) -> Reserve {
    Reserve::new(vec![Demand::new(queue(), limit)], Holder::new("test").unwrap(), now, lease_for)
}

/// Whom the jobs were granted to.
pub(crate) fn tokens(jobs: &[Leased]) -> Vec<(JobId, LeaseToken)> {
    jobs.iter().map(|it| (it.job.id.clone(), it.lease.token)).collect()
}
