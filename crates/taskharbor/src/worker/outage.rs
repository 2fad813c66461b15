//! Telling once that the store is away, and once that it is back.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use taskharbor_core::DriverError;
use tokio::time::Instant;

use crate::{Event, observe::Observers, retry::Exponential};

/// How long to wait before a call that failed is made again.
pub(super) const BACKOFF: Exponential =
    Exponential::new().base(Duration::from_millis(100)).cap(Duration::from_secs(5)).jitter(0.5);

/// Whether the store answers, as all loops of a worker see it.
#[derive(Debug, Default)]
pub(super) struct Outage {
    is_on: AtomicBool,
    since: Mutex<Option<Instant>>,
}

impl Outage {
    pub(super) fn failed(&self, doing: &'static str, error: &DriverError, observers: &Observers) {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if since.is_none() {
            *since = Some(Instant::now());
            self.is_on.store(true, Ordering::Release);
            drop(since);
            observers.tell(&Event::StoreUnavailable { doing, error });
        }
    }

    pub(super) fn answered(&self, observers: &Observers) {
        if !self.is_on.load(Ordering::Acquire) {
            return;
        }
        let since = self.since.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.is_on.store(false, Ordering::Release);
        if let Some(since) = since {
            observers.tell(&Event::StoreBack { after: since.elapsed() });
        }
    }
}
