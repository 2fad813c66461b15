//! Workers.

use serde::Serialize;
use taskharbor::{WorkerInfo, WorkerStatus};

/// A worker as one line of a list.
#[derive(Debug, Serialize)]
pub(crate) struct Worker<'a> {
    name: &'a str,
    incarnation: &'a str,
    overdue: bool,
    started_at: String,
    seen_at: String,
    info: Option<&'a WorkerInfo>,
}

impl<'a> Worker<'a> {
    pub(crate) fn of(worker: &'a WorkerStatus) -> Self {
        Self {
            name: &worker.name,
            incarnation: &worker.incarnation,
            overdue: worker.is_overdue,
            started_at: super::time(worker.started_at),
            seen_at: super::time(worker.seen_at),
            info: worker.info.as_ref(),
        }
    }
}

/// What an eviction did.
#[derive(Debug, Serialize)]
pub(crate) struct Evicted<'a> {
    pub(crate) name: &'a str,
    pub(crate) leases: usize,
    pub(crate) was_alive: bool,
}
