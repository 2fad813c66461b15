//! The driver through real servers: the suite on two stores, and what is this driver's own.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod answer;
mod call;
mod conformance;
mod fake;
mod outage;
mod served;
mod wake;
