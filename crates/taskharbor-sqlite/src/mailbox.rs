//! [`Mailbox`]: a bounded queue from futures to a thread that may block.
//!
//! A future that puts something in waits for room without blocking, and the thread that takes it
//! out blocks without a runtime. Tokio's own channel would do but for one thing: the thread has to wait
//! for a bounded time.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many calls wait at most; those that come later wait for room.
const MAX_WAITING_CALLS: usize = 1_024;

#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    state: Mutex<State<T>>,
    arrived: Condvar,
    room: Arc<Semaphore>,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    /// How often threads were told to look around.
    nudges: u64,
    closed: bool,
}

/// What a thread found.
#[derive(Debug)]
pub(crate) enum Taken<T> {
    /// These, in the order in which they came.
    Items(Vec<T>),
    /// Nothing within the time, or the thread was nudged to look around.
    Nothing,
    /// Nothing, and there will be nothing more.
    Closed,
}

impl<T> Mailbox<T> {
    pub(crate) fn new() -> Self {
        let state = State { items: VecDeque::new(), nudges: 0, closed: false };
        let room = Arc::new(Semaphore::new(MAX_WAITING_CALLS));
        Self { state: Mutex::new(state), arrived: Condvar::new(), room }
    }

    /// Room for one item, which is taken until the permit is dropped; `None` if it is closed.
    pub(crate) async fn room(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).acquire_owned().await.ok()
    }

    /// Puts something in, for which there is room; `false` if it is closed.
    pub(crate) fn put(&self, item: T) -> bool {
        let mut state = self.lock();
        if state.closed {
            return false;
        }
        state.items.push_back(item);
        drop(state);
        self.arrived.notify_one();
        true
    }

    /// Has every thread look around, although there is nothing for it.
    pub(crate) fn nudge(&self) {
        self.lock().nudges += 1;
        self.arrived.notify_all();
    }

    /// Takes what has gathered, but no more than weighs `most` unless it is one, after waiting for
    /// something to come. `nudges` are those that this thread has seen.
    pub(crate) fn take(
        &self,
        most: usize,
        nudges: &mut u64,
        limit: Option<Duration>,
        weight: impl Fn(&T) -> usize,
    ) -> Taken<T> {
        let mut state = self.lock();
        loop {
            if !state.items.is_empty() {
                let (mut taken, mut sum) = (Vec::new(), 0);
                while let Some(next) = state.items.front() {
                    sum += weight(next);
                    if sum > most && !taken.is_empty() {
                        break;
                    }
                    taken.extend(state.items.pop_front());
                }
                return Taken::Items(taken);
            }
            if state.closed {
                return Taken::Closed;
            }
            if *nudges != state.nudges {
                *nudges = state.nudges;
                return Taken::Nothing;
            }
            state = match limit {
                None => self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(limit) => {
                    let waited = self.arrived.wait_timeout(state, limit);
                    let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
                    if waited.timed_out() && state.items.is_empty() && !state.closed {
                        return Taken::Nothing;
                    }
                    state
                }
            };
        }
    }

    /// Takes nothing more in. What is there is still taken out.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.room.close();
        self.arrived.notify_all();
    }

    /// As [`Mailbox::close`], and what is there is thrown away: no thread is left to take it out.
    pub(crate) fn abandon(&self) {
        self.close();
        let items = std::mem::take(&mut self.lock().items);
        // Dropping them runs foreign code, which must not find the lock taken.
        drop(items);
    }

    /// Every critical section leaves the data whole at every point.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(mailbox: &Mailbox<usize>, most: usize) -> Vec<usize> {
        match mailbox.take(most, &mut 0, Some(Duration::ZERO), |it| *it) {
            Taken::Items(items) => items,
            Taken::Nothing | Taken::Closed => Vec::new(),
        }
    }

    #[test]
    fn what_has_gathered_is_taken_together_up_to_a_weight() {
        let mailbox = Mailbox::new();
        for item in [1, 2, 3, 9, 1] {
            assert!(mailbox.put(item));
        }
        assert_eq!(take(&mailbox, 6), [1, 2, 3]);
        assert_eq!(take(&mailbox, 6), [9], "one is taken however heavy it is");
        assert_eq!(take(&mailbox, 6), [1]);
        assert!(matches!(mailbox.take(6, &mut 0, Some(Duration::ZERO), |it| *it), Taken::Nothing));
        mailbox.nudge();
        assert!(matches!(mailbox.take(6, &mut 0, None, |it| *it), Taken::Nothing));
    }

    #[test]
    fn a_closed_one_gives_what_it_has_and_takes_nothing() {
        let mailbox = Mailbox::new();
        assert!(mailbox.put(1));
        mailbox.close();
        assert!(!mailbox.put(2));
        assert_eq!(take(&mailbox, 9), [1]);
        assert!(matches!(mailbox.take(9, &mut 0, None, |it| *it), Taken::Closed));
    }

    #[tokio::test]
    async fn a_future_that_finds_no_room_waits_for_it() {
        let mailbox = Mailbox::<usize>::new();
        let mut permits = Vec::new();
        for _ in 0..MAX_WAITING_CALLS {
            permits.push(mailbox.room().await.unwrap());
        }
        let mut waiting = std::pin::pin!(mailbox.room());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        permits.pop();
        assert!(waiting.await.is_some());
        mailbox.close();
        assert!(mailbox.room().await.is_none());
    }
}
