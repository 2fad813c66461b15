//! Support for tests on a real server: an empty store for each, separate servers, a pooler.
//!
//! `cargo xtask test` provides one server for all tests. Without it, each test program provides its own.

pub mod account;
pub mod bouncer;
pub mod port;
pub mod proxy;
pub mod server;
pub mod store;

pub use crate::environment;
