//! Telling a running handler to stop.

use std::{
    pin::pin,
    sync::atomic::{AtomicU8, Ordering},
};

use taskharbor_core::job::ReleaseReason;
use tokio::sync::Notify;

/// Why a handler is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CancelReason {
    /// The job was cancelled by a user or a program. If the handler succeeds, the job is done;
    /// otherwise it is cancelled.
    Requested,
    /// The worker shuts down and the grace period has ended. If the handler succeeds, the job is
    /// done; otherwise it is released without charging an attempt.
    Shutdown,
    /// The execution has exceeded its timeout, which counts as a failed attempt. The handler itself
    /// is stopped; work on other threads sees this reason.
    TimedOut,
    /// The handler has ended. Tasks and threads that it has started and not waited for see this
    /// reason.
    Over,
    /// The lease was lost: another worker may be running the job, and the outcome of this handler
    /// is not recorded. It is stopped at its next `await`.
    LeaseLost,
}

impl CancelReason {
    /// Why a job whose handler was told to stop is released.
    pub(crate) const fn as_release(self) -> ReleaseReason {
        match self {
            Self::Requested => ReleaseReason::CancelRequested,
            Self::Shutdown | Self::TimedOut | Self::Over | Self::LeaseLost => {
                ReleaseReason::Shutdown
            }
        }
    }
}

/// A flag that is raised once or twice, each time for a stronger reason.
#[derive(Debug, Default)]
pub(crate) struct Cancellation {
    level: AtomicU8,
    raised: Notify,
}

impl Cancellation {
    /// Raises the flag; whether it was not as high before.
    pub(crate) fn raise(&self, reason: CancelReason) -> bool {
        let before = self.level.fetch_max(level(reason), Ordering::SeqCst);
        self.raised.notify_waiters();
        before < level(reason)
    }

    pub(crate) fn reason(&self) -> Option<CancelReason> {
        match self.level.load(Ordering::SeqCst) {
            0 => None,
            1 => Some(CancelReason::Requested),
            2 => Some(CancelReason::Shutdown),
            3 => Some(CancelReason::TimedOut),
            4 => Some(CancelReason::Over),
            _ => Some(CancelReason::LeaseLost),
        }
    }

    /// Waits for a reason that is at least as strong.
    pub(crate) async fn at_least(&self, reason: CancelReason) -> CancelReason {
        loop {
            let mut raised = pin!(self.raised.notified());
            // Registered before looking, so that nothing is missed in between.
            raised.as_mut().enable();
            match self.reason() {
                Some(now) if now >= reason => return now,
                _ => raised.await,
            }
        }
    }
}

const fn level(reason: CancelReason) -> u8 {
    match reason {
        CancelReason::Requested => 1,
        CancelReason::Shutdown => 2,
        CancelReason::TimedOut => 3,
        CancelReason::Over => 4,
        CancelReason::LeaseLost => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stronger_reason_replaces_a_weaker_one_and_never_the_reverse() {
        let cancellation = Cancellation::default();
        assert_eq!(cancellation.reason(), None);
        for (raised, shown) in [
            (CancelReason::Requested, CancelReason::Requested),
            (CancelReason::LeaseLost, CancelReason::LeaseLost),
            (CancelReason::Shutdown, CancelReason::LeaseLost),
        ] {
            cancellation.raise(raised);
            assert_eq!(cancellation.at_least(CancelReason::Requested).await, shown);
        }
    }

    #[tokio::test]
    async fn a_weak_reason_does_not_wake_a_waiter_for_a_strong_one() {
        let cancellation = Cancellation::default();
        let mut lost = pin!(cancellation.at_least(CancelReason::LeaseLost));
        let is_ready = async |lost: &mut std::pin::Pin<&mut _>| {
            let any: &mut (dyn Future<Output = CancelReason> + Unpin) = lost;
            std::future::poll_fn(|cx| {
                std::task::Poll::Ready(std::pin::Pin::new(&mut *any).poll(cx).is_ready())
            })
            .await
        };
        assert!(!is_ready(&mut lost).await);
        cancellation.raise(CancelReason::Requested);
        assert!(!is_ready(&mut lost).await);
        cancellation.raise(CancelReason::LeaseLost);
        assert!(is_ready(&mut lost).await);
    }
}
