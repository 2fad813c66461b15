//! The contract of TaskHarbor as tests that any driver can be held to.
//!
//! A driver joins with a function that opens it on an empty store, and one line:
//!
//! ```text
//! async fn open() -> MyDriver {
//!     MyDriver::connect_to_an_empty_store().await
//! }
//!
//! taskharbor_conformance::tests!(open);
//! ```
//!
//! That makes one ordinary test of every case, named as a sentence. [`tests!`] has options for a
//! driver without flows and for running every case behind a handle too. Cases are in groups, one
//! file each, and cite the clauses of [SEMANTICS.md] that they prove. Two groups are of another
//! kind: `model` runs random scripts on the driver and on a model beside it, and `race` lets many
//! tasks loose on one store and checks the history of what they saw.
//!
//! [`cases`] lists everything, for programs that run the cases in their own way.
//!
//! [SEMANTICS.md]: https://github.com/taskharbor/taskharbor/blob/main/docs/SEMANTICS.md

#![expect(clippy::expect_used, clippy::panic, reason = "a case fails by panicking, as tests do")]

#[cfg(test)]
mod broken;
mod case;
mod catalogue;
#[cfg(test)]
mod clause;
mod driver_under_test;
mod fixture;
mod group;
mod history;
mod limits_under_test;
mod locked;
mod model;
#[cfg(test)]
mod reference;
mod script;
mod workers_under_test;

pub use case::{Case, Level, Through, run};
pub use catalogue::cases;
pub use locked::LockedJob;
