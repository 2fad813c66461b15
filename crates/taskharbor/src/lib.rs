//! What users of TaskHarbor add; the text they see is in `lib.md`.
#![doc = include_str!("lib.md")]

mod ack;
mod block_on;
mod blocking;
mod cancel;
mod client;
mod codec;
mod connect;
mod context;
mod draft;
mod flow;
mod handler;
pub mod header;
mod inflight;
mod job;
mod middleware;
mod observe;
mod outcome;
mod retry;
#[cfg(feature = "testing")]
pub mod testing;
mod worker;

#[cfg(feature = "derive")]
pub use taskharbor_macros::{Job, main};

pub use taskharbor_core::{
    Admin, AnyDriver, Blob, Driver, DriverError, JobId, JobType, QueueName, State, Text, Timestamp,
    admin::{
        Action, Counts, Cursor, Filter, List, Manage, Page, Prune, QueueCounts, Requeue,
        StateCounts,
    },
    driver::{Limits, Transaction},
    error::{Denied, Refusal, Rejected},
    flow::{FlowRecord, FlowState, ListFlows},
    job::{
        Condition, FailurePolicy, HeaderError, Headers, JobKind, JobRecord, JobSummary,
        JoinReading, KeyHold,
    },
    name::{FlowName, IdempotencyKey, NameError},
};

pub use ack::AckError;
pub use block_on::block_on;
pub use blocking::blocking;
pub use cancel::CancelReason;
pub use client::{
    Client, ClientBuilder, EnqueueBuilder, EnqueueError, EnqueueMany, Handle, ManageError, Start,
    WaitError,
};
#[cfg(feature = "messagepack")]
pub use codec::MessagePack;
pub use codec::{Codec, CodecError, Decode, Encode, Json};
pub use connect::{ConnectError, connect};
pub use context::{Call, Context};
pub use draft::InvalidJob;
pub use flow::json as flow_json;
pub use flow::{
    Each, Failure, Flow, FlowMember, FlowTree, Inputs, IntoFlow, IntoStep, NoInput, ProducedBy,
    TakesFailure,
};
pub use handler::Handlers;
pub use job::{Data, Job, Options, Step};
pub use middleware::{BoxFuture, CallResult, Middleware, Next};
pub use observe::{Counters, Event, EventCounts, LossReason, Observer, Operation, ReleaseReason};
pub use outcome::{BoxError, IntoOutcome, JobError, JobResult, Outcome};
pub use retry::{Exponential, Failed, ImpossiblePolicy, RetryPolicy};
pub use worker::{
    BuildError, MissingHandler, Retention, Running, Unreadable, Worker, WorkerBuilder, WorkerError,
};

/// The error of a function that enqueues or starts something and waits for what it produces.
pub type Error = WaitError;

/// The programs in the README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The programs in the guides that begin with nothing.
#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../../../docs/guides/getting-started.md")]
#[doc = include_str!("../../../docs/guides/moving-to-postgres.md")]
struct Guides;
