//! The operations of a driver between processes: their names, requests and answers.
//!
//! A server makes a call with [`Operation::make`]; a client sends the [`Operation::Request`] and reads
//! the [`Operation::Answer`]. Both sides take all operations from one list.

use std::future::Future;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    Admin, Driver, DriverError, JobId, QueueName, State, Timestamp,
    admin::{
        Configure, Counts, Cursor, Diagnosis, Evict, Evicted, Inconsistency, LaneStatus, List,
        ListLanes, ListSettings, ListWorkers, Manage, Page, Prune, QueueCounts, Setting,
        WorkerRecord,
    },
    driver::{
        Announce, Due, DueSchedules, Enqueue, Enqueued, ExtendLeases, Extended, Fire, Limits,
        OutputPage, Outputs, Reserve, Reserved, Settle, Settled,
    },
    error::{Denied, FireRefused, InvalidRequest, Refusal, Rejected},
    export::{ExportUnit, ImportRefused, Imported},
    flow::{FlowRecord, ListFlows},
    job::{JobRecord, JobSummary},
};

/// What travels: a request or an answer. With the feature `schema` it has a schema, too.
#[cfg(not(feature = "schema"))]
pub trait Message: Serialize + DeserializeOwned + Send + 'static {}

#[cfg(not(feature = "schema"))]
impl<T: Serialize + DeserializeOwned + Send + 'static> Message for T {}

/// What travels: a request or an answer. With the feature `schema` it has a schema, too.
#[cfg(feature = "schema")]
pub trait Message: Serialize + DeserializeOwned + schemars::JsonSchema + Send + 'static {}

#[cfg(feature = "schema")]
impl<T: Serialize + DeserializeOwned + schemars::JsonSchema + Send + 'static> Message for T {}

/// A visitor of all operations ([`operation::visit`]).
pub trait Visitor {
    /// Visits one operation.
    fn visit<O: Operation>(&mut self);
}

/// One operation of a driver.
pub trait Operation: 'static {
    /// The side of a driver to which it belongs: `driver` or `admin`.
    const FACE: &'static str;
    /// The name of the method.
    const NAME: &'static str;
    /// A summary of one line.
    const SUMMARY: &'static str;
    /// The request.
    type Request: Message;
    /// The answer, unless the whole call fails.
    type Answer: Message;

    /// The caller's time; `None` if the request has none.
    fn now(request: &Self::Request) -> Option<Timestamp>;

    /// Makes the call.
    ///
    /// # Errors
    ///
    /// Those of the driver.
    ///
    /// # Cancel safety
    ///
    /// As the operation of the driver.
    fn make<D: Driver + Admin>(
        driver: &D,
        request: Self::Request,
    ) -> impl Future<Output = Result<Self::Answer, DriverError>> + Send;
}

/// The answer to each item of a call, `{"ok": …}` or `{"err": …}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Answers_{T}_{E}"))]
#[serde(transparent)]
pub struct Each<T, E>(Vec<Item<T, E>>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Answer_{T}_{E}"))]
#[serde(rename_all = "snake_case")]
enum Item<T, E> {
    Ok(T),
    Err(E),
}

impl<T, E> From<Vec<Result<T, E>>> for Each<T, E> {
    fn from(answers: Vec<Result<T, E>>) -> Self {
        let items = answers.into_iter().map(|answer| match answer {
            Ok(answer) => Item::Ok(answer),
            Err(error) => Item::Err(error),
        });
        Self(items.collect())
    }
}

impl<T, E> From<Each<T, E>> for Vec<Result<T, E>> {
    fn from(each: Each<T, E>) -> Self {
        let answers = each.0.into_iter().map(|item| match item {
            Item::Ok(answer) => Ok(answer),
            Item::Err(error) => Err(error),
        });
        answers.collect()
    }
}

/// Asks for a job or a flow.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct One {
    /// The job or flow.
    pub id: JobId,
    /// The current time.
    pub now: Timestamp,
}

/// Asks for a page of everything that is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Export {
    /// After the last unit of the page that gave this.
    pub after: Option<Cursor>,
    /// The greatest number of items to return.
    pub limit: usize,
}

/// Asks to store what another store has exported.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Import {
    /// The units; each is stored whole or not at all.
    pub units: Vec<ExportUnit>,
}

/// Asks for something that needs no arguments.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// What a server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bounds {
    /// The bounds of the driver behind the server.
    pub limits: Limits,
    /// The greatest size of a request, in bytes of JSON.
    pub request_bytes: usize,
}

/// Why a call failed as a whole, in a problem document, if the caller can know it exactly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CallFailure {
    /// The request breaks a rule.
    Invalid(InvalidRequest),
    /// The lease would be too short or end too late.
    InvalidLeaseDuration,
    /// The driver behind the server broke the contract.
    ContractViolation,
}

impl CallFailure {
    /// The serializable part of an error.
    #[must_use]
    pub fn of(error: &DriverError) -> Option<Self> {
        match error {
            DriverError::Invalid(invalid) => Some(Self::Invalid(invalid.clone())),
            DriverError::InvalidLeaseDuration => Some(Self::InvalidLeaseDuration),
            DriverError::ContractViolation(_) => Some(Self::ContractViolation),
            DriverError::Closed | DriverError::Unavailable(_) | DriverError::Backend(_) => None,
        }
    }
}

/// Asks for wake-ups about these queues and jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WatchRequest {
    /// There may be jobs in these queues.
    #[serde(default)]
    pub queues: Vec<QueueName>,
    /// These jobs may have ended.
    #[serde(default)]
    pub jobs: Vec<JobId>,
}

/// What a server tells a caller that watches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WakeEvent {
    /// There may be jobs in these queues.
    Queues(Vec<QueueName>),
    /// This job was settled or cancelled.
    Job(JobId),
    /// There may be jobs in every queue, and every job may have ended.
    All,
    /// Wake-ups arrive from now on, or do not, and why.
    Reaching {
        /// Whether they arrive.
        reaching: bool,
        /// Why they do not although they should.
        problem: Option<String>,
    },
}

/// The value that an operation answers, from what travels.
macro_rules! answer {
    (each $ok:ty, $err:ty) => { Each<$ok, $err> };
    (one $answer:ty) => { $answer };
}

macro_rules! operations {
    ($($trait:ident $face:literal { $(
        $(#[doc = $doc:literal])*
        $name:ident $variant:ident($request:ty: $($field:ident)?)
            $([$($argument:ident),*])? => $kind:ident<$($answer:ty),*>;
    )* })*) => {
        $($(
            $(#[doc = $doc])*
            #[derive(Clone, Copy, Debug)]
            pub enum $variant {}

            impl Operation for $variant {
                const FACE: &'static str = $face;
                const NAME: &'static str = stringify!($name);
                const SUMMARY: &'static str = concat!($($doc),*).trim_ascii();
                type Request = $request;
                type Answer = answer!($kind $($answer),*);

                fn now(_request: &$request) -> Option<Timestamp> {
                    operations!(@now _request $($field)?)
                }

                async fn make<D: Driver + Admin>(
                    driver: &D,
                    request: $request,
                ) -> Result<Self::Answer, DriverError> {
                    let answer = operations!(@make D $trait $name driver request $([$($argument),*])?);
                    Ok(answer.await?.into())
                }
            }
        )*)*

        /// Shows every operation to a visitor.
        pub fn visit(visitor: &mut impl Visitor) {
            $($(visitor.visit::<$variant>();)*)*
        }
    };
    (@now $request:ident now) => { Some($request.now) };
    (@now $request:ident) => { None };
    (@make $driver:ident $trait:ident $name:ident $on:ident $request:ident) => {
        <$driver as $trait>::$name($on, $request)
    };
    (@make $driver:ident $trait:ident $name:ident $on:ident $request:ident [$($argument:ident),*]) => {
        {
            let _ = &$request;
            <$driver as $trait>::$name($on, $($request.$argument),*)
        }
    };
}

/// The operations that are calls with an answer.
pub mod operation {
    use super::*;

    operations! {
        Driver "driver" {
            /// Stores sets of jobs, each whole or not at all.
            enqueue EnqueueJobs(Enqueue: now) => each<Vec<Enqueued>, Rejected>;
            /// Leases jobs to the caller.
            reserve ReserveJobs(Reserve: now) => one<Reserved>;
            /// Extends leases.
            extend_leases ExtendJobLeases(ExtendLeases: now) => each<Extended, Refusal>;
            /// Records the outcomes of inflight jobs.
            settle SettleJobs(Settle: now) => each<Settled, Refusal>;
            /// Reads the outputs of jobs or of their parents.
            outputs ReadOutputs(Outputs:) => each<OutputPage, Refusal>;
            /// The schedules that are due, and when the next one is: at any instant, which need not be now.
            due_schedules FindDueSchedules(DueSchedules:) => one<Due>;
            /// Stores the jobs of slots and moves their schedules to the next slot.
            fire FireSchedules(Fire: now) => each<Vec<Enqueued>, FireRefused>;
            /// Announces a worker, or withdraws its announcement.
            announce AnnounceWorker(Announce: now) => one<()>;
            /// The store's own time.
            store_time TellTime(Nothing:) [] => one<Timestamp>;
        }
        Admin "admin" {
            /// Makes the store ready for use.
            migrate Migrate(Nothing:) [] => one<()>;
            /// All there is to know about a job; null if it is not stored.
            inspect Inspect(One: now) [id, now] => one<Option<JobRecord>>;
            /// One page of the jobs that match.
            list ListJobs(List: now) => one<Page<JobSummary>>;
            /// How many jobs of each queue are in each state.
            counts CountJobs(Counts: now) => one<Vec<QueueCounts>>;
            /// Does one thing to each of many jobs.
            manage ManageJobs(Manage: now) => each<State, Denied>;
            /// Changes settings of the store, in the order given.
            configure ConfigureStore(Configure: now) => each<(), Denied>;
            /// One page of the settings of the store, by kind and name.
            settings ReadSettings(ListSettings:) => one<Page<Setting>>;
            /// One page of the lanes of a queue.
            lanes ReadLanes(ListLanes: now) => one<Page<LaneStatus>>;
            /// One page of the workers that have announced themselves, by name.
            workers ReadWorkers(ListWorkers: now) => one<Page<WorkerRecord>>;
            /// Ends all leases of a worker now.
            evict EvictWorker(Evict: now) => one<Evicted>;
            /// Removes old records of terminal jobs and flows.
            prune PruneJobs(Prune: now) => one<usize>;
            /// A flow; null if it is not stored.
            flow ReadFlow(One: now) [id, now] => one<Option<FlowRecord>>;
            /// One page of the flows that match, in the order in which they began.
            list_flows ReadFlows(ListFlows: now) => one<Page<FlowRecord>>;
            /// One page of everything that is stored.
            export ExportUnits(Export:) [after, limit] => one<Page<ExportUnit>>;
            /// Stores what another store has exported.
            import ImportUnits(Import:) [units] => each<Imported, ImportRefused>;
            /// What the driver finds out about the store, its server and its settings.
            diagnose Diagnose(Nothing:) [] => one<Vec<Diagnosis>>;
            /// Looks for contradictions in the store.
            check CheckStore(Nothing:) [] => one<Vec<Inconsistency>>;
        }
    }
}
