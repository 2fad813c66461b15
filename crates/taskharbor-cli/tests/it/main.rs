//! The program as its users run it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod cli;
mod demo;
mod file;
mod http;
#[path = "../scenario/mod.rs"]
mod scenario;
mod store;

/// The plan of the demo itself, so that its output is held against it and not against a copy.
#[path = "../../src/demo/plan.rs"]
#[expect(dead_code, reason = "the demo needs more of its plan than its tests do")]
mod plan;

use scenario::program as taskharbor;
