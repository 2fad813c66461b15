//! No lane starves: while it surely has a job to grant, other lanes get no more than some rounds of turns.
//!
//! A job that was delivered for the first time when it was first seen waited from its acknowledgement until
//! the call that granted it was sent. Turns may be remembered for each handle, and racing calls take turns
//! in any order (LAN-5), so that a lane may wait for some rounds of each handle.

use std::collections::{BTreeMap, HashSet};

use super::{Scope, name};
use crate::limits::{
    history::{Closing, Grant, History, Lane, Stored},
    queue::Kind,
};

/// This many rounds of turns for each place where turns are remembered.
const ROUNDS: usize = 4;

/// Places in the order, the first and the last of which are not part of it.
type Span = (u64, u64);

/// Answers the longest wait of a lane, in rounds.
pub(super) fn check(history: &History, turns: usize, problems: &mut Vec<String>) -> f64 {
    let mut longest: f64 = 0.0;
    for kind in Kind::ALL {
        let of_queue = |grant: &&Grant| grant.queue.as_str() == kind.name();
        let grants: Vec<&Grant> = history.grants.iter().filter(of_queue).collect();
        for (lane, waits) in waits(history, &grants) {
            let Some(round) = kind.round(lane) else { continue };
            let most = most_passed_by(&grants, lane, &waits);
            longest = longest.max(ratio(most, round));
            let Some(first) = grants.first().filter(|_| most > ROUNDS * turns * round) else {
                continue;
            };
            let scope: Scope<'_> = (&first.queue, lane.as_ref());
            problems.push(format!(
                "{}: {most} jobs of other lanes are granted while it has some, of {round} in a round",
                name(scope)
            ));
        }
    }
    longest
}

#[expect(clippy::cast_precision_loss, reason = "a ratio needs no more than 52 bits")]
fn ratio(most: usize, round: usize) -> f64 {
    most as f64 / round as f64
}

/// When each lane surely had a job that was not held back by the lane.
fn waits<'a>(history: &'a History, grants: &[&'a Grant]) -> BTreeMap<&'a Lane, Vec<Span>> {
    let (mut waits, mut seen) = (BTreeMap::<_, Vec<Span>>::new(), HashSet::new());
    for grant in grants {
        let is_first = seen.insert(&grant.job) && grant.delivery == 1;
        let Some(job) = history.jobs.get(&grant.job) else { continue };
        let span = (job.acknowledged.order, grant.sent.order);
        let waited = is_first && job.is_due && span.0 < span.1;
        if waited && !may_be_held(history, job, grant.sent.order) {
            waits.entry(&job.lane).or_default().push(span);
        }
    }
    waits
}

/// Whether the lane may have been on hold from the acknowledgement of its job until this place in the
/// order.
fn may_be_held(history: &History, job: &Stored, to: u64) -> bool {
    let from = job.acknowledged;
    history.closures.iter().any(|closure| {
        let end = closure.reopened.map_or(u64::MAX, |(_, answered)| answered);
        let is_of = closure.queue == job.queue && closure.lane == job.lane;
        let is_over = matches!(closure.how, Closing::Hold(until) if until <= from.at);
        is_of && closure.lane.is_some() && !is_over && closure.sent < to && end > from.order
    })
}

/// The most grants of other lanes within a wait and between two grants of this lane.
fn most_passed_by(grants: &[&Grant], lane: &Lane, waits: &[Span]) -> usize {
    let own: Vec<&&Grant> = grants.iter().filter(|grant| grant.lane == *lane).collect();
    let mut most = 0;
    for (from, to) in waits {
        let mut begin = *from;
        // Grants of the lane that may have been made within the wait.
        let within = own.iter().filter(|it| it.answered.order > *from && it.sent.order <= *to);
        let mut spans: Vec<Span> = within.map(|it| (it.sent.order, it.answered.order)).collect();
        spans.push((*to, *to));
        spans.sort_unstable();
        for (sent, answered) in spans {
            most = most.max(passed_by(grants, lane, (begin, sent)));
            begin = begin.max(answered);
        }
    }
    most
}

/// Grants of other lanes whose calls were sent and answered within this time.
fn passed_by(grants: &[&Grant], lane: &Lane, (from, to): Span) -> usize {
    if from >= to {
        return 0;
    }
    let first = grants.partition_point(|grant| grant.answered.order <= from);
    let within = grants[first..].iter().take_while(|grant| grant.answered.order < to);
    within.filter(|grant| grant.sent.order > from && grant.lane != *lane).count()
}
