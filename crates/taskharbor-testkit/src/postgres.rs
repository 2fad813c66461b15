//! Support for tests on a real server: an empty store for each, separate servers, a pooler.
//!
//! `cargo xtask test` provides the server and says through the environment where everything is.

pub mod account;
pub mod bouncer;
pub mod port;
pub mod proxy;
pub mod server;
pub mod store;

pub use crate::environment;
