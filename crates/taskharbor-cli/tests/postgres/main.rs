//! The command on a PostgreSQL database. `cargo xtask test` provides the server.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../scenario/mod.rs"]
mod scenario;
mod schema;
mod start;
mod store;
mod wake_up;

use taskharbor_testkit::environment;
