//! Background jobs with one strict contract on every store.

mod blocking;
mod cancel;
mod client;
mod codec;
mod connect;
mod context;
mod draft;
mod flow;
mod handler;
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
pub use taskharbor_macros::Job;

pub use taskharbor_core::{
    Admin, AnyDriver, Blob, Driver, DriverError, FailurePolicy, HeaderError, Headers, JobId,
    JobType, KeyHold, QueueName, State, Text, Timestamp,
};

pub use blocking::blocking;
pub use cancel::CancelReason;
pub use client::{
    Client, ClientBuilder, Enqueue, EnqueueError, EnqueueMany, Handle, Start, WaitError,
};
#[cfg(feature = "messagepack")]
pub use codec::MessagePack;
pub use codec::{Codec, CodecError, Decode, Encode, Json};
pub use connect::{ConnectError, connect};
pub use context::{Call, Context};
pub use draft::InvalidJob;
pub use flow::{Flow, IntoFlow};
pub use handler::Handlers;
pub use job::{Data, Job, Options, Step};
pub use middleware::{BoxFuture, CallResult, Middleware, Next};
pub use observe::{Counters, Counts, Event, LossReason, Observer, ReleaseReason};
pub use outcome::{BoxError, IntoOutcome, JobError, JobResult, Outcome};
pub use retry::{Exponential, Failed, ImpossiblePolicy, RetryPolicy};
pub use worker::{BuildError, MissingHandler, Running, Worker, WorkerBuilder, WorkerError};
