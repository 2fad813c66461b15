//! [`Work`]: the news about a queue for its workers.

use std::time::Duration;

use taskharbor_core::QueueName;

/// Jobs that became available in a queue, or will.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) queue: QueueName,
    /// How many, or zero if that is unknown.
    pub(super) count: u32,
    /// Whether they may stand before jobs that were granted already.
    pub(super) in_front: bool,
    /// When the first of them falls due.
    pub(super) due_in: Duration,
}

impl Work {
    /// Jobs that are due, in unknown number, behind all that were granted.
    pub(crate) const fn new(queue: QueueName) -> Self {
        Self { queue, count: 0, in_front: false, due_in: Duration::ZERO }
    }

    pub(crate) fn count(self, count: u32) -> Self {
        Self { count, ..self }
    }

    pub(crate) fn in_front(self, in_front: bool) -> Self {
        Self { in_front, ..self }
    }

    pub(crate) fn due_in(self, due_in: Duration) -> Self {
        Self { due_in, ..self }
    }

    /// One more job, if it is in the same queue.
    pub(crate) fn add(&mut self, queue: &QueueName, due_in: Duration) -> bool {
        if self.queue != *queue {
            return false;
        }
        self.count = self.count.saturating_add(1);
        self.due_in = self.due_in.min(due_in);
        true
    }
}
