//! What tests on a real server need: an empty store each, servers of their own, a pooler.
//!
//! `cargo xtask test` provides one server for all tests. Without it, each test program provides its own.

pub mod account;
pub mod bouncer;
pub mod port;
pub mod proxy;
pub mod server;
pub mod store;

pub use crate::environment;
