//! Nothing of a queue or lane is granted while it is surely paused or on hold.

use super::name;
use crate::limits::history::{Closing, Closure, Grant, History};

pub(super) fn check(history: &History, problems: &mut Vec<String>) {
    for closure in &history.closures {
        let scope = (&closure.queue, closure.lane.as_ref());
        let how = match closure.how {
            Closing::Pause => "paused",
            Closing::Hold(_) => "on hold",
        };
        let end = closure.reopened.map_or(u64::MAX, |(sent, _)| sent);
        // Grants are in the order of their answers.
        let first = history.grants.partition_point(|it| it.answered.order < closure.answered);
        let within = history.grants[first..].iter().take_while(|it| it.answered.order < end);
        for grant in within.filter(|grant| is_closed_for(closure, grant)) {
            problems.push(format!("{}: granted while {} is {how}", grant.job, name(scope)));
        }
    }
}

/// Whether a grant before the queue or lane was opened ran after it was closed.
fn is_closed_for(closure: &Closure, grant: &Grant) -> bool {
    let is_of =
        closure.queue == grant.queue && (closure.lane.is_none() || closure.lane == grant.lane);
    let is_in_time = match closure.how {
        Closing::Pause => true,
        Closing::Hold(until) => grant.sent.at < until,
    };
    is_of && is_in_time && grant.sent.order > closure.answered
}
