//! The contract of TaskHarbor: what a job is, what may happen to it, and what a store does.
//!
//! A [`Driver`] keeps jobs for clients and workers; [`Admin`] is its other side, for people. Every
//! operation takes the current time as a [`Timestamp`], so what happens depends on arguments alone
//! and behaves the same on every store. [`AnyDriver`] is a handle to any driver.
//!
//! A [`NewJob`] goes in, in a [`JobSet`]. A worker gets it as [`Leased`] and proves with the
//! [`LeaseToken`] that it holds it, until it is settled with a [`Transition`]. People see a
//! [`JobRecord`]. What can happen to a job is a table, [`State::after`]; what it does to the job's
//! fields is [`Life`].
//!
//! There is no I/O here and no runtime. The rules are numbered in `docs/SEMANTICS.md`, and the
//! crate `taskharbor-conformance` tests any driver against them.

mod admin;
mod blob;
mod check;
mod clock;
mod count;
mod driver;
mod enqueue;
mod error;
mod flow;
mod handle;
mod header;
mod job;
mod lease;
mod life;
mod limit;
mod list;
mod name;
mod output;
mod parcel;
mod random;
mod record;
mod reserve;
mod set;
mod settle;
mod state;
mod text;
mod time;
mod transaction;
mod wake;

pub use admin::{Action, Admin, Inconsistency, Manage, Prune, Requeue};
pub use blob::Blob;
pub use clock::{Clock, ClockReading, ManualClock, StoreClock};
pub use count::{QueueCounts, StateCounts};
pub use driver::{Answers, Driver};
pub use enqueue::{Enqueue, Enqueued};
pub use error::{CallError, Denied, DriverError, InvalidRequest, InvalidTransition, Refusal};
pub use flow::{FlowRecord, FlowState, ListFlows};
pub use handle::AnyDriver;
pub use header::{HeaderError, Headers};
pub use job::{FailurePolicy, JobKind, KeyHold, NewJob};
pub use lease::{Lease, LeaseToken};
pub use life::{Aftermath, Finish, Hold, Life, Stage};
pub use limit::Limits;
pub use list::{Cursor, Filter, List, Page};
pub use name::{
    FlowName, Holder, IdempotencyKey, JobId, JobType, NameError, NameProblem, QueueName,
};
pub use output::{OutputEntry, OutputOf, OutputPage, OutputQuery, Outputs};
pub use parcel::{Imported, Parcel, StoredFlow, StoredJob, Tie};
pub use random::NoRandomness;
pub use record::{Held, Job, JobRecord, JobSummary, Leased};
pub use reserve::{Demand, ExtendLeases, Extended, Extension, Reserve, Reserved};
pub use set::{CheckedSet, Growth, JobSet, Rejected, SetKind, Shape, parents_first};
pub use settle::{Failure, Settle, Settled, Settlement, Transition};
pub use state::{State, Step};
pub use text::Text;
pub use time::{InvalidTimestamp, Timestamp, TimestampOutOfRange};
pub use transaction::{DriverId, Transaction};
pub use wake::{WakeHub, Watch};
