//! The driver on real servers: the suite in every way in which a store can be reached, and what is
//! this driver's own.
//!
//! `cargo xtask test` provides one server for all tests. Without it, each test program provides its own.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod cancel;
mod check;
mod comment;
mod conformance;
mod deadlock;
mod diagnose;
mod edge;
mod enqueue_from_sql;
mod fixture;
mod fleet;
mod guide;
mod held;
mod limit;
mod listener;
mod mass;
mod migration;
mod operate;
mod overtaken;
mod plan;
mod pool;
mod pooler;
mod python;
mod replication;
mod role;
mod scale;
mod schedule;
mod server_default;
mod snapshot;
mod tls;
mod view;
mod wait;
mod worker;

use taskharbor_testkit::postgres as harness;
