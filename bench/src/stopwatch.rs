//! Adding up the time that one kind of work takes.

use std::time::{Duration, Instant};

/// Time spent and things done in it.
#[derive(Default)]
pub(crate) struct Stopwatch {
    spent: Duration,
    done: usize,
}

impl Stopwatch {
    /// Does `count` things and adds the time they took.
    pub(crate) async fn time<T>(&mut self, count: usize, work: impl Future<Output = T>) -> T {
        let started = now();
        let answer = work.await;
        self.spent += started.elapsed();
        self.done += count;
        answer
    }

    /// Things done per second.
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
    pub(crate) fn rate(&self) -> f64 {
        self.done as f64 / self.spent.as_secs_f64()
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
