//! Telling once that the store or its wake-ups are away, and once that they are back.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use taskharbor_core::{AnyDriver, Driver, DriverError};
use tokio::{sync::Notify, time::Instant};

use super::{pruner, shared::Shared};
use crate::{Event, Operation, observe::Observers, retry::Exponential};

/// How long to wait before a call that failed is made again.
pub(crate) const BACKOFF: Exponential =
    Exponential::new().base(Duration::from_millis(100)).cap(Duration::from_secs(5)).jitter(0.5);

/// How long a call may take that gets an answer, for a guess at which parts will not call again.
const ROUND_TRIP: Duration = Duration::from_millis(500);

/// A part of a worker that calls the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Reserver,
    Keeper,
    Settler,
    Input,
    Pruner,
    Scheduler,
    /// It also calls while all slots are busy, so an outage is noticed when no other part calls.
    Announcer,
    Watch,
    /// Holds the lane of a job that was throttled. It is not tried again.
    Hold,
    /// Asks for the time during an outage, so that its end is noticed if no other part calls.
    Probe,
}

impl Part {
    /// How many parts do the work of a worker. A store that fails only the others is not away.
    const WORKING: usize = 7;

    const fn works(self) -> bool {
        (self as usize) < Self::WORKING
    }
}

/// Whether the store answers, as all parts of a worker see it.
///
/// An answer to a call that began after the last failure ends an outage. A store that fails some
/// calls and answers others must not be told again and again, so a part that failed and is about to
/// try again is waited for, for as long as it takes until it has tried.
#[derive(Debug, Default)]
pub(super) struct Outage {
    /// Whether there is one, to be read without the lock.
    is_on: AtomicBool,
    state: Mutex<State>,
    begun: Notify,
    no_wake_ups: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    since: Option<Instant>,
    last_failure: Option<Instant>,
    /// For each working part that has not had an answer since it failed.
    failing: [Option<Failing>; Part::WORKING],
    /// A call that began before the end of the last outage and fails after it belongs to that one.
    ended: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Failing {
    last: Instant,
    times: u32,
}

impl State {
    /// Whether every part that failed would have tried again by now, if there were still something to
    /// try.
    fn have_all_given_up(&self, now: Instant) -> bool {
        let mut failing = self.failing.iter().zip(0..);
        failing.all(|(failing, part)| {
            let factor = if part == Part::Pruner as usize { pruner::BACKOFF_FACTOR } else { 1 };
            failing.is_none_or(|it| {
                let wait = BACKOFF.after(it.times, 0.0) * factor + ROUND_TRIP;
                now.saturating_duration_since(it.last) > wait
            })
        })
    }
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

    pub(super) fn are_wake_ups_lost(&self) -> bool {
        self.no_wake_ups.load(Ordering::SeqCst)
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::SeqCst)
    }

    /// Waits until an outage has begun. Returns at once during one.
    pub(super) async fn begun(&self) {
        while !self.is_on() {
            self.begun.notified().await;
        }
    }

    /// A call that began at `began` got no answer.
    pub(super) fn failed(
        &self,
        part: Part,
        began: Instant,
        operation: Operation,
        error: &DriverError,
        observers: &Observers,
    ) {
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.ended.is_some_and(|ended| began < ended) {
            return;
        }
        // The pruner tries again too rarely to tell when an outage ends that others notice as well.
        let is_told_by_others = part == Part::Pruner && state.since.is_some();
        if part.works() && (!is_told_by_others || state.failing[part as usize].is_some()) {
            let failing = &mut state.failing[part as usize];
            let times = failing.map_or(1, |it| it.times.saturating_add(1));
            *failing = Some(Failing { last: now, times });
        } else if state.since.is_none() {
            return;
        }
        state.last_failure = Some(now);
        if state.since.is_none() {
            state.since = Some(now);
            self.is_on.store(true, Ordering::SeqCst);
            drop(state);
            self.begun.notify_one();
            let doing = operation.as_str();
            observers.tell(&Event::StoreUnavailable { doing, error });
        }
    }

    /// A call that began at `began` was answered.
    pub(super) fn answered(&self, part: Part, began: Instant, observers: &Observers) {
        if !self.is_on() {
            return;
        }
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.last_failure.is_some_and(|failure| began < failure) {
            return;
        }
        if part.works() {
            state.failing[part as usize] = None;
        }
        let since = if state.have_all_given_up(now) { state.since.take() } else { None };
        let Some(since) = since else { return };
        *state = State { ended: Some(now), ..State::default() };
        self.is_on.store(false, Ordering::SeqCst);
        drop(state);
        observers.tell(&Event::StoreBack { after: since.elapsed() });
    }
}

/// Asks the store for its time while it is away.
pub(super) async fn probe(shared: Arc<Shared>, driver: AnyDriver) {
    loop {
        shared.outage.begun().await;
        let mut failures = 0;
        while shared.outage.is_on() {
            failures += 1;
            tokio::time::sleep(shared.backoff(failures)).await;
            let _ = shared.call(Part::Probe, Operation::StoreTime, 0, driver.store_time()).await;
        }
    }
}

#[cfg(test)]
mod tests {
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
    fn lost_wake_ups_are_reported_once_until_they_are_back() {
        let told = Arc::new(Told::default());
        let observers = Observers::new(vec![Arc::clone(&told) as Arc<dyn Observer>]);
        let outage = Outage::default();
        for problem in [None, Some("cut"), Some("silent"), None, None, Some("cut")] {
            outage.note_wake_ups(problem, &observers);
        }
        assert_eq!(*told.0.lock().unwrap(), ["lost: cut", "back", "lost: cut"]);
    }
}
