//! [`Retention`]: how long terminal jobs are kept.

use std::time::Duration;

use taskharbor_core::{Timestamp, admin::Prune};

/// How long terminal jobs are kept, by their state.
///
/// While a job is kept, its record and output can be read, and it may hold its idempotency key
/// ([`KeyHold`](crate::KeyHold)). A flow is kept and removed as a whole, according to the state of
/// its last job and the time at which that ended.
///
/// ```
/// # fn keep(worker: taskharbor::WorkerBuilder) -> taskharbor::WorkerBuilder {
/// use std::time::Duration;
/// use taskharbor::Retention;
///
/// let hour = Duration::from_secs(3_600);
/// worker.retention(Retention::new().done(hour).dlq(24 * 90 * hour))
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "give it to `WorkerBuilder::retention`"]
pub struct Retention {
    /// `None` is for ever.
    done: Option<Duration>,
    cancelled: Option<Duration>,
    dlq: Option<Duration>,
}

impl Retention {
    const DAY: Duration = Duration::from_secs(86_400);

    /// Keeps done and cancelled jobs for 24 hours, and dead-lettered ones until they are requeued
    /// or purged.
    pub const fn new() -> Self {
        Self { done: Some(Self::DAY), cancelled: Some(Self::DAY), dlq: None }
    }

    /// Keeps all jobs until they are purged.
    pub const fn keep_all() -> Self {
        Self { done: None, cancelled: None, dlq: None }
    }

    /// Keeps done jobs for this long. With zero they are kept until the lease under which they
    /// ended would have run out, because until then the worker may have to ask again whether the
    /// job is done. A caller that waits for the output has to read it before the record is removed.
    /// Defaults to 24 hours.
    pub const fn done(mut self, kept: Duration) -> Self {
        self.done = Some(kept);
        self
    }

    /// Keeps cancelled jobs for this long. Defaults to 24 hours.
    pub const fn cancelled(mut self, kept: Duration) -> Self {
        self.cancelled = Some(kept);
        self
    }

    /// Keeps dead-lettered jobs for this long. Defaults to for ever.
    pub const fn dlq(mut self, kept: Duration) -> Self {
        self.dlq = Some(kept);
        self
    }

    /// Keeps done jobs for ever.
    pub const fn keep_done(mut self) -> Self {
        self.done = None;
        self
    }

    /// Keeps cancelled jobs for ever.
    pub const fn keep_cancelled(mut self) -> Self {
        self.cancelled = None;
        self
    }

    /// Keeps dead-lettered jobs for ever, which is the default.
    pub const fn keep_dlq(mut self) -> Self {
        self.dlq = None;
        self
    }

    /// The shortest time for which anything is kept; `None` if everything is kept for ever.
    pub(super) fn shortest(&self) -> Option<Duration> {
        [self.done, self.cancelled, self.dlq].into_iter().flatten().min()
    }

    /// The request that prunes the records whose retention has passed at this instant.
    pub(super) fn request(&self, limit: usize, now: Timestamp) -> Prune {
        let before = |kept: Option<Duration>| {
            // A retention that reaches back before 1970 keeps everything.
            kept.filter(|kept| *kept <= now.since(Timestamp::EPOCH))
                .map(|kept| now.saturating_sub(kept))
        };
        let mut prune = Prune::new(limit, now);
        prune.done_before = before(self.done);
        prune.cancelled_before = before(self.cancelled);
        prune.dlq_before = before(self.dlq);
        prune
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn at(duration: Duration) -> Timestamp {
        Timestamp::EPOCH.saturating_add(duration)
    }

    #[test]
    fn what_is_removed_ended_so_long_ago() {
        let now = at(1_000 * HOUR);
        let prune =
            Retention::new().done(HOUR).keep_cancelled().dlq(Duration::ZERO).request(7, now);
        assert_eq!(prune, Prune::new(7, now).done_before(at(999 * HOUR)).dlq_before(now));
        assert_eq!(Retention::keep_all().request(7, now), Prune::new(7, now));
    }

    #[test]
    fn what_is_kept_longer_than_there_has_been_time_stays() {
        for kept in [3 * HOUR, Duration::MAX] {
            let prune = Retention::keep_all().done(kept).request(7, at(2 * HOUR));
            assert_eq!(prune.done_before, None);
        }
    }

    #[test]
    fn the_shortest_time_is_that_of_what_is_not_kept_for_ever() {
        assert_eq!(Retention::new().shortest(), Some(24 * HOUR));
        assert_eq!(Retention::new().dlq(HOUR).shortest(), Some(HOUR));
        assert_eq!(Retention::keep_all().shortest(), None);
    }
}
