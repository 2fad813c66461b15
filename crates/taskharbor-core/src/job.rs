//! [`NewJob`]: a job to be stored.

pub use crate::{
    header::{HeaderError, Headers},
    record::{Held, JobRecord, JobSummary, JobView},
    release::{ReleaseNote, ReleaseReason},
    set::{JobSet, SetKind},
    settle::FailedAttempt,
};

use std::time::Duration;

use crate::{
    Blob, JobId, JobType, QueueName, State, Timestamp,
    name::{IdempotencyKey, LaneName},
};

/// A job to be stored.
///
/// ```
/// use taskharbor_core::{JobId, JobType, NewJob, QueueName, Timestamp};
///
/// let now = Timestamp::from_micros(1_794_739_474_000_000)?;
/// let job = NewJob::new(
///     JobId::generate(now)?,
///     QueueName::new("mail")?,
///     JobType::new("email:send")?,
///     b"{\"to\":\"ada@example.com\"}",
/// )
/// .priority(5)
/// .max_attempts(3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NewJob {
    /// Identifies the job; enqueueing the same id again changes nothing.
    pub id: JobId,
    /// Its queue.
    pub queue: QueueName,
    /// What kind of work it is.
    #[cfg_attr(feature = "serde", serde(rename = "type"))]
    pub job_type: JobType,
    /// The payload, which the handler receives.
    pub payload: Blob,
    /// Whether a worker runs it or the store completes it.
    #[cfg_attr(feature = "serde", serde(default))]
    pub kind: JobKind,
    /// The earliest time it may run; at once if `None`.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub run_at: Option<Timestamp>,
    /// How long one execution may take; the worker's timeout, if it has one, if `None`.
    #[cfg_attr(
        feature = "serde",
        serde(
            rename = "timeout_nanos",
            default,
            skip_serializing_if = "Option::is_none",
            with = "crate::json::OptionNanos"
        )
    )]
    pub timeout: Option<Duration>,
    /// How many executions may fail before it is dead-lettered; the worker's policy if `None`.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub max_attempts: Option<u32>,
    /// Higher runs first.
    #[cfg_attr(feature = "serde", serde(default))]
    pub priority: i16,
    /// The lane of its queue that it belongs to.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub lane: Option<LaneName>,
    /// The headers, which travel beside the payload.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Headers::is_empty"))]
    pub headers: Headers,
    /// The idempotency key: while a job holds it, no second job with the same key is stored in the
    /// queue.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub idempotency_key: Option<IdempotencyKey>,
    /// How long the key is held.
    #[cfg_attr(feature = "serde", serde(default))]
    pub key_hold: KeyHold,
    /// The jobs of the same flow that it waits for, in the order in which it reads their outputs.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub parents: Vec<JobId>,
    /// The condition on its parents before it may run.
    #[cfg_attr(feature = "serde", serde(default))]
    pub condition: Condition,
    /// Its failure policy: what happens to its dependants if it fails.
    #[cfg_attr(feature = "serde", serde(default))]
    pub on_failure: FailurePolicy,
}

/// Who completes a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum JobKind {
    /// A worker, by running its handler.
    #[default]
    Work,
    /// The store, as soon as no parent is left to wait for. It is never reserved; its output is the
    /// list of its parents' outputs. With a join between two groups, the number of edges is linear
    /// in their sizes.
    Join(JoinReading),
}

/// How a reader takes the list of a join.
///
/// A driver stores it and returns it with the list; it does not change the list itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum JoinReading {
    /// The outputs of its parents, in their order.
    #[default]
    List,
    /// The outcomes of its parents, in their order: an output or a failure each.
    Gather,
    /// An empty list, whatever the outputs of its parents.
    Empty,
    /// Nothing: the outputs of its parents are dropped.
    Discard,
    /// The output of its first parent, or nothing without one.
    First,
}

impl JoinReading {
    /// All readings.
    pub const ALL: &[Self] = &[Self::List, Self::Gather, Self::Empty, Self::Discard, Self::First];

    /// The reading's name, the same in every store and in exports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Gather => "gather",
            Self::Empty => "empty",
            Self::Discard => "discard",
            Self::First => "first",
        }
    }
}

/// The condition on the parents of a job before it may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Condition {
    /// All of them are done.
    #[default]
    ParentsDone,
    /// All of them have failed: dead-lettered or cancelled. Such a job is a *failure job*. It is
    /// cancelled as not needed as soon as one of its parents is done. No job waits for it, so it is
    /// never a flow's tail.
    ParentsFailed,
}

/// How long an idempotency key is held by the job that was enqueued with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum KeyHold {
    /// Until the job's record is pruned or purged.
    #[default]
    UntilPruned,
    /// Until the job is done; if it expanded, until its expansion is done. A dead-lettered or
    /// cancelled job still holds the key, since it may be requeued.
    UntilDone,
    /// Until the job is terminal; if it expanded, until its expansion is. A requeue takes the key
    /// again, and is denied if another job holds it by then.
    UntilTerminal,
    /// For this long after the job was enqueued, in every state of the job: the key outlives a
    /// record that is pruned sooner, and is free after that time even if the job is not terminal.
    /// Counted in whole microseconds.
    #[cfg_attr(feature = "serde", serde(rename = "for_nanos", with = "crate::json::Nanos"))]
    For(Duration),
}

impl KeyHold {
    /// Whether a job that ends in `state` frees its key. A key with a time of its own is freed by
    /// that time alone.
    #[must_use]
    pub const fn is_freed_by(self, state: State) -> bool {
        match self {
            Self::UntilPruned | Self::For(_) => false,
            Self::UntilDone => matches!(state, State::Done),
            Self::UntilTerminal => state.is_terminal(),
        }
    }

    /// The first instant at which a key taken at `created_at` is free, if it has a time of its own.
    #[must_use]
    pub fn held_until(self, created_at: Timestamp) -> Option<Timestamp> {
        match self {
            Self::UntilPruned | Self::UntilDone | Self::UntilTerminal => None,
            Self::For(time) => Some(created_at.saturating_add(time)),
        }
    }
}

/// What happens to the dependants of a job when it is dead-lettered or cancelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum FailurePolicy {
    /// They stay blocked until this job is requeued and done.
    #[default]
    Block,
    /// All of them are cancelled, and those that wait for them, up to a job whose own policy is
    /// `Continue`.
    Cancel,
    /// As `Cancel`, and every other member of the flow that has not started is cancelled too,
    /// failure jobs excepted; also when this job is itself cancelled because another failed.
    FailFast,
    /// They stop waiting for this job, and read its failure in place of an output.
    Continue,
}

impl FailurePolicy {
    /// All policies.
    pub const ALL: &[Self] = &[Self::Block, Self::Cancel, Self::FailFast, Self::Continue];

    /// The policy's name, the same in Rust, SQL, JSON and the command.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Cancel => "cancel",
            Self::FailFast => "fail_fast",
            Self::Continue => "continue",
        }
    }
}

impl NewJob {
    /// The type under which joins are stored.
    pub const JOIN_TYPE: &str = "th:join";

    /// A job with the defaults: due at once, priority 0, no key, no parents.
    #[must_use]
    pub fn new(id: JobId, queue: QueueName, job_type: JobType, payload: impl Into<Blob>) -> Self {
        Self {
            id,
            queue,
            job_type,
            payload: payload.into(),
            kind: JobKind::Work,
            run_at: None,
            timeout: None,
            max_attempts: None,
            priority: 0,
            lane: None,
            headers: Headers::new(),
            idempotency_key: None,
            key_hold: KeyHold::default(),
            parents: Vec::new(),
            condition: Condition::default(),
            on_failure: FailurePolicy::default(),
        }
    }

    /// A join of `parents`, read as a list.
    #[must_use]
    pub fn join(id: JobId, queue: QueueName, parents: impl IntoIterator<Item = JobId>) -> Self {
        #[expect(clippy::expect_used, reason = "the constant is a valid name; a test says so")]
        let job_type = JobType::new(Self::JOIN_TYPE).expect("a valid name");
        let job = Self::new(id, queue, job_type, &[]).after(parents);
        Self { kind: JobKind::Join(JoinReading::List), ..job }
    }

    /// Makes the job a join, whose list is read like this.
    #[must_use]
    pub const fn read_as(mut self, reading: JoinReading) -> Self {
        self.kind = JobKind::Join(reading);
        self
    }

    /// Not before this instant.
    #[must_use]
    pub fn run_at(mut self, run_at: Timestamp) -> Self {
        self.run_at = Some(run_at);
        self
    }

    /// At most this long per execution, rounded up to whole microseconds.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        let below = timeout.subsec_nanos() % 1_000;
        let up = if below == 0 { 0 } else { 1_000 - below };
        self.timeout = Some(timeout.saturating_add(Duration::from_nanos(u64::from(up))));
        self
    }

    /// Dead-lettered when this many executions have failed.
    #[must_use]
    pub fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.max_attempts = Some(max_attempts);
        self
    }

    /// Higher runs first.
    #[must_use]
    pub fn priority(mut self, priority: i16) -> Self {
        self.priority = priority;
        self
    }

    /// In this lane of its queue.
    #[must_use]
    pub fn lane(mut self, lane: LaneName) -> Self {
        self.lane = Some(lane);
        self
    }

    /// With these headers.
    #[must_use]
    pub fn headers(mut self, headers: Headers) -> Self {
        self.headers = headers;
        self
    }

    /// With this key, held until the record is pruned unless [`NewJob::key_hold`] says otherwise.
    #[must_use]
    pub fn idempotency_key(mut self, key: IdempotencyKey) -> Self {
        self.idempotency_key = Some(key);
        self
    }

    /// Holds the key this long.
    #[must_use]
    pub fn key_hold(mut self, hold: KeyHold) -> Self {
        self.key_hold = hold;
        self
    }

    /// Blocked until these jobs are done; it reads their outputs in this order.
    #[must_use]
    pub fn after(mut self, parents: impl IntoIterator<Item = JobId>) -> Self {
        self.parents = parents.into_iter().collect();
        self.condition = Condition::ParentsDone;
        self
    }

    /// Runs only if these jobs fail, and is cancelled as not needed if one of them is done.
    #[must_use]
    pub fn after_failure_of(mut self, parents: impl IntoIterator<Item = JobId>) -> Self {
        self.parents = parents.into_iter().collect();
        self.condition = Condition::ParentsFailed;
        self
    }

    /// Whether it runs only if its parents fail.
    #[must_use]
    pub const fn is_failure_job(&self) -> bool {
        matches!(self.condition, Condition::ParentsFailed)
    }

    /// Its failure policy: what happens to its dependants if it fails.
    #[must_use]
    pub fn on_failure(mut self, policy: FailurePolicy) -> Self {
        self.on_failure = policy;
        self
    }

    /// What the job counts towards the size of a call.
    pub(crate) fn bytes(&self) -> usize {
        self.payload.len() + self.headers.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> NewJob {
        NewJob::join(JobId::new("j").unwrap(), QueueName::new("q").unwrap(), [])
    }

    #[test]
    fn the_type_of_joins_is_a_valid_name() {
        assert_eq!(job().job_type.as_str(), NewJob::JOIN_TYPE);
    }

    #[test]
    fn a_timeout_is_rounded_up_to_whole_microseconds() {
        for (nanos, micros) in [(0, 0), (1, 1), (1_000, 1), (1_001, 2), (1_999_999_999, 2_000_000)]
        {
            let timeout = job().timeout(Duration::from_nanos(nanos)).timeout;
            assert_eq!(timeout, Some(Duration::from_micros(micros)), "{nanos}");
        }
        assert_eq!(job().timeout(Duration::MAX).timeout, Some(Duration::MAX));
    }

    #[test]
    fn a_key_is_freed_by_the_states_that_its_hold_names() {
        let freed = |hold: KeyHold| {
            let states = State::ALL.iter().copied().filter(|state| hold.is_freed_by(*state));
            states.collect::<Vec<_>>()
        };
        assert_eq!(freed(KeyHold::UntilPruned), []);
        assert_eq!(freed(KeyHold::UntilDone), [State::Done]);
        assert_eq!(freed(KeyHold::UntilTerminal), [State::Done, State::Dlq, State::Cancelled]);
        let hour = KeyHold::For(Duration::from_secs(3_600));
        assert_eq!(freed(hour), []);
        let until = Timestamp::EPOCH.saturating_add(Duration::from_secs(3_600));
        assert_eq!(hour.held_until(Timestamp::EPOCH), Some(until));
    }
}
