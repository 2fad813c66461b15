//! [`HeldCalls`]: a limit for calls that may wait for other transactions, so that they leave connections to others.
//!
//! A call that stores a job waits while another transaction has stored the same id or idempotency
//! key and has not committed. A transaction that an application has forgotten makes all such calls
//! wait, and without a bound they would use up the pool: nothing could be reserved or settled any
//! more. So at most half of the connections are used by calls that may wait. The others wait here,
//! without a connection.

use std::{error::Error, sync::Arc, time::Duration};

use taskharbor_core::{DriverError, JobId, NewJob};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};

/// How long the connection of a call that was dropped may still be in use.
const ABANDONED_STATEMENT_TIMEOUT: Duration = Duration::from_millis(2_250);

#[derive(Debug)]
pub(crate) struct HeldCalls {
    permits: Arc<Semaphore>,
    deadline: Duration,
}

/// Lets a call use a connection.
#[derive(Debug)]
pub(crate) struct Permit(Option<OwnedSemaphorePermit>);

/// Why a call failed that met transactions which stay open. It is the source of a
/// [`DriverError::Unavailable`], and the same call succeeds once they have ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeldElsewhere {
    /// A call that stores jobs waited too long.
    #[error(
        "another transaction has stored the same job id or idempotency key and is still open: find \
         it in pg_stat_activity, and commit or roll it back"
    )]
    Stored(#[source] Arc<dyn Error + Send + Sync>),
    /// A call that changes jobs waited too long.
    #[error(
        "another transaction has locked one of the jobs, its flow or its idempotency key and is \
         still open: find it in pg_stat_activity, and commit or roll it back"
    )]
    Locked(#[source] Arc<dyn Error + Send + Sync>),
    /// Too many calls that store jobs were waiting already.
    #[error(
        "other calls are waiting for transactions that have stored the same job ids or idempotency \
         keys and are still open: find them in pg_stat_activity, and commit or roll them back"
    )]
    TooManyCalls,
}

impl HeldElsewhere {
    /// The reason for which a call failed, if it is this one.
    #[must_use]
    pub fn of(error: &DriverError) -> Option<&Self> {
        let DriverError::Unavailable(cause) = error else { return None };
        cause.downcast_ref()
    }
}

impl HeldCalls {
    /// For a pool of this size and calls with this deadline.
    pub(crate) fn new(pool_size: usize, deadline: Duration) -> Self {
        Self { permits: Arc::new(Semaphore::new((pool_size / 2).max(1))), deadline }
    }

    /// Waits until a call that stores these jobs may use a connection.
    pub(crate) async fn enter(&self, jobs: &[&NewJob]) -> Result<Permit, DriverError> {
        if !jobs.iter().any(|job| may_wait(job)) {
            return Ok(Permit(None));
        }
        let permit = Arc::clone(&self.permits).acquire_owned();
        match timeout(self.deadline, permit).await {
            Ok(permit) => Ok(Permit(permit.ok())),
            Err(_) => Err(DriverError::unavailable(HeldElsewhere::TooManyCalls)),
        }
    }
}

impl Permit {
    /// The call was answered.
    pub(crate) fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for Permit {
    /// The statement of a call that was dropped goes on for a moment.
    fn drop(&mut self) {
        if let (Some(permit), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            drop(runtime.spawn(async move {
                sleep(ABANDONED_STATEMENT_TIMEOUT).await;
                drop(permit);
            }));
        }
    }
}

/// Whether another transaction may be storing the same job: it has a key, or an id that was not
/// generated.
pub(crate) fn may_wait(job: &NewJob) -> bool {
    job.idempotency_key.is_some() || !is_generated(&job.id)
}

/// Whether the id has the form of those that [`JobId::generate`] makes: a UUID of version 7.
fn is_generated(id: &JobId) -> bool {
    let bytes = id.as_str().as_bytes();
    let fits = |(at, byte): (usize, &u8)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        14 => *byte == b'7',
        _ => byte.is_ascii_hexdigit(),
    };
    bytes.len() == 36 && bytes.iter().enumerate().all(fits)
}

#[cfg(test)]
mod tests {
    use taskharbor_core::{JobType, QueueName, Timestamp, name::IdempotencyKey};

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(30);

    fn job(id: JobId) -> NewJob {
        NewJob::new(id, QueueName::new("q").unwrap(), JobType::new("t").unwrap(), b"".as_slice())
    }

    fn named(id: &str) -> NewJob {
        job(JobId::new(id).unwrap())
    }

    fn generated() -> NewJob {
        job(JobId::generate(Timestamp::EPOCH).unwrap())
    }

    #[test]
    fn jobs_with_a_key_or_a_chosen_id_may_wait() {
        assert!(!may_wait(&generated()));
        let key = IdempotencyKey::new("k").unwrap();
        assert!(may_wait(&generated().idempotency_key(key)));
        for id in ["order-42", "0194fdc2-fa2f-4cc0-81d3-ff12045b73c8"] {
            assert!(may_wait(&named(id)), "{id}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn half_of_the_pool_is_left_to_other_calls() {
        let calls = HeldCalls::new(8, DEADLINE);
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(calls.enter(&[&named("a")]).await.unwrap());
        }
        let error = calls.enter(&[&named("a")]).await.unwrap_err();
        assert!(
            matches!(HeldElsewhere::of(&error), Some(HeldElsewhere::TooManyCalls)),
            "{error:?}"
        );
        for _ in 0..10 {
            calls.enter(&[&generated()]).await.unwrap().answered();
        }
        held.pop().unwrap().answered();
        let entered = tokio::time::Instant::now();
        held.push(calls.enter(&[&named("b")]).await.unwrap());
        assert_eq!(entered.elapsed(), Duration::ZERO);
        // One that was dropped keeps its connection for a moment.
        held.clear();
        held.push(calls.enter(&[&named("b")]).await.unwrap());
        assert_eq!(entered.elapsed(), ABANDONED_STATEMENT_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn the_smallest_pool_lets_one_call_wait() {
        let calls = HeldCalls::new(1, DEADLINE);
        assert!(calls.enter(&[&named("a")]).await.is_ok());
    }
}
