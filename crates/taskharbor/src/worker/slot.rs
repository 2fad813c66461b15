//! How many handlers may run at once: a slot is taken before a job is reserved for it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use taskharbor_core::QueueName;

use super::shared::Shared;

/// The slots of one queue.
#[derive(Debug)]
pub(super) struct Slots {
    pub(super) queue: QueueName,
    pub(super) concurrency: usize,
    free: AtomicUsize,
}

impl Slots {
    pub(super) const fn new(queue: QueueName, concurrency: usize) -> Self {
        Self { queue, concurrency, free: AtomicUsize::new(concurrency) }
    }

    pub(super) fn free(&self) -> usize {
        self.free.load(Ordering::SeqCst)
    }

    /// Takes up to `max` of the free slots. Only the reserver takes any, so what it saw free
    /// stays free.
    pub(super) fn take(&self, max: usize) -> usize {
        let taken = self.free().min(max);
        self.free.fetch_sub(taken, Ordering::SeqCst);
        taken
    }

    pub(super) fn give_back(&self, count: usize) {
        self.free.fetch_add(count, Ordering::SeqCst);
    }
}

/// One handler's right to run. It ends when this is dropped.
pub(super) struct Slot {
    shared: Arc<Shared>,
    queue: usize,
}

impl Slot {
    pub(super) const fn new(shared: Arc<Shared>, queue: usize) -> Self {
        Self { shared, queue }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.shared.queues[self.queue].give_back(1);
        self.shared.freed.notify_one();
    }
}
