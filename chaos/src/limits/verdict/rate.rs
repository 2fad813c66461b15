//! In any time no more jobs are granted than the rate allows: burst + time / interval.
//!
//! The time of a grant is that which its call passed. Grants that were made out of the order of these
//! times keep the rule, too: of those in a window, the last came after all others were charged.

use taskharbor_core::admin::Rate;

use super::{Changes, Scope, name};
use crate::limits::history::{Grant, LimitChange};

pub(super) fn check(
    scope: Scope<'_>,
    grants: &[&Grant],
    changes: &Changes<'_>,
    problems: &mut Vec<String>,
) {
    for (at, change) in changes.all.iter().enumerate() {
        let Some(rate) = rate(scope, change) else { continue };
        let end = changes.all.get(at + 1).map_or(u64::MAX, |next| next.sent);
        // Only calls that surely ran while this rate was in force.
        let certain = grants
            .iter()
            .filter(|grant| grant.sent.order > change.answered && grant.answered.order < end);
        let mut times: Vec<i64> = certain.map(|grant| grant.sent.at.as_micros()).collect();
        times.sort_unstable();
        if let Some((count, window)) = excess(&times, rate) {
            let of = name(scope);
            problems
                .push(format!("{of}: {count} grants within {window} µs, at a rate of {rate:?}"));
        }
    }
}

fn rate((_, lane): Scope<'_>, change: &LimitChange) -> Option<Rate> {
    let limits = &change.limits;
    match lane {
        None => limits.rate,
        Some(lane) => limits.lanes.get(lane).and_then(|own| own.rate).or(limits.lane_rate),
    }
}

/// The first window with too many grants: how many, in how much time. A window that begins where the
/// limiter would have been idle holds the most, so that no other has to be looked at.
fn excess(times: &[i64], rate: Rate) -> Option<(i64, i64)> {
    let per_us = i64::try_from(rate.per.as_micros()).ok()?;
    let interval = (per_us + i64::from(rate.jobs) - 1) / i64::from(rate.jobs);
    let (mut begin, mut count) = (i64::MIN, 0);
    for time in times {
        if begin.saturating_add(count * interval) <= *time {
            (begin, count) = (*time, 0);
        }
        count += 1;
        let window = time - begin;
        // n <= burst + window / interval, without a fraction.
        if (count - i64::from(rate.burst)) * interval > window {
            return Some((count, window));
        }
    }
    None
}
