//! The history of the jobs of limited queues, in the order in which calls were sent and answered.

use std::collections::HashMap;

use taskharbor_core::{
    JobId, QueueName, State, Timestamp, admin::QueueLimits, driver::LeaseToken, name::LaneName,
};

/// A lane; `None` for the jobs without one.
pub(crate) type Lane = Option<LaneName>;

/// A moment at which a call was sent or answered: its place in the order of all of them, and the time
/// by the clock of the callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) order: u64,
    pub(crate) at: Timestamp,
}

/// A job that a call to reserve was answered with.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) job: JobId,
    pub(crate) queue: QueueName,
    pub(crate) lane: Lane,
    pub(crate) delivery: u32,
    /// The call was sent; its time is what the caller passed.
    pub(crate) sent: Moment,
    pub(crate) answered: Moment,
    pub(crate) expires_at: Timestamp,
    /// The first call that may have ended the lease was sent at this place in the order.
    pub(crate) ended: Option<u64>,
}

/// Limits of a queue were set.
#[derive(Clone, Debug)]
pub(crate) struct LimitChange {
    pub(crate) queue: QueueName,
    pub(crate) limits: QueueLimits,
    pub(crate) sent: u64,
    pub(crate) answered: u64,
}

/// What kept jobs of a queue or lane from being granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    Pause,
    /// A hold, until this instant.
    Hold(Timestamp),
}

/// A time in which a queue or lane was closed.
#[derive(Clone, Debug)]
pub(crate) struct Closure {
    pub(crate) queue: QueueName,
    /// The lane; the whole queue if `None`.
    pub(crate) lane: Lane,
    pub(crate) how: Closing,
    /// The call that closed it.
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    /// The call that opened it was sent and answered, if it was.
    pub(crate) reopened: Option<(u64, u64)>,
}

/// A job whose enqueue was acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) queue: QueueName,
    pub(crate) lane: Lane,
    pub(crate) acknowledged: Moment,
    /// Whether it is due from the beginning.
    pub(crate) is_due: bool,
}

/// How many jobs were granted at once when all places were free.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub(crate) queue: QueueName,
    pub(crate) lane: Lane,
    pub(crate) limit: usize,
    pub(crate) granted: usize,
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) jobs: HashMap<JobId, Stored>,
    /// In the order of their answers.
    pub(crate) grants: Vec<Grant>,
    by_token: HashMap<LeaseToken, usize>,
    /// In order; changes of one queue do not overlap.
    pub(crate) changes: Vec<LimitChange>,
    pub(crate) closures: Vec<Closure>,
    /// What is stored at the end.
    pub(crate) states: HashMap<JobId, State>,
    pub(crate) places: Vec<Places>,
}

impl History {
    pub(crate) fn add_grant(&mut self, grant: Grant, token: LeaseToken) {
        self.by_token.insert(token, self.grants.len());
        self.grants.push(grant);
    }

    /// A call that may end this lease is sent.
    pub(crate) fn end(&mut self, token: LeaseToken, order: u64) {
        if let Some(grant) = self.by_token.get(&token).and_then(|at| self.grants.get_mut(*at)) {
            grant.ended.get_or_insert(order);
        }
    }

    /// A call opened this queue or lane.
    pub(crate) fn reopen(
        &mut self,
        (queue, lane): (&QueueName, &Lane),
        is_it: impl Fn(Closing) -> bool,
        (sent, answered): (u64, u64),
    ) {
        for closure in &mut self.closures {
            let is_open = closure.reopened.is_some() || !is_it(closure.how);
            if !is_open && closure.queue == *queue && closure.lane == *lane {
                closure.reopened = Some((sent, answered));
            }
        }
    }
}
