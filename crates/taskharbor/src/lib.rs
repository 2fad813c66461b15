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
#[cfg(feature = "derive")]
pub use taskharbor_macros::{Job, main};
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

/// The programs in the guides. Those of `postgres.md` are tests of `taskharbor-sqlx`, and those of
/// `writing-a-driver.md` of `taskharbor-memory`.
#[cfg(all(doctest, feature = "postgres", feature = "sqlite"))]
mod guides {
    #[doc = include_str!("../../../docs/guides/getting-started.md")]
    struct GettingStarted;
    #[doc = include_str!("../../../docs/guides/limits.md")]
    struct Limits;
    #[doc = include_str!("../../../docs/guides/moving-to-postgres.md")]
    struct MovingToPostgres;
    #[doc = include_str!("../../../docs/guides/recurring.md")]
    struct Recurring;
    #[doc = include_str!("../../../docs/guides/scaling.md")]
    struct Scaling;
    #[doc = include_str!("../../../docs/guides/sqlite.md")]
    struct Sqlite;
    #[doc = include_str!("../../../docs/guides/testing.md")]
    struct Testing;
    #[doc = include_str!("../../../docs/guides/tutorial.md")]
    struct Tutorial;
    #[doc = include_str!("../../../docs/guides/workers.md")]
    struct Workers;
    #[doc = include_str!("../../../docs/guides/workflows.md")]
    struct Workflows;
}

/// The programs in the recipes.
#[cfg(all(doctest, feature = "postgres", feature = "sqlite"))]
mod recipes {
    #[doc = include_str!("../../../docs/guides/recipes/csv-import.md")]
    struct CsvImport;
    #[doc = include_str!("../../../docs/guides/recipes/encrypted-payloads.md")]
    struct EncryptedPayloads;
    #[doc = include_str!("../../../docs/guides/recipes/image-pipeline.md")]
    struct ImagePipeline;
    #[doc = include_str!("../../../docs/guides/recipes/migrating-from-apalis.md")]
    struct MigratingFromApalis;
    #[doc = include_str!("../../../docs/guides/recipes/migrating-from-celery.md")]
    struct MigratingFromCelery;
    #[doc = include_str!("../../../docs/guides/recipes/migrating-from-river.md")]
    struct MigratingFromRiver;
    #[doc = include_str!("../../../docs/guides/recipes/migrating-from-sidekiq.md")]
    struct MigratingFromSidekiq;
    #[doc = include_str!("../../../docs/guides/recipes/nightly-report.md")]
    struct NightlyReport;
    #[doc = include_str!("../../../docs/guides/recipes/payload-changes.md")]
    struct PayloadChanges;
    #[doc = include_str!("../../../docs/guides/recipes/python-jobs.md")]
    struct PythonJobs;
    #[doc = include_str!("../../../docs/guides/recipes/rate-limited-api.md")]
    struct RateLimitedApi;
    #[doc = include_str!("../../../docs/guides/recipes/saga.md")]
    struct Saga;
    #[doc = include_str!("../../../docs/guides/recipes/tenant-fairness.md")]
    struct TenantFairness;
    #[doc = include_str!("../../../docs/guides/recipes/test-recipes.md")]
    struct TestRecipes;
    #[doc = include_str!("../../../docs/guides/recipes/webhooks.md")]
    struct Webhooks;
}
