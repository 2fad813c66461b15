//! A clock that follows tokio's.

use taskharbor_core::{Timestamp, clock::Clock};
use tokio::time::Instant;

/// A clock that follows tokio's clock, which a test can pause: then time passes as timers do.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    epoch: Timestamp,
    started: Instant,
}

impl TokioClock {
    /// A clock that shows `epoch` now.
    ///
    /// # Panics
    ///
    /// Tokio's clock has to be read inside a runtime if it is paused.
    #[must_use]
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self { epoch, started: Instant::now() }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.epoch.saturating_add(self.started.elapsed())
    }
}

/// Whether tokio's clock stands still.
#[expect(clippy::disallowed_methods, reason = "only real time tells whether the other moves")]
pub(super) fn is_paused() -> bool {
    let (tokio, real) = (Instant::now(), std::time::Instant::now());
    while real.elapsed().is_zero() {
        std::hint::spin_loop();
    }
    Instant::now() == tokio
}
