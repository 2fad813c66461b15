//! Mistakes in granting and extending leases.

use std::time::Duration;

use taskharbor_core::{
    DriverError, State, Timestamp,
    driver::{Answers, ExtendLeases, Extended, LeaseToken, Reserve, Reserved},
    error::Refusal,
    life::Stage,
};

use crate::{
    model::{Kept, Model},
    reference::Behaviour,
};

/// `expires_at < now` where `expires_at <= now` was meant.
pub(super) struct ReclaimsTooLate;

impl Behaviour for ReclaimsTooLate {
    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        let tick = Duration::from_micros(1);
        let moved: Vec<usize> = (0..model.jobs.len())
            .filter(|&at| shift_expiry(model, at, request.now, |end| end.saturating_add(tick)))
            .collect();
        let answer = model.reserve(&request);
        for at in moved {
            let late = request.now.saturating_add(tick);
            shift_expiry(model, at, late, |end| end.saturating_sub(tick));
        }
        answer
    }
}

/// Moves the end of a lease that ends at this instant; `false` if it does not.
fn shift_expiry(
    model: &mut Model,
    at: usize,
    instant: Timestamp,
    shift: impl Fn(Timestamp) -> Timestamp,
) -> bool {
    match &mut model.jobs[at].life.stage {
        Stage::Inflight(hold) if hold.lease.expires_at == instant => {
            hold.lease.expires_at = shift(instant);
            true
        }
        _ => false,
    }
}

/// The token is made from what does not change, so it comes again with the next grant.
pub(super) struct ReusesTokens;

impl Behaviour for ReusesTokens {
    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        let mut reserved = model.reserve(&request)?;
        for leased in &mut reserved.jobs {
            let at = model.find(&leased.job.id).expect("granted just now");
            leased.lease.token = LeaseToken::from_bits(u128::from(model.jobs[at].serial));
            model.adopt(&leased.job.id, leased.lease.token);
        }
        Ok(reserved)
    }
}

/// Reclaims every job with an old lease, without checking its state.
pub(super) struct ReclaimsDone;

impl Behaviour for ReclaimsDone {
    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        for job in &mut model.jobs {
            if let Some(finish) = job.life.finish()
                && finish.state == State::Done
                && finish.by.is_some_and(|lease| lease.expires_at <= request.now)
            {
                job.life.stage = Stage::Waiting;
            }
        }
        model.reserve(&request)
    }
}

/// An extension replaces the end of the lease, even by an earlier one.
pub(super) struct ExtendShortens;

impl Behaviour for ExtendShortens {
    fn extend(&self, model: &mut Model, request: ExtendLeases) -> Answers<Extended, Refusal> {
        let expires_at = request.check()?;
        let ids: Vec<_> = request.items.iter().map(|item| item.id.clone()).collect();
        let mut answers = model.extend(request)?;
        for (id, answer) in ids.iter().zip(&mut answers) {
            if let (Ok(extended), Some(at)) = (answer, model.find(id))
                && let Stage::Inflight(hold) = &mut model.jobs[at].life.stage
            {
                hold.lease.expires_at = expires_at;
                extended.lease.expires_at = expires_at;
            }
        }
        Ok(answers)
    }
}

/// Does something to every job that a call to reserve takes back from its holder.
fn reserve_and_mend(
    model: &mut Model,
    request: &Reserve,
    mend: impl Fn(&Kept, &mut Kept),
) -> Result<Reserved, DriverError> {
    let before = model.jobs.clone();
    let mut reserved = model.reserve(request)?;
    for (was, job) in before.iter().zip(&mut model.jobs) {
        if was.life.is_expired(request.now) {
            mend(was, job);
        }
    }
    for leased in &mut reserved.jobs {
        let at = model.find(&leased.job.id).expect("granted just now");
        leased.job = model.jobs[at].job();
    }
    Ok(reserved)
}

/// A crash wipes out the failures before it.
pub(super) struct ResetsAttempts;

impl Behaviour for ResetsAttempts {
    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        reserve_and_mend(model, &request, |_, job| job.life.attempts = 0)
    }
}

/// A job that kills its worker can do so for ever.
pub(super) struct ExpirationNotCounted;

impl Behaviour for ExpirationNotCounted {
    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        reserve_and_mend(model, &request, |was, job| job.life.expirations = was.life.expirations)
    }
}

/// A lost answer and a shutdown count like a crash.
pub(super) struct CountsEveryExpiration;

impl Behaviour for CountsEveryExpiration {
    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        reserve_and_mend(model, &request, |was, job| {
            if job.life.deliveries > was.life.deliveries {
                job.life.expirations = was.life.expirations + 1;
            }
        })
    }
}

/// Only the first grant of a job is counted.
pub(super) struct DeliveriesNotCounted;

impl Behaviour for DeliveriesNotCounted {
    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        let mut reserved = model.reserve(&request)?;
        for leased in &mut reserved.jobs {
            let at = model.find(&leased.job.id).expect("granted just now");
            model.jobs[at].life.deliveries = 1;
            leased.job.deliveries = 1;
        }
        Ok(reserved)
    }
}

/// A reclaimed job goes before everything that waits.
pub(super) struct ReclaimedToTheFront;

impl Behaviour for ReclaimedToTheFront {
    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        model
            .reserve_by(&request, |life| Some(life.due_at.saturating_sub(Duration::from_micros(1))))
    }
}

/// A reclaimed job goes to the end of the queue, behind jobs that fell due after its lease ended.
pub(super) struct ReclaimedToTheEnd;

impl Behaviour for ReclaimedToTheEnd {
    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        model.reserve_by(&request, |_| Some(request.now))
    }
}

/// The answer to a reclaim is right, and the stored record keeps the old time.
pub(super) struct ReclaimKeepsRunAt;

impl Behaviour for ReclaimKeepsRunAt {
    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        let before = model.jobs.clone();
        let reserved = model.reserve(&request)?;
        for (was, job) in before.iter().zip(&mut model.jobs) {
            if was.life.is_expired(request.now) && job.life.deliveries > was.life.deliveries {
                job.life.run_at = was.life.run_at;
            }
        }
        Ok(reserved)
    }
}

/// Pausing is something that workers are asked to respect.
pub(super) struct IgnoresPause;

impl Behaviour for IgnoresPause {
    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        let paused = std::mem::take(&mut model.paused);
        let answer = model.reserve(&request);
        model.paused = paused;
        answer
    }
}

/// Callers are not told when the next job falls due.
pub(super) struct NextDueForgotten;

impl Behaviour for NextDueForgotten {
    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        let reserved = model.reserve(&request)?;
        Ok(Reserved::new(reserved.jobs, None))
    }
}

/// As many jobs as there are.
pub(super) struct IgnoresLimit;

impl Behaviour for IgnoresLimit {
    fn reserve(&self, model: &mut Model, mut request: Reserve) -> Result<Reserved, DriverError> {
        request.check()?;
        for demand in &mut request.demands {
            demand.limit += 1;
        }
        model.reserve(&request)
    }
}

/// A heartbeat that comes too late brings the lease back to life.
pub(super) struct ExtendRevives;

impl Behaviour for ExtendRevives {
    fn extend(&self, model: &mut Model, request: ExtendLeases) -> Answers<Extended, Refusal> {
        let expires_at = request.check()?;
        for item in &request.items {
            if let Some(at) = model.find(&item.id)
                && let Stage::Inflight(hold) = &mut model.jobs[at].life.stage
                && hold.lease.token == item.token
            {
                hold.lease.expires_at = hold.lease.expires_at.max(expires_at);
            }
        }
        model.extend(request)
    }
}
