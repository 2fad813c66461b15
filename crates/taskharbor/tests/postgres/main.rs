//! Clients and workers on a real PostgreSQL server: transactions of the application, and outages.
//!
//! `cargo xtask test` provides one server for all tests. Without it, each test program provides its own.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod bare;
mod client;
#[path = "../crash/mod.rs"]
mod crash;
mod flow;
mod harbor;
mod idle;
mod library;
mod outage;
#[path = "../real/mod.rs"]
mod real;
mod workload;

use taskharbor_testkit::postgres as harness;

#[tokio::test(flavor = "multi_thread")]
async fn a_chord_ends_once_even_if_workers_are_killed() {
    let server = harness::server::Server::start();
    crash::survives(&server.url()).await;
}
