//! The command on a PostgreSQL database, on a server of `cargo xtask test` or of this test program.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../scenario/mod.rs"]
mod scenario;
mod schema;
mod start;
mod store;
mod wake_up;

use taskharbor_testkit::environment;
