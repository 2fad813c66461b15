//! The command on a PostgreSQL database. `cargo xtask test` provides the server.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../../taskharbor-postgres/tests/harness/environment.rs"]
#[expect(dead_code, reason = "the driver's own tests need more of it")]
mod environment;
#[path = "../scenario/mod.rs"]
mod scenario;
mod store;
