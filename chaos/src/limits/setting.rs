//! Changing limits, pausing and holding queues, one change of a queue after another.
//!
//! These calls go over a handle whose connections are not cut, and their futures are not dropped. So it
//! is known at any moment which limits were surely in force, and which may have been.

use std::time::Duration;

use fastrand::Rng;
use taskharbor_core::{
    Admin, AnyDriver, QueueName, Timestamp,
    admin::{Change, Configure, QueueLimits},
};
use tokio::sync::Mutex;

use super::{
    history::{Closing, Closure, Lane, LimitChange},
    observer::Observer,
    queue::{Kind, lane},
};
use crate::Outcome;

/// A queue stays as it is for at least this long.
const PAUSE_MS: std::ops::Range<u64> = 30..250;
const HOLD_MS: std::ops::Range<u64> = 30..250;

pub(crate) struct Settings {
    driver: AnyDriver,
    queues: [Mutex<State>; Kind::ALL.len()],
}

/// What is known about a queue while its lock is held.
#[derive(Default)]
struct State {
    is_paused: bool,
    /// Not changed again before this time.
    next: Option<Timestamp>,
}

impl Settings {
    pub(crate) fn new(driver: AnyDriver) -> Self {
        Self { driver, queues: Default::default() }
    }

    /// Sets the first limits of all queues.
    pub(crate) async fn begin(&self, observer: &Observer, random: &mut Rng) -> Outcome {
        for kind in Kind::ALL {
            if let Some(limits) = kind.limits(random) {
                self.set_limits(kind, limits, observer).await?;
            }
        }
        Ok(())
    }

    /// Resumes all queues.
    pub(crate) async fn resume(&self, observer: &Observer) -> Outcome {
        for (kind, state) in Kind::ALL.into_iter().zip(&self.queues) {
            if std::mem::take(&mut state.lock().await.is_paused) {
                self.resume_queue(kind.queue()?, observer).await?;
            }
        }
        Ok(())
    }

    /// Changes something about a queue, unless another task does or has just done so.
    pub(crate) async fn change(&self, observer: &Observer, random: &mut Rng) -> Outcome {
        let at = random.usize(..Kind::ALL.len());
        let Ok(mut state) = self.queues[at].try_lock() else { return Ok(()) };
        let now = observer.now();
        if state.next.is_some_and(|next| now < next) {
            return Ok(());
        }
        state.next = Some(now.saturating_add(Duration::from_millis(random.u64(PAUSE_MS))));
        let (kind, queue) = (Kind::ALL[at], Kind::ALL[at].queue()?);
        if std::mem::take(&mut state.is_paused) {
            return self.resume_queue(queue, observer).await;
        }
        match random.u8(..10) {
            0 => {
                state.is_paused = true;
                let pause = Change::PauseQueue(queue.clone());
                self.close(pause, (queue, None, Closing::Pause), observer).await
            }
            1..=2 => self.hold(queue, None, observer, random).await,
            3..=4 => {
                let lane = lane(random)?;
                self.hold(queue, lane, observer, random).await
            }
            5 => self.end_hold(queue, None, observer).await,
            6 => self.end_hold(queue, lane(random)?, observer).await,
            _ => match kind.limits(random) {
                Some(limits) => self.set_limits(kind, limits, observer).await,
                None => Ok(()),
            },
        }
    }

    pub(crate) async fn set_limits(
        &self,
        kind: Kind,
        limits: QueueLimits,
        observer: &Observer,
    ) -> Outcome {
        let queue = kind.queue()?;
        let set = Change::SetLimits { queue: queue.clone(), limits: Some(limits.clone()) };
        let sent = self.make(set, "set limits", observer).await?;
        observer.answer(|history, answered| {
            let answered = answered.order;
            history.changes.push(LimitChange { queue, limits, sent, answered });
        });
        Ok(())
    }

    async fn hold(
        &self,
        queue: QueueName,
        lane: Lane,
        observer: &Observer,
        random: &mut Rng,
    ) -> Outcome {
        let until = observer.now().saturating_add(Duration::from_millis(random.u64(HOLD_MS)));
        let (of, lane_of) = (queue.clone(), lane.clone());
        let hold = Change::Hold { queue: of, lane: lane_of, until: Some(until) };
        self.close(hold, (queue, lane, Closing::Hold(until)), observer).await
    }

    async fn end_hold(&self, queue: QueueName, lane: Lane, observer: &Observer) -> Outcome {
        let end = Change::Hold { queue: queue.clone(), lane: lane.clone(), until: None };
        let sent = self.make(end, "end hold", observer).await?;
        let is_hold = |how| matches!(how, Closing::Hold(_));
        observer.answer(|history, answered| {
            history.reopen((&queue, &lane), is_hold, (sent, answered.order));
        });
        Ok(())
    }

    async fn resume_queue(&self, queue: QueueName, observer: &Observer) -> Outcome {
        let sent = self.make(Change::ResumeQueue(queue.clone()), "resume", observer).await?;
        observer.answer(|history, answered| {
            history.reopen((&queue, &None), |how| how == Closing::Pause, (sent, answered.order));
        });
        Ok(())
    }

    /// Makes a change that closes a queue or lane.
    async fn close(
        &self,
        change: Change,
        (queue, lane, how): (QueueName, Lane, Closing),
        observer: &Observer,
    ) -> Outcome {
        let call = if how == Closing::Pause { "pause" } else { "hold" };
        let sent = self.make(change, call, observer).await?;
        observer.answer(|history, answered| {
            let answered = answered.order;
            history.closures.push(Closure { queue, lane, how, sent, answered, reopened: None });
        });
        Ok(())
    }

    /// Makes a change; answers the place in the order at which it was sent.
    async fn make(&self, change: Change, call: &'static str, observer: &Observer) -> Outcome<u64> {
        let sent = observer.send(call);
        for answer in self.driver.configure(Configure::new(vec![change], sent.at)).await? {
            answer?;
        }
        Ok(sent.order)
    }
}
