//! [`Pause`]: when to look again at a job that has not ended.

use std::time::Duration;

use taskharbor_core::driver::{Watch, Woken};
use tokio::time::{Instant, timeout_at};

use crate::retry::Exponential;

/// How often to look while no wake-up can come.
const POLL: Exponential = Exponential::new()
    .base(Duration::from_millis(2))
    .multiplier(1.5)
    .cap(Duration::from_millis(500))
    .jitter(0.25);
/// How often to look although wake-ups come: one can be lost, and a process that settles jobs may not
/// know yet that one waits.
const FALLBACK: Exponential = POLL.base(Duration::from_millis(50)).cap(Duration::from_secs(10));
/// A wake-up that names no job makes all waiters of a driver look. So each waits this long for every
/// job that is waited for, up to the second. All together so look 200 times a second.
const SPACING: Duration = Duration::from_millis(5);
const MAX_SPACING: Duration = Duration::from_millis(500);

pub(super) struct Pause {
    watch: Watch,
    looks: u32,
}

impl Pause {
    pub(super) const fn new(watch: Watch) -> Self {
        Self { watch, looks: 0 }
    }

    /// Waits until it is time to look again.
    pub(super) async fn wait(&mut self) {
        self.looks = self.looks.saturating_add(1);
        let (began, chance) = (Instant::now(), fastrand::f64());
        let interval = if self.watch.can_wake() { FALLBACK } else { POLL };
        let mut look_at = began + interval.after(self.looks, chance);
        while let Ok(woken) = timeout_at(look_at, self.watch.woken()).await {
            match woken {
                // If the driver was closed, the look says so.
                None | Some(Woken::Job) => return,
                Some(_) => look_at = look_at.min(began + self.spacing().mul_f64(chance)),
            }
        }
    }

    fn spacing(&self) -> Duration {
        let jobs = u32::try_from(self.watch.watched_jobs()).unwrap_or(u32::MAX);
        SPACING.saturating_mul(jobs).min(MAX_SPACING)
    }
}
