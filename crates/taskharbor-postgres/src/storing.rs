//! [`StoringCall`]: the common part of calls that store jobs.

use std::time::Duration;

use taskharbor_core::{DriverError, NewJob, Timestamp};
use tokio::time::Instant;
use tokio_postgres::Row;

use crate::{
    PostgresDriver,
    driver::Shared,
    error,
    held::{HeldElsewhere, Permit},
    value::Value,
    wake::{UnansweredCall, Work},
};

/// How long a call waits for a transaction that has stored the same job or taken the same key and does not end.
pub(crate) const LOCK_WAIT_MS: Option<i64> = Some(1_000);

/// Jobs of a call that took this long may stand before jobs that other drivers were granted.
const LATE_COMMIT: Duration = Duration::from_millis(500);

/// A call that stores jobs. It may wait for other transactions, so it leaves connections to other calls.
#[derive(Debug)]
pub(crate) struct StoringCall<'a> {
    shared: &'a Shared,
    permit: Permit,
    call: UnansweredCall,
    /// Where the statement tells workers of its jobs, if it should.
    pub(crate) channel: Option<&'a str>,
    started: Instant,
}

impl Shared {
    /// Waits until these jobs may be stored.
    pub(crate) async fn begin_storing(
        &self,
        jobs: &[&NewJob],
    ) -> Result<StoringCall<'_>, DriverError> {
        let permit = self.held_calls.enter(jobs).await?;
        let mut queues: Vec<_> = jobs.iter().map(|job| &job.queue).collect();
        queues.dedup();
        let channel = self.wakeups.inline_notify_channel();
        let call = self.wakeups.begin_call(queues.into_iter().cloned().collect());
        Ok(StoringCall { shared: self, permit, call, channel, started: Instant::now() })
    }
}

impl<'a> StoringCall<'a> {
    /// The statement was answered; what it has stored is to be announced.
    pub(crate) fn answered<T>(
        self,
        answer: Result<T, DriverError>,
    ) -> Result<(T, Announcement<'a>), DriverError> {
        self.call.answered(&answer);
        self.permit.answered();
        let announcement = Announcement {
            shared: self.shared,
            is_late: self.started.elapsed() >= LATE_COMMIT,
            was_notified: self.channel.is_some(),
        };
        let answer = answer.map_err(|it| error::held_elsewhere(it, HeldElsewhere::Stored));
        Ok((answer?, announcement))
    }
}

/// Tells workers what a call has stored.
#[derive(Debug)]
pub(crate) struct Announcement<'a> {
    shared: &'a Shared,
    is_late: bool,
    was_notified: bool,
}

impl Announcement<'_> {
    /// There is this work now, or later.
    pub(crate) fn send(self, stored: Vec<Work>, now: Timestamp) {
        let Self { shared, is_late, was_notified } = self;
        shared.scan_starts.lower(stored.iter().map(|it| &it.queue), now.as_micros());
        let work = stored.into_iter().map(|it| it.in_front(is_late)).collect();
        shared.wakeups.announce(work, was_notified);
    }
}

/// Adds a job that was stored to the work that its call announces.
pub(crate) fn add_work(stored: &mut Vec<Work>, job: &NewJob, now: Timestamp) {
    let due_in = job.run_at.map_or(Duration::ZERO, |at| at.since(now));
    if !stored.last_mut().is_some_and(|last| last.add(&job.queue, due_in)) {
        stored.push(Work::new(job.queue.clone()).count(1).due_in(due_in));
    }
}

impl PostgresDriver {
    /// Runs a statement that stores jobs and, as its last parameter says, tells workers of them.
    pub(crate) async fn query_notifying<'a>(
        &self,
        sql: &str,
        mut values: Vec<Value<'a>>,
        channel: Option<&'a str>,
    ) -> Result<Vec<Row>, DriverError> {
        values.push(Value::Text(channel));
        match self.query(sql, &values).await {
            // A server that takes no more wake-ups, because a listener does not take them from it,
            // can store jobs all the same. Workers look for themselves.
            Err(error) if channel.is_some() && error::is_over_limit(&error) => {
                values.pop();
                values.push(Value::Text(None));
                self.query(sql, &values).await
            }
            rows => rows,
        }
    }
}
