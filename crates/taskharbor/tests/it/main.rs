//! The library as users see it, on the memory driver, in virtual time.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod ahead;
mod build;
mod client;
mod codec;
mod detached;
// What rustc says depends on the types it can see.
#[cfg(feature = "postgres")]
mod compile_fail;
mod context;
mod crash_limit;
mod exit;
mod faulty_store;
mod flow;
mod harbor;
mod health;
mod hostile;
mod idle;
mod job_type;
mod lane;
mod lease;
mod limit;
mod middleware;
mod missing;
mod observe;
mod outage;
mod outcome;
mod poison;
mod presence;
mod readme;
mod retention;
mod rig;
mod schedule;
mod seed;
mod set_back;
mod shutdown;
mod signal;
mod simulation;
mod slot;
mod transaction;
