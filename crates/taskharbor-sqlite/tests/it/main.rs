//! The driver on real files: the suite, and what is this driver's own.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[path = "../../../taskharbor-postgres/tests/harness/delegate.rs"]
#[macro_use]
mod delegate;

mod conformance;
mod place;
