//! The code that the tests of several crates share. It is not published.
//!
//! [`Intercept`] is a driver with a hook around every call, for tests that let a store fail, wait or
//! be watched. It is the only driver of tests: what lists the operations of `Driver` and `Admin` is
//! [`operation`] and nothing else. `postgres` provides stores on a real server.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]
#![allow(missing_debug_implementations, reason = "tests print what they compare")]

#[cfg(feature = "browser")]
pub mod browser;
pub mod environment;
pub mod intercept;
pub mod operation;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "transaction")]
pub mod transaction;

pub use intercept::{Hook, Intercept, KeepAlive, Next};
pub use operation::{Answer, Call, Op};
