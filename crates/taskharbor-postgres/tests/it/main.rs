//! The driver on real servers: the suite in every way in which a store can be reached, and what is
//! this driver's own.
//!
//! `cargo xtask test` provides the server and says through the environment where everything is.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[path = "../harness/mod.rs"]
mod harness;

mod check;
mod conformance;
mod given;
mod mass;
mod migration;
mod plan;
mod role;
mod tls;
mod view;
