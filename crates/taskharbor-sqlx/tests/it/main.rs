//! Jobs in transactions of sqlx on a real PostgreSQL server: the tests of the library, with sqlx as the application's
//! client, and what is sqlx's own.
//!
//! `cargo xtask test` provides one server for all tests. Without it, each test program provides its own.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod library;
mod statement;

use taskharbor_testkit::postgres as harness;
