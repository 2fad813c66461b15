//! The traces and metrics of jobs, in an in-memory exporter.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod metric;
mod trace;
