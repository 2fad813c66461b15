//! What tests on a real server need: an empty store each, servers of their own, a pooler.
//!
//! Shared by the tests of the driver and those of the library, which include it by its path.
#![allow(dead_code, reason = "none of them uses all of it")]

#[macro_use]
mod delegate;

pub(crate) mod account;
pub(crate) mod bouncer;
pub(crate) mod environment;
pub(crate) mod port;
pub(crate) mod proxy;
pub(crate) mod server;
pub(crate) mod store;
