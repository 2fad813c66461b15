//! The server as its callers see it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod access;
mod browser;
mod connection;
mod dlq;
mod driver_face;
mod flow;
mod hostile;
mod job;
mod live;
mod openapi;
mod queue;
mod rig;
mod schedule;
mod stock;
mod sweep;
mod work;
mod worker;
