//! The driver on real files: the suite, and what is this driver's own.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[path = "../crash/mod.rs"]
mod crash;

mod backup;
mod conformance;
mod evict;
mod fault;
mod fixture;
#[cfg(target_os = "linux")]
mod full_disk;
mod kill;
mod lane;
mod limit;
mod opening;
mod plan;
mod process;
mod removal;
mod several;
mod temp_dir;
mod together;
mod transaction;
mod view;
