//! Every job that was acknowledged has ended in its queue and lane, and no place is lost.

use crate::limits::history::{History, Places};

pub(super) fn check(history: &History, problems: &mut Vec<String>) {
    for grant in &history.grants {
        let Some(job) = history.jobs.get(&grant.job) else {
            problems.push(format!("{}: granted, and was not enqueued", grant.job));
            continue;
        };
        if (&job.queue, &job.lane) != (&grant.queue, &grant.lane) {
            problems.push(format!("{}: granted in another queue or lane", grant.job));
        }
    }
    for id in history.jobs.keys() {
        match history.states.get(id) {
            Some(state) if state.is_terminal() => {}
            Some(state) => problems.push(format!("{id}: {state} after everything was drained")),
            None => problems.push(format!("{id}: acknowledged, and is not stored")),
        }
    }
    let unknown = history.states.keys().filter(|id| !history.jobs.contains_key(*id));
    problems.extend(unknown.map(|id| format!("{id}: stored, and was not enqueued")));
    for Places { queue, lane, limit, granted } in &history.places {
        if granted != limit {
            let of = super::name((queue, lane.as_ref()));
            problems.push(format!("{of}: {granted} of {limit} places are free at the end"));
        }
    }
    // Maps have no order that a run could repeat.
    problems.sort();
}
