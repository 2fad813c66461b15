//! What an in-memory exporter sees of jobs.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod metric;
mod trace;
