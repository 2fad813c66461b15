//! Leases that are surely held never exceed the greatest limit that may have been in force.
//!
//! Of all leases that are surely held at one moment, one was granted last: not before the last of their
//! calls was sent. When it was granted, all others existed and were valid at the time that its call passed,
//! which is not later. So they were fewer than a limit that was in force between that sending and this
//! moment.

use super::{Changes, Scope, name};
use crate::limits::history::{Grant, Moment};

/// Answers how often the limit was surely reached.
pub(super) fn check(
    scope: Scope<'_>,
    grants: &[&Grant],
    changes: &Changes<'_>,
    problems: &mut Vec<String>,
) -> usize {
    let (mut held, mut full): (Vec<&Grant>, usize) = (Vec::new(), 0);
    let mut left = grants.iter().copied().peekable();
    while let Some(grant) = left.next() {
        if scope.1.is_none() {
            check_alone(grant, &held, problems);
        }
        held.push(grant);
        // The jobs of one answer come together.
        if left.peek().is_some_and(|next| next.answered == grant.answered) {
            continue;
        }
        let moment = grant.answered;
        held.retain(|held| is_held(held, moment));
        let last = held.iter().map(|held| held.sent.order).max().unwrap_or(moment.order);
        let Some(limit) = changes.most_inflight(last, moment.order) else { continue };
        full += usize::from(held.len() == limit);
        if held.len() > limit {
            let (of, leases, at) = (name(scope), held.len(), moment.at);
            problems.push(format!(
                "{of}: {leases} leases are surely held at {at}, and the limit is {limit}"
            ));
        }
    }
    full
}

/// Whether the lease of an earlier grant is surely held at this moment.
fn is_held(grant: &Grant, moment: Moment) -> bool {
    grant.ended.is_none_or(|ended| ended > moment.order) && grant.expires_at > moment.at
}

/// No job has two leases. Answers may come out of the order of the grants, and then the lease of the later
/// answer is over.
fn check_alone(grant: &Grant, held: &[&Grant], problems: &mut Vec<String>) {
    let moment = grant.answered;
    let mut others = held.iter().filter(|held| held.job == grant.job);
    if is_held(grant, moment) && others.any(|held| is_held(held, moment)) {
        problems.push(format!("{}: granted again before its lease ended", grant.job));
    }
}
