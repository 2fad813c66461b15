//! The contract of TaskHarbor: jobs, the transitions of their states, and the operations of a
//! store.
//!
//! A [`Driver`] stores jobs for clients and workers; [`Admin`] has its operations for operators and
//! tools. Every operation takes the current time as a [`Timestamp`], so its effect depends on
//! arguments alone and is the same on every store. [`AnyDriver`] is a handle to any driver.
//!
//! | module | contents |
//! |---|---|
//! | [`job`] | a job to be stored ([`NewJob`]), as its worker sees it, and as operators see it |
//! | [`driver`] | the requests and answers of [`Driver`]; leases, wake-ups, transactions |
//! | [`admin`] | the requests and answers of [`Admin`]; lists, counts, settings |
//! | [`flow`] | flows and expansions |
//! | [`life`] | the mutable half of a job and the rules that change it |
//! | [`graph`] | the rules over several jobs |
//! | [`export`] | moving everything that is stored to another store |
//! | [`error`] | errors, grouped by what the caller can do next |
//! | [`name`], [`time`], [`clock`] | validated names; instants; where `now` comes from |
//! | [`testing`] | helpers for tests |
//! | `wire` | the operations as they travel between processes, with the feature `serde` |
//!
//! A [`NewJob`] is enqueued in a [`JobSet`](job::JobSet). A worker reserves it as
//! [`Leased`](driver::Leased), proves with the [`LeaseToken`](driver::LeaseToken) that it holds the
//! job, and settles it with a [`Transition`](driver::Transition). Operators see a
//! [`JobRecord`](job::JobRecord). The life cycle of a job is a table, [`State::after`].
//!
//! There is no I/O here and no runtime. The rules are numbered in [SEMANTICS.md], their numbers stand in
//! comments at the code, and the crate `taskharbor-conformance` tests any driver against them.
//!
//! [SEMANTICS.md]: https://github.com/taskharbor/taskharbor/blob/main/docs/SEMANTICS.md

pub mod admin;
mod announce;
mod blob;
mod check;
pub mod clock;
mod count;
mod diagnosis;
pub mod driver;
mod enqueue;
pub mod error;
pub mod export;
mod fire;
pub mod flow;
pub mod graph;
mod handle;
mod header;
pub mod job;
#[cfg(feature = "serde")]
mod json;
mod lane;
mod lease;
pub mod life;
mod limit;
mod list;
pub mod name;
mod output;
mod queue_limit;
mod random;
mod rate;
mod record;
mod release;
mod reserve;
mod schedule;
mod set;
mod setting;
mod settle;
mod state;
mod text;
pub mod time;
mod transaction;
mod wake;
#[cfg(feature = "serde")]
pub mod wire;

/// What tests of drivers and of code above them need.
pub mod testing {
    pub use crate::clock::ManualClock;
}

pub use admin::Admin;
pub use blob::Blob;
pub use driver::Driver;
pub use error::DriverError;
pub use handle::AnyDriver;
pub use job::NewJob;
pub use name::{JobId, JobType, QueueName};
pub use state::State;
pub use text::Text;
pub use time::Timestamp;
