//! Leases exclude each other, and only holders act, and only while their leases last.

use taskharbor_core::{JobId, driver::LeaseToken, life::LifeStep};

use super::{Event, Grant, History, Round};

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
        for grant in &job.grants {
            check_acts(id, job, grant, problems);
        }
        let is_known = |token: &LeaseToken| job.grants.iter().any(|grant| grant.token == *token);
        let acts = job.settled.iter().map(|(_, token, _)| token);
        let acts = acts.chain(job.extended.iter().map(|(_, token, _)| token));
        if acts.clone().any(|token| !is_known(token)) {
            problems.push(format!("{id}: a token that no reserve answered was accepted"));
        }
        if job.settled_before.iter().any(|token| job.settled_by(*token).next().is_none()) {
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
            if job.settled_by(grant.token).next().is_none() && next.event.now < end {
                let now = next.event.now;
                problems.push(format!("{id}: granted again at {now}, before its lease ended at {end}"));
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

/// What the holder of one grant did.
fn check_acts(id: &JobId, job: &History<'_>, grant: &Grant<'_>, problems: &mut Vec<String>) {
    let extended = job.extended.iter().filter(|(_, token, _)| *token == grant.token);
    let settled: Vec<(&Event, LifeStep)> = job.settled_by(grant.token).collect();
    if settled.len() > 1 {
        problems.push(format!("{id}: one token settled it {} times: {settled:?}", settled.len()));
    }
    let acts = extended.map(|(event, ..)| *event).chain(settled.iter().map(|(event, _)| *event));
    for act in acts {
        let end = job.lease_end(grant, Some(act));
        if act.now >= end {
            problems.push(format!("{id}: {act:?} was accepted after its lease ended at {end}"));
        }
        let is_later = |other: &&Grant<'_>| {
            other.event.began > grant.event.ended && act.began > other.event.ended
        };
        if let Some(other) = job.grants.iter().find(is_later) {
            let delivery = other.delivery;
            problems.push(format!("{id}: {act:?} was accepted after delivery {delivery} was granted"));
        }
    }
}
