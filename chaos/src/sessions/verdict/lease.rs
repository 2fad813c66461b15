//! Leases exclude each other, and only holders act, and only while their leases last.

use std::collections::HashSet;

use taskharbor_core::{JobId, driver::LeaseToken};

use super::{Acts, Grant, History, Round};

impl<'a> Round<'a> {
    pub(super) fn check_leases(
        &self,
        id: &'a JobId,
        job: &History<'_>,
        problems: &mut Vec<String>,
    ) {
        // A shared id may be stored again, and then its deliveries begin again.
        if !History::is_shared(id) {
            check_deliveries(id, job, problems);
            self.check_exclusion(id, job, problems);
        }
        let later = Later::of(&job.grants);
        for grant in &job.grants {
            check_acts(id, job, grant, &later, problems);
        }
        let known: HashSet<LeaseToken> = job.grants.iter().map(|grant| grant.token).collect();
        if job.acts.keys().any(|token| !known.contains(token)) {
            problems.push(format!("{id}: a token that no reserve answered was accepted"));
        }
        if job.settled_before.iter().any(|token| !job.is_settled_by(*token)) {
            problems.push(format!("{id}: a token repeats a settlement that it never made"));
        }
    }

    /// The next grant comes after the end of the lease, unless its holder settled the job.
    fn check_exclusion(&self, id: &'a JobId, job: &History<'_>, problems: &mut Vec<String>) {
        if self.was_cancelled(id, job) {
            // It may have been cancelled after its lease and requeued. Calls have no order that
            // would tell.
            return;
        }
        for (grant, next) in job.grants.iter().zip(job.grants.iter().skip(1)) {
            let end = job.lease_end(grant, None);
            if !job.is_settled_by(grant.token) && next.event.now < end {
                let now = next.event.now;
                problems
                    .push(format!("{id}: granted again at {now}, before its lease ended at {end}"));
            }
        }
    }
}

/// Every grant was answered to a session, so the deliveries have no gap.
fn check_deliveries(id: &JobId, job: &History<'_>, problems: &mut Vec<String>) {
    let counted: Vec<u32> = job.grants.iter().map(|grant| grant.delivery).collect();
    if !counted.iter().copied().eq((1..).take(counted.len())) {
        problems.push(format!("{id}: the deliveries are {counted:?}"));
    }
}

/// The grants of a job by the moments at which they began, each with the first moment at which it or a
/// later one had been answered.
struct Later(Vec<(u64, u64)>);

impl Later {
    fn of(grants: &[Grant<'_>]) -> Self {
        let mut moments: Vec<(u64, u64)> =
            grants.iter().map(|grant| (grant.event.began, grant.event.ended)).collect();
        moments.sort_unstable();
        let mut first = u64::MAX;
        for (_, ended) in moments.iter_mut().rev() {
            first = first.min(*ended);
            *ended = first;
        }
        Self(moments)
    }

    /// The first moment at which a grant had been answered that began after this moment.
    fn after(&self, moment: u64) -> Option<u64> {
        let at = self.0.partition_point(|(began, _)| *began <= moment);
        self.0.get(at).map(|(_, ended)| *ended)
    }
}

/// What the holder of one grant did.
fn check_acts(
    id: &JobId,
    job: &History<'_>,
    grant: &Grant<'_>,
    later: &Later,
    problems: &mut Vec<String>,
) {
    let Some(Acts { extended, settled }) = job.acts.get(&grant.token) else { return };
    if settled.len() > 1 {
        problems.push(format!("{id}: one token settled it {} times: {settled:?}", settled.len()));
    }
    let acts = extended.iter().map(|(event, _)| *event);
    for act in acts.chain(settled.iter().map(|(event, _)| *event)) {
        let end = job.lease_end(grant, Some(act));
        if act.now >= end {
            problems.push(format!("{id}: {act:?} was accepted after its lease ended at {end}"));
        }
        if later.after(grant.event.ended).is_some_and(|ended| act.began > ended) {
            problems.push(format!("{id}: {act:?} was accepted after the job was granted again"));
        }
    }
}
