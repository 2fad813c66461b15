//! Telling once that the store or its wake-ups are away, and once that they are back.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    time::Duration,
};

use taskharbor_core::DriverError;
use tokio::time::Instant;

use crate::{Event, Operation, observe::Observers, retry::Exponential};

/// How long to wait before a call that failed is made again.
pub(super) const BACKOFF: Exponential =
    Exponential::new().base(Duration::from_millis(100)).cap(Duration::from_secs(5)).jitter(0.5);

/// A part of a worker that calls the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Reserver = 1,
    Keeper = 2,
    Settler = 4,
    Watch = 8,
    Input = 16,
    Pruner = 32,
}

/// Whether the store answers, as all parts of a worker see it. It is away while it fails one of
/// them, so that a store which fails some calls and answers others is not told again and again.
#[derive(Debug, Default)]
pub(super) struct Outage {
    failing: AtomicU8,
    since: Mutex<Option<Instant>>,
    no_wake_ups: AtomicBool,
}

impl Outage {
    /// Why wake-ups do not arrive although they should, if they do not.
    pub(super) fn note_wake_ups(&self, problem: Option<&str>, observers: &Observers) {
        let was_lost = self.no_wake_ups.swap(problem.is_some(), Ordering::SeqCst);
        match problem {
            Some(problem) if !was_lost => observers.tell(&Event::WakeUpsLost { problem }),
            None if was_lost => observers.tell(&Event::WakeUpsBack {}),
            _ => {}
        }
    }

    pub(super) fn failed(
        &self,
        part: Part,
        operation: Operation,
        error: &DriverError,
        observers: &Observers,
    ) {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        self.failing.fetch_or(part as u8, Ordering::SeqCst);
        if since.is_none() {
            *since = Some(Instant::now());
            drop(since);
            let doing = operation.as_str();
            observers.tell(&Event::StoreUnavailable { doing, error });
        }
    }

    pub(super) fn answered(&self, part: Part, observers: &Observers) {
        if self.failing.load(Ordering::Relaxed) & part as u8 == 0 {
            return;
        }
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let still = self.failing.fetch_and(!(part as u8), Ordering::SeqCst) & !(part as u8);
        let over = if still == 0 { since.take() } else { None };
        drop(since);
        if let Some(since) = over {
            observers.tell(&Event::StoreBack { after: since.elapsed() });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Observer;

    #[derive(Default)]
    struct Told(Mutex<Vec<String>>);

    impl Observer for Told {
        fn on(&self, event: &Event<'_>) {
            let told = match event {
                Event::WakeUpsLost { problem } => format!("lost: {problem}"),
                Event::WakeUpsBack {} => "back".to_owned(),
                _ => return,
            };
            self.0.lock().unwrap().push(told);
        }
    }

    #[test]
    fn lost_wake_ups_are_told_once_until_they_are_back() {
        let told = Arc::new(Told::default());
        let observers = Observers::new(vec![Arc::clone(&told) as Arc<dyn Observer>]);
        let outage = Outage::default();
        for problem in [None, Some("cut"), Some("silent"), None, None, Some("cut")] {
            outage.note_wake_ups(problem, &observers);
        }
        assert_eq!(*told.0.lock().unwrap(), ["lost: cut", "back", "lost: cut"]);
    }
}
