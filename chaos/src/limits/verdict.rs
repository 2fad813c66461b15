//! The check that the history of the jobs of limited queues keeps every promise.

mod closed;
mod end;
mod inflight;
mod rate;
#[cfg(test)]
mod tests;
mod turn;

use std::{collections::BTreeMap, fmt};

use taskharbor_core::{QueueName, name::LaneName};

use super::history::{Grant, History, LimitChange};
use crate::Outcome;

/// What was found.
pub(crate) struct Verdict {
    problems: Vec<String>,
    grants: usize,
    jobs: usize,
    /// How often a queue or lane surely had as many leases as its limit allows.
    full: usize,
    /// The most grants that a lane waited for, in rounds of turns.
    longest_wait: f64,
}

/// A whole queue, or a lane of it.
type Scope<'a> = (&'a QueueName, Option<&'a LaneName>);

impl Verdict {
    /// Judges a history. Turns were remembered at `turns` places.
    pub(crate) fn of(history: &History, turns: usize) -> Self {
        let (mut problems, mut full) = (Vec::new(), 0);
        for (scope, grants) in scopes(&history.grants) {
            let changes = Changes::of(&history.changes, scope);
            full += inflight::check(scope, &grants, &changes, &mut problems);
            rate::check(scope, &grants, &changes, &mut problems);
        }
        closed::check(history, &mut problems);
        let longest_wait = turn::check(history, turns, &mut problems);
        end::check(history, &mut problems);
        let (grants, jobs) = (history.grants.len(), history.jobs.len());
        Self { problems, grants, jobs, full, longest_wait }
    }

    pub(crate) fn fail(self) -> Outcome {
        crate::fail_if_any(&self.problems)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { grants, jobs, full, longest_wait, .. } = self;
        write!(
            f,
            "{grants} grants of {jobs} jobs, surely full {full} times, \
             longest wait of a lane {longest_wait:.1} rounds"
        )
    }
}

/// The grants of each queue, and of each lane.
fn scopes(grants: &[Grant]) -> BTreeMap<Scope<'_>, Vec<&Grant>> {
    let mut scopes: BTreeMap<Scope<'_>, Vec<&Grant>> = BTreeMap::new();
    for grant in grants {
        scopes.entry((&grant.queue, None)).or_default().push(grant);
        if let Some(lane) = &grant.lane {
            scopes.entry((&grant.queue, Some(lane))).or_default().push(grant);
        }
    }
    scopes
}

fn name((queue, lane): Scope<'_>) -> String {
    match lane {
        Some(lane) => format!("lane {lane} of queue {queue}"),
        None => format!("queue {queue}"),
    }
}

/// The changes of the limits of one queue or lane, in order.
struct Changes<'a> {
    scope: Scope<'a>,
    all: Vec<&'a LimitChange>,
}

impl<'a> Changes<'a> {
    fn of(changes: &'a [LimitChange], scope: Scope<'a>) -> Self {
        Self { scope, all: changes.iter().filter(|change| change.queue == *scope.0).collect() }
    }

    /// The greatest limit that may have been in force between two places in the order; `None` if there
    /// may have been none.
    fn most_inflight(&self, from: u64, to: u64) -> Option<usize> {
        let mut most = 0;
        for (at, change) in self.all.iter().enumerate() {
            let end = self.all.get(at + 1).map_or(u64::MAX, |next| next.answered);
            if change.sent <= to && end >= from {
                most = most.max(self.inflight(change)?);
            }
        }
        // Nothing is limited before the first change is answered.
        (self.all.first()?.answered < from).then_some(most)
    }

    fn inflight(&self, change: &LimitChange) -> Option<usize> {
        let limits = &change.limits;
        let limit = match self.scope.1 {
            None => limits.inflight,
            Some(lane) => limits.lanes.get(lane).and_then(|own| own.inflight).or(limits.per_lane),
        };
        limit.map(|limit| limit as usize)
    }
}
