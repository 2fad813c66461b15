//! Counts of jobs by state.

use crate::{QueueName, State, Timestamp, check, error::InvalidRequest};

/// How many jobs are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StateCounts {
    /// May be reserved now.
    pub ready: usize,
    /// Wait for their time.
    pub scheduled: usize,
    /// Wait for other jobs.
    pub blocked: usize,
    /// Are with workers.
    pub inflight: usize,
    /// Succeeded.
    pub done: usize,
    /// Were dead-lettered.
    pub dlq: usize,
    /// Were cancelled.
    pub cancelled: usize,
}

impl StateCounts {
    /// The number for one state.
    #[must_use]
    pub const fn get(&self, state: State) -> usize {
        match state {
            State::Ready => self.ready,
            State::Scheduled => self.scheduled,
            State::Blocked => self.blocked,
            State::Inflight => self.inflight,
            State::Done => self.done,
            State::Dlq => self.dlq,
            State::Cancelled => self.cancelled,
        }
    }

    /// The number for one state, to change.
    pub const fn get_mut(&mut self, state: State) -> &mut usize {
        match state {
            State::Ready => &mut self.ready,
            State::Scheduled => &mut self.scheduled,
            State::Blocked => &mut self.blocked,
            State::Inflight => &mut self.inflight,
            State::Done => &mut self.done,
            State::Dlq => &mut self.dlq,
            State::Cancelled => &mut self.cancelled,
        }
    }

    /// All jobs together.
    #[must_use]
    pub fn total(&self) -> usize {
        State::ALL.iter().map(|state| self.get(*state)).sum()
    }
}

impl std::iter::Sum for StateCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        let mut sum = Self::default();
        for of_one in counts {
            for &state in State::ALL {
                *sum.get_mut(state) += of_one.get(state);
            }
        }
        sum
    }
}

/// Asks for the number of jobs in each state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Counts {
    /// The current time.
    pub now: Timestamp,
    /// Where counting may stop; exact if `None`. A number below it is exact, any other means that
    /// many or more.
    pub at_most: Option<usize>,
}

impl Counts {
    /// Exact counts.
    #[must_use]
    pub const fn new(now: Timestamp) -> Self {
        Self { now, at_most: None }
    }

    /// Counts that may stop at this many jobs of each state and queue.
    #[must_use]
    pub const fn at_most(mut self, at_most: usize) -> Self {
        self.at_most = Some(at_most);
        self
    }

    /// Checks the cap.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::OutOfRange`] for a cap of zero.
    pub const fn check(&self) -> Result<(), InvalidRequest> {
        match self.at_most {
            Some(at_most) => check::range("at_most", at_most, 1, usize::MAX),
            None => Ok(()),
        }
    }
}

/// A queue and its jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueCounts {
    /// The queue.
    pub queue: QueueName,
    /// How many jobs are in each state.
    pub states: StateCounts,
    /// The earliest due time among the jobs that are ready.
    pub oldest_ready: Option<Timestamp>,
    /// Since when it is paused.
    pub paused_since: Option<Timestamp>,
}

impl QueueCounts {
    /// A queue without jobs.
    #[must_use]
    pub fn new(queue: QueueName) -> Self {
        Self { queue, states: StateCounts::default(), oldest_ready: None, paused_since: None }
    }
}
