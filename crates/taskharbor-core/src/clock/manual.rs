//! A clock that moves only when a test moves it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use crate::{Timestamp, clock::Clock};

/// A clock that moves only when told to. Clones show the same time.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// Creates a clock that shows `start`.
    #[must_use]
    pub fn new(start: Timestamp) -> Self {
        Self(Arc::new(AtomicI64::new(start.as_micros())))
    }

    /// Moves the clock forward, at most to [`Timestamp::MAX`]; returns the new time.
    pub fn advance(&self, by: Duration) -> Timestamp {
        let moved = |micros| {
            let now = Timestamp::from_micros(micros).unwrap_or(Timestamp::EPOCH);
            Some(now.saturating_add(by).as_micros())
        };
        // The closure never declines, so the update cannot fail.
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, moved);
        self.now()
    }

    /// Sets the clock, forwards or back.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.as_micros(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        // Only timestamps are ever stored, so the fallback is never taken.
        Timestamp::from_micros(self.0.load(Ordering::SeqCst)).unwrap_or(Timestamp::EPOCH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_moves_only_when_told_to_and_never_past_the_end() {
        let clock = ManualClock::new(Timestamp::EPOCH);
        let twin = clock.clone();
        assert_eq!(clock.advance(Duration::from_micros(7)).as_micros(), 7);
        assert_eq!(twin.now().as_micros(), 7);
        assert_eq!(clock.advance(Duration::MAX), Timestamp::MAX);
        clock.set(Timestamp::EPOCH);
        assert_eq!(twin.now(), Timestamp::EPOCH);
    }
}
