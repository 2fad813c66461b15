//! Mistakes with announcements and evictions.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use taskharbor_core::{
    DriverError, QueueName, Timestamp,
    admin::{Evict, Evicted, ListWorkers, Page, WorkerRecord},
    driver::{Announce, Answers, ExtendLeases, Extended, LeaseToken, Reserve, Reserved},
    error::Refusal,
    life::{ActiveLease, Stage},
};

use crate::{
    model::{Kept, Model},
    reference::Behaviour,
};

fn holds(model: &mut Model) -> impl Iterator<Item = &mut ActiveLease> {
    model.jobs.iter_mut().filter_map(|job| match &mut job.life.stage {
        Stage::Inflight(hold) => Some(hold),
        _ => None,
    })
}

/// The leases of everything that holds one end.
pub(super) struct EvictsEverything;

impl Behaviour for EvictsEverything {
    fn evict(&self, model: &mut Model, request: Evict) -> Evicted {
        let evicted = model.evict(&request);
        if evicted != Evicted::Replaced {
            for hold in holds(model) {
                hold.lease.expires_at = hold.lease.expires_at.min(request.now);
            }
        }
        evicted
    }
}

/// The leases are counted and stay as they are.
pub(super) struct EvictsNothing;

impl Behaviour for EvictsNothing {
    fn evict(&self, model: &mut Model, request: Evict) -> Evicted {
        let jobs = model.jobs.clone();
        let evicted = model.evict(&request);
        model.jobs = jobs;
        evicted
    }
}

/// A name is compared without its case.
pub(super) struct EvictsNamesakes;

impl Behaviour for EvictsNamesakes {
    fn evict(&self, model: &mut Model, request: Evict) -> Evicted {
        let Evicted::Leases(mut ended) = model.evict(&request) else { return Evicted::Replaced };
        let name = request.holder.as_str();
        for hold in holds(model) {
            let is_alike = hold.holder.as_str().eq_ignore_ascii_case(name);
            if is_alike && request.now < hold.lease.expires_at {
                hold.lease.expires_at = request.now;
                ended += 1;
            }
        }
        Evicted::Leases(ended)
    }
}

/// Leases that had ended are counted with those that the eviction ends.
pub(super) struct CountsExpiredLeases;

impl Behaviour for CountsExpiredLeases {
    fn evict(&self, model: &mut Model, request: Evict) -> Evicted {
        let of_holder = holds(model).filter(|hold| hold.holder == request.holder);
        let all = Evicted::Leases(of_holder.count());
        if model.evict(&request) == Evicted::Replaced { Evicted::Replaced } else { all }
    }
}

/// Leases that had ended are moved to the time of the eviction.
pub(super) struct MovesExpiredLeases;

impl Behaviour for MovesExpiredLeases {
    fn evict(&self, model: &mut Model, request: Evict) -> Evicted {
        let evicted = model.evict(&request);
        if evicted != Evicted::Replaced {
            for hold in holds(model).filter(|hold| hold.holder == request.holder) {
                hold.lease.expires_at = request.now;
            }
        }
        evicted
    }
}

/// The eviction is not stopped by another start of the worker.
pub(super) struct EvictsItsSuccessor;

impl Behaviour for EvictsItsSuccessor {
    fn evict(&self, model: &mut Model, request: Evict) -> Evicted {
        let workers = model.workers.clone();
        let evicted = model.evict(&Evict::new(request.holder.clone(), request.now));
        model.workers = workers;
        model.workers.retain(|it| {
            it.holder != request.holder
                || request.incarnation.is_some_and(|meant| meant != it.incarnation)
        });
        evicted
    }
}

/// A start whose announcement is over still stops the eviction.
pub(super) struct OverdueStartProtects;

impl Behaviour for OverdueStartProtects {
    fn evict(&self, model: &mut Model, request: Evict) -> Evicted {
        let mut of_holder = model.workers.iter().filter(|it| it.holder == request.holder);
        if let Some(meant) = request.incarnation
            && of_holder.any(|it| it.incarnation != meant)
        {
            return Evicted::Replaced;
        }
        model.evict(&request)
    }
}

/// Jobs are put back at once, and nothing remembers that a worker may have crashed.
pub(super) struct PutsBackWithoutExpiration;

impl Behaviour for PutsBackWithoutExpiration {
    fn evict(&self, model: &mut Model, request: Evict) -> Evicted {
        let held = model.jobs.clone();
        let evicted = model.evict(&request);
        for (was, job) in held.iter().zip(&mut model.jobs) {
            if was.life != job.life {
                job.life.due_at = job.life.due_at.min(request.now);
                job.life.stage = Stage::Waiting;
            }
        }
        evicted
    }
}

/// `now` is the last instant of the lease, and not the first after it.
pub(super) struct EvictsAMomentLater;

impl Behaviour for EvictsAMomentLater {
    fn evict(&self, model: &mut Model, request: Evict) -> Evicted {
        let later = request.now.saturating_add(Duration::from_micros(1));
        let evicted = model.evict(&request);
        for hold in holds(model).filter(|hold| hold.holder == request.holder) {
            if hold.lease.expires_at == request.now {
                hold.lease.expires_at = later;
            }
        }
        evicted
    }
}

/// The announcement of a worker stays after its eviction.
pub(super) struct KeepsEvictedRecord;

impl Behaviour for KeepsEvictedRecord {
    fn evict(&self, model: &mut Model, request: Evict) -> Evicted {
        let workers = model.workers.clone();
        let evicted = model.evict(&request);
        model.workers = workers;
        evicted
    }
}

/// An extension moves the job in an index by which Reserve finds it, and an eviction does not move it
/// back.
#[derive(Default)]
pub(super) struct ForgetsMovedPositions {
    found_at: Mutex<HashMap<LeaseToken, Timestamp>>,
}

impl Behaviour for ForgetsMovedPositions {
    fn extend(&self, model: &mut Model, request: ExtendLeases) -> Answers<Extended, Refusal> {
        let answers = model.extend(request)?;
        let mut found_at = self.found_at.lock().expect("no panic while it is locked");
        for extended in answers.iter().flatten() {
            found_at.insert(extended.lease.token, extended.lease.expires_at);
        }
        Ok(answers)
    }

    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        let found_at = self.found_at.lock().expect("no panic while it is locked");
        let mut ends = HashMap::new();
        for hold in holds(model) {
            if let Some(at) = found_at.get(&hold.lease.token) {
                ends.insert(hold.lease.token, hold.lease.expires_at);
                hold.lease.expires_at = hold.lease.expires_at.max(*at);
            }
        }
        let answer = model.reserve(&request);
        for hold in holds(model) {
            if let Some(end) = ends.get(&hold.lease.token) {
                hold.lease.expires_at = *end;
            }
        }
        answer
    }
}

/// Workers are told about everything but an eviction.
pub(super) struct EvictionWakesNoWatch;

impl Behaviour for EvictionWakesNoWatch {
    fn has_wakes(&self) -> bool {
        true
    }

    fn wakes(&self, before: &Model, after: &Model) -> Vec<QueueName> {
        let lease = |job: &Kept| job.life.active_lease().map(|hold| hold.lease);
        let is_evicted = |was: &Kept, is: &Kept| {
            let both = lease(was).zip(lease(is));
            both.is_some_and(|(was, is)| was.token == is.token && is.expires_at < was.expires_at)
        };
        let is_changed = |is: &&Kept| {
            let was = before.by_serial(is.serial).map(|at| &before.jobs[at]);
            was.is_none_or(|was| was.life != is.life && !is_evicted(was, is))
        };
        after.jobs.iter().filter(is_changed).map(|job| job.new.queue.clone()).collect()
    }
}

/// Every worker that announced itself is listed, as if it were still there.
pub(super) struct AnnouncementNeverEnds;

impl Behaviour for AnnouncementNeverEnds {
    fn workers(
        &self,
        model: &Model,
        mut request: ListWorkers,
    ) -> Result<Page<WorkerRecord>, DriverError> {
        request.overdue |= request.valid;
        model.list_workers(&request)
    }
}

/// An announcement is listed in the instant in which it ends.
pub(super) struct AnnouncementEndsLate;

impl Behaviour for AnnouncementEndsLate {
    fn workers(
        &self,
        model: &Model,
        mut request: ListWorkers,
    ) -> Result<Page<WorkerRecord>, DriverError> {
        request.now = request.now.saturating_sub(Duration::from_micros(1));
        model.list_workers(&request)
    }
}

/// Each announcement is taken for the first.
pub(super) struct AnnounceStartsOver;

impl Behaviour for AnnounceStartsOver {
    fn announce(&self, model: &mut Model, request: Announce) -> Result<(), DriverError> {
        let (holder, incarnation, now) = (request.holder.clone(), request.incarnation, request.now);
        model.announce(request)?;
        for worker in &mut model.workers {
            if worker.holder == holder && worker.incarnation == incarnation {
                worker.started_at = now;
            }
        }
        Ok(())
    }
}

/// All starts of a worker share one record.
pub(super) struct OneRecordForEachName;

impl Behaviour for OneRecordForEachName {
    fn announce(&self, model: &mut Model, request: Announce) -> Result<(), DriverError> {
        let (holder, incarnation) = (request.holder.clone(), request.incarnation);
        model.announce(request)?;
        model.workers.retain(|it| it.holder != holder || it.incarnation == incarnation);
        Ok(())
    }
}

/// Withdrawing leaves a record that is over.
pub(super) struct WithdrawnStays;

impl Behaviour for WithdrawnStays {
    fn announce(&self, model: &mut Model, request: Announce) -> Result<(), DriverError> {
        if request.check()?.is_some() {
            return model.announce(request);
        }
        for worker in &mut model.workers {
            if worker.holder == request.holder && worker.incarnation == request.incarnation {
                worker.expires_at = request.now;
            }
        }
        Ok(())
    }
}
