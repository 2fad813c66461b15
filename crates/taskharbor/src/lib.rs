//! The crate that applications depend on. Its documentation is in `lib.md`.
#![doc = include_str!("lib.md")]

mod ack;
mod block_on;
mod blocking;
mod cancel;
mod client;
mod codec;
mod connect;
mod context;
mod deadline;
mod draft;
pub mod explain;
mod fingerprint;
mod flow;
// Its programs need these features as doctests.
#[cfg(all(doc, any(not(doctest), all(feature = "postgres", feature = "sqlite"))))]
pub mod guide;
mod handler;
pub mod header;
mod inflight;
mod job;
mod limits;
mod middleware;
mod observe;
mod outcome;
mod presence;
mod propagate;
pub mod remote;
mod retry;
mod schedule;
#[cfg(feature = "testing")]
pub mod testing;
mod worker;

#[cfg(feature = "http")]
pub use taskharbor_http as http;
/// Makes a struct or an enum a job, with the options in `#[job(…)]`.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use std::time::Duration;
/// use taskharbor::{Exponential, Job};
///
/// #[derive(Serialize, Deserialize, Job)]
/// #[job(type = "invoice:send", queue = "mail", lane = "account", output = String)]
/// #[job(timeout = "30s", max_attempts = 5, retry = Exponential::new().base(Duration::from_secs(10)))]
/// struct SendInvoice {
///     account: u64,
///     invoice: u64,
/// }
///
/// let job = SendInvoice { account: 7, invoice: 42 };
/// assert_eq!(SendInvoice::TYPE, "invoice:send");
/// assert_eq!(job.lane().as_deref(), Some("7"));
/// ```
#[cfg(feature = "derive")]
pub use taskharbor_macros::Job;
#[cfg(feature = "derive")]
pub use taskharbor_macros::main;
#[cfg(feature = "postgres")]
pub use taskharbor_postgres as postgres;
#[cfg(feature = "sqlite")]
pub use taskharbor_sqlite as sqlite;

pub use taskharbor_core::{
    Admin, AnyDriver, Blob, Driver, DriverError, JobId, JobType, QueueName, State, Text, Timestamp,
    admin::{
        Action, Counts, Cursor, Filter, Firing, HeldBack, HeldJob, LaneLimits, LaneStatus,
        LimitsRecord, List, Manage, Page, Prune, QueueCounts, QueueLimits, Rate, Requeue,
        ScheduleRecord, SlotTotals, StateCounts, TimeRange,
    },
    driver::{Incarnation, Limits, OpenTransaction, Transaction},
    error::{Denied, Refusal, Rejected},
    flow::{FlowRecord, FlowState, ListFlows},
    job::{
        Condition, FailurePolicy, HeaderError, Headers, JobKind, JobRecord, JobSummary,
        JoinReading, KeyHold, ReleaseNote, ReleaseReason,
    },
    name::{FlowName, IdempotencyKey, LaneName, NameError},
};

pub use ack::AckError;
pub use block_on::block_on;
pub use blocking::blocking;
pub use cancel::CancelReason;
pub use client::{
    Acted, Backfilled, Client, ClientBuilder, Dlq, DlqGroup, DlqGroups, EnqueueBuilder,
    EnqueueError, EnqueueMany, Handle, JobAdmin, JobsAdmin, ManageError, QueueAdmin, ScheduleAdmin,
    ScheduleDetails, ScheduleInfo, Start, WaitError, WorkerStatus,
};
#[cfg(feature = "messagepack")]
pub use codec::MessagePack;
pub use codec::{Codec, CodecError, Decode, Encode, Json};
pub use connect::{ConnectError, connect, connect_within};
pub use context::{Call, Context};
pub use draft::InvalidJob;
pub use fingerprint::Fingerprint;
pub use flow::json as flow_json;
pub use flow::{
    Each, Failure, Flow, FlowMember, FlowTree, Inputs, IntoFlow, IntoStep, NoInput, ProducedBy,
    TakesFailure,
};
pub use handler::Handlers;
pub use job::{Data, Job, Options, Step};
pub use limits::{DeclaredLimits, InvalidLimits};
pub use middleware::{BoxFuture, CallResult, Middleware, Next};
pub use observe::{Counters, Event, EventCounts, LossReason, Observer, Operation};
pub use outcome::{BoxError, IntoOutcome, JobError, JobResult, Outcome};
pub use presence::{QueueInfo, WorkerInfo, WorkerPhase};
pub use propagate::Propagate;
pub use retry::{Exponential, Failed, ImpossiblePolicy, RetryPolicy};
pub use schedule::{InvalidSchedule, Missed, Overlap, Schedule, ScheduleFault, Schedules};
pub use worker::{
    BuildError, Caretaker, Health, HealthProblem, MissingHandler, Retention, Running, Unreadable,
    Worker, WorkerBuilder, WorkerError,
};

/// The error of a function that enqueues a job or starts a flow and waits for its output.
pub type Error = WaitError;

/// The programs in the README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
