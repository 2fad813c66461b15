//! What tests on a real server need: an empty store each, servers of their own, a pooler.
//!
//! `cargo xtask test` provides the server and says through the environment where everything is.

pub mod account;
pub mod bouncer;
pub mod port;
pub mod proxy;
pub mod server;
pub mod store;

pub use crate::environment;
