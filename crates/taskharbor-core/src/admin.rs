//! [`Admin`]: the operations on stored jobs for operators and tools.
//!
//! The command and the dashboard use only these operations, so that they contain no SQL.

pub use crate::{
    announce::{Evict, Evicted, ListWorkers, WorkerRecord},
    count::{Counts, QueueCounts, StateCounts},
    diagnosis::{Diagnosis, DiagnosisLevel},
    lane::{LaneStatus, ListLanes},
    list::{Cursor, Filter, List, Order, Page, TimeRange},
    queue_limit::{
        Bound, HeldBack, HeldJob, LaneLimits, LimitsDeclaration, LimitsRecord, QueueLimits, Rate,
        Usage,
    },
    schedule::{Declaration, Firing, NewSchedule, ScheduleRecord, SlotTotals},
    setting::{Change, Configure, ListSettings, Setting, SettingKind},
};

use std::{fmt, future::Future};

use crate::{
    DriverError, JobId, State, Timestamp, check,
    driver::{Answers, Limits},
    error::{Denied, InvalidRequest},
    export::{ExportUnit, ImportRefused, Imported},
    flow::{FlowRecord, ListFlows},
    job::{JobRecord, JobSummary},
};

/// The operations on stored jobs for operators and tools.
///
/// Reads take `now` because it decides whether a job is ready or scheduled. Every future may be
/// dropped at any point; the call then happened whole or not at all.
///
/// ```
/// use taskharbor_core::{
///     Admin, AnyDriver, DriverError, State,
///     admin::{Filter, List},
/// };
///
/// /// Prints why jobs were dead-lettered, page by page.
/// async fn print_dlq(driver: &AnyDriver) -> Result<(), DriverError> {
///     let mut request = List::new(Filter::all().state(State::Dlq), 100, driver.now().await?);
///     loop {
///         let page = driver.list(request.clone()).await?;
///         for job in page.items {
///             let reason = job.reason.map(|reason| reason.to_string());
///             println!("{} {}: {}", job.id, job.job_type, reason.unwrap_or_default());
///         }
///         let Some(next) = page.next else { return Ok(()) };
///         request = request.after(next);
///     }
/// }
/// ```
pub trait Admin: Send + Sync + 'static {
    /// Makes the store ready for use, and migrates a store of an older version. Doing it again, or
    /// in many processes at once, changes nothing more.
    fn migrate(&self) -> impl Future<Output = Result<(), DriverError>> + Send;

    /// Returns the record of a job, or `None` if it is not stored.
    fn inspect(
        &self,
        id: JobId,
        now: Timestamp,
    ) -> impl Future<Output = Result<Option<JobRecord>, DriverError>> + Send;

    /// One page of the jobs that match.
    ///
    /// A job that matches all the time from the first page to the last appears exactly once,
    /// whatever happens to other jobs meanwhile. A page may be short, and even empty, and still
    /// have a cursor, because a call reads no more records than the request allows. The page then
    /// says how far it has read.
    fn list(
        &self,
        request: List,
    ) -> impl Future<Output = Result<Page<JobSummary>, DriverError>> + Send;

    /// Returns the number of jobs of each queue in each state, by name of the queue. A queue is
    /// listed while it has jobs or is paused.
    fn counts(
        &self,
        request: Counts,
    ) -> impl Future<Output = Result<Vec<QueueCounts>, DriverError>> + Send;

    /// Applies one action to many jobs; returns the state of each after it, or for a purge the
    /// state before it.
    fn manage(&self, request: Manage) -> impl Future<Output = Answers<State, Denied>> + Send;

    /// Changes settings of the store, in the order given.
    fn configure(&self, request: Configure) -> impl Future<Output = Answers<(), Denied>> + Send;

    /// One page of the settings of the store, by kind and name.
    fn settings(
        &self,
        request: ListSettings,
    ) -> impl Future<Output = Result<Page<Setting>, DriverError>> + Send;

    /// One page of the lanes of a queue that have ready or inflight jobs or are on hold, by name.
    /// The jobs without a lane are one lane, the first.
    fn lanes(
        &self,
        request: ListLanes,
    ) -> impl Future<Output = Result<Page<LaneStatus>, DriverError>> + Send;

    /// One page of the workers that have announced themselves, by name.
    fn workers(
        &self,
        request: ListWorkers,
    ) -> impl Future<Output = Result<Page<WorkerRecord>, DriverError>> + Send;

    /// Ends all leases of a worker now, as if they had expired, and removes its announcement. If
    /// the worker is alive, it is refused like any worker that has lost its leases.
    fn evict(&self, request: Evict) -> impl Future<Output = Result<Evicted, DriverError>> + Send;

    /// Removes old records of terminal jobs and flows; returns the number of removed jobs.
    fn prune(&self, request: Prune) -> impl Future<Output = Result<usize, DriverError>> + Send;

    /// A flow, or `None` if it is not stored.
    fn flow(
        &self,
        id: JobId,
        now: Timestamp,
    ) -> impl Future<Output = Result<Option<FlowRecord>, DriverError>> + Send;

    /// One page of the flows that match, in the order in which they began.
    fn list_flows(
        &self,
        request: ListFlows,
    ) -> impl Future<Output = Result<Page<FlowRecord>, DriverError>> + Send;

    /// One page of everything that is stored, for another store to import. Jobs come in the order
    /// in which they were stored, a flow with all its members at the position of the first of them,
    /// keys that outlived their jobs at the end.
    ///
    /// While other calls change jobs, pages show them as they are at different moments.
    fn export(
        &self,
        after: Option<Cursor>,
        limit: usize,
    ) -> impl Future<Output = Result<Page<ExportUnit>, DriverError>> + Send;

    /// Stores units that another store has exported, each whole or not at all.
    fn import(
        &self,
        units: Vec<ExportUnit>,
    ) -> impl Future<Output = Answers<Imported, ImportRefused>> + Send;

    /// Checks the store, its server and its settings for operators: for example, whether it is
    /// durable, and which transactions block it. Defaults to no checks.
    fn diagnose(&self) -> impl Future<Output = Result<Vec<Diagnosis>, DriverError>> + Send {
        std::future::ready(Ok(Vec::new()))
    }

    /// Looks for contradictions in the store: a job in two states or in none, a wrong count. Empty
    /// if there are none.
    fn check(&self) -> impl Future<Output = Result<Vec<Inconsistency>, DriverError>> + Send;
}

/// A contradiction that [`Admin::check`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Inconsistency(String);

impl Inconsistency {
    /// A contradiction, in words.
    pub fn new(words: impl Into<String>) -> Self {
        Self(words.into())
    }
}

impl fmt::Display for Inconsistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Asks for one action on many jobs.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Manage {
    /// The jobs; for actions on flows, the flows' ids.
    pub ids: Vec<JobId>,
    /// The action.
    pub action: Action,
    /// The current time.
    pub now: Timestamp,
}

impl Manage {
    /// A request for this action on these jobs or flows.
    #[must_use]
    pub const fn new(ids: Vec<JobId>, action: Action, now: Timestamp) -> Self {
        Self { ids, action, now }
    }

    /// Checks the list of ids.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`] if an id occurs twice, or for too many ids.
    pub fn check(&self) -> Result<(), InvalidRequest> {
        check::items(self.ids.iter(), 0)
    }
}

/// An action of an operator on a job or a flow.
///
/// Exhaustive on purpose: a driver that does not know an action must not compile.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Action {
    /// Requeues a dead-lettered or cancelled job, so that it runs again.
    Requeue(Requeue),
    /// Cancels a job, or asks its worker to stop if it is inflight.
    Cancel,
    /// Makes a scheduled job due now.
    RunNow,
    /// Changes the priority of a job that is not terminal.
    SetPriority(i16),
    /// Removes the record of a job that is terminal and in no flow.
    Purge,
    /// Cancels every member of a flow that is not terminal, and asks the workers of inflight ones
    /// to stop.
    CancelFlow,
    /// Removes a flow whose members are all terminal, and their records.
    PurgeFlow,
}

/// How a job is requeued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Requeue {
    /// Not before this instant.
    pub run_at: Option<Timestamp>,
    /// Counts attempts from 0 again. Otherwise a dead-lettered job may be executed exactly once
    /// more, and a cancelled job keeps the attempts it has left.
    #[cfg_attr(feature = "serde", serde(default))]
    pub reset_attempts: bool,
    /// If the job's flow is terminal, takes the job out of the flow so that it can run alone.
    #[cfg_attr(feature = "serde", serde(default))]
    pub detach: bool,
}

impl Requeue {
    /// At once, once more, within its flow.
    #[must_use]
    pub const fn new() -> Self {
        Self { run_at: None, reset_attempts: false, detach: false }
    }

    /// Not before this instant.
    #[must_use]
    pub const fn run_at(mut self, run_at: Timestamp) -> Self {
        self.run_at = Some(run_at);
        self
    }

    /// Starts counting attempts anew.
    #[must_use]
    pub const fn reset_attempts(mut self) -> Self {
        self.reset_attempts = true;
        self
    }

    /// If the job's flow is terminal, takes the job out of the flow.
    #[must_use]
    pub const fn detach(mut self) -> Self {
        self.detach = true;
        self
    }
}

/// Asks for old records to be removed.
///
/// A record is old enough if the job became terminal at the given instant or earlier, and the lease
/// under which it ended would have run out by then, too. A flow is removed as a whole, according to
/// the state of its tail and the time at which its last member ended. Records whose field is `None`
/// are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Prune {
    /// Removes jobs and flows that were done by this instant.
    pub done_before: Option<Timestamp>,
    /// Removes jobs and flows that were cancelled by this instant.
    pub cancelled_before: Option<Timestamp>,
    /// Removes jobs and flows that were dead-lettered by this instant.
    pub dlq_before: Option<Timestamp>,
    /// Stops when this many jobs are removed; a flow is not split.
    pub limit: usize,
    /// The current time; no record of a job that ended later is removed.
    pub now: Timestamp,
}

impl Prune {
    /// A request that removes nothing yet.
    #[must_use]
    pub const fn new(limit: usize, now: Timestamp) -> Self {
        Self { done_before: None, cancelled_before: None, dlq_before: None, limit, now }
    }

    /// Removes jobs and flows that were done by this instant.
    #[must_use]
    pub const fn done_before(mut self, before: Timestamp) -> Self {
        self.done_before = Some(before);
        self
    }

    /// Removes jobs and flows that were cancelled by this instant.
    #[must_use]
    pub const fn cancelled_before(mut self, before: Timestamp) -> Self {
        self.cancelled_before = Some(before);
        self
    }

    /// Removes jobs and flows that were dead-lettered by this instant.
    #[must_use]
    pub const fn dlq_before(mut self, before: Timestamp) -> Self {
        self.dlq_before = Some(before);
        self
    }

    /// The latest `kept_until` at which a record in `state` is pruned.
    #[must_use]
    pub fn before(&self, state: State) -> Option<Timestamp> {
        let before = match state {
            State::Done => self.done_before,
            State::Cancelled => self.cancelled_before,
            State::Dlq => self.dlq_before,
            State::Ready | State::Scheduled | State::Blocked | State::Inflight => None,
        };
        before.map(|before| before.min(self.now))
    }

    /// Checks the limit.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::OutOfRange`].
    pub const fn check(&self) -> Result<(), InvalidRequest> {
        check::range("limit", self.limit, 1, Limits::MAX_CALL_JOBS)
    }
}
