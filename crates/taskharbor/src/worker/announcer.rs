//! The loop that announces the worker, and looks for workers whose announcement is overdue.
//!
//! It runs beside the keeper, so a worker whose handlers block their runtime goes on announcing itself as
//! it goes on extending its leases.

use std::{sync::Arc, time::Duration};

use taskharbor_core::{
    Admin, AnyDriver, Driver, DriverError,
    admin::{Evict, Evicted, ListWorkers, WorkerRecord},
    driver::{Announce, Incarnation, Limits},
};
use tokio::time::{Instant, sleep};

use super::{
    health,
    outage::Part,
    part,
    shared::{Phase, Shared},
};
use crate::{Event, Operation, WorkerInfo, deadline::in_time};

/// An announcement is over when this many later ones are missing.
const MISSING: u32 = 3;
/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// When to announce again after a failure.
const RETRY: Duration = Duration::from_secs(1);
/// How long the first announcement may delay the start.
const FIRST_CALL_LIMIT: Duration = Duration::from_secs(1);

/// Announces a worker before it reserves jobs, so that an eviction of an earlier worker of its name does
/// not take them from it.
pub(super) async fn begin(shared: &Shared, driver: &AnyDriver) {
    if shared.config.announce_every.is_none() {
        return;
    }
    let first = async {
        if announce(shared, driver).await.is_ok() && is_name_shared(shared, driver).await {
            let name = shared.config.holder.as_str();
            shared.tell(&Event::NameShared { name });
        }
    };
    let _ = tokio::time::timeout(FIRST_CALL_LIMIT, first).await;
}

pub(super) async fn run(shared: Arc<Shared>, driver: AnyDriver) {
    let Some(every) = shared.config.announce_every else { return };
    let mut phase = shared.phase.subscribe();
    phase.mark_unchanged();
    loop {
        // An earlier worker of this name may be evicted as long as this one has not announced itself.
        let pause = if shared.announced_since().is_some() {
            every + every.mul_f64(shared.chance() / 4.0)
        } else {
            RETRY.min(every)
        };
        tokio::select! {
            biased;
            () = shared.reached(Phase::Ended) => return,
            _ = phase.changed() => {}
            () = sleep(pause) => {}
        }
        let _ = announce(&shared, &driver).await;
    }
}

/// Evicts workers whose announcement is overdue, so that their jobs need not wait for the ends of their
/// leases. It uses the handle of the other loops: an eviction may take a while and wakes reservers, and the
/// handle of the keeper has leases to extend.
pub(super) async fn recover_others(shared: Arc<Shared>) {
    let Some(every) = shared.config.announce_every.filter(|_| shared.config.recovers_others) else {
        return;
    };
    let mut was_denied = false;
    loop {
        sleep(every + every.mul_f64(shared.chance() / 4.0)).await;
        if shared.phase() > Phase::Working {
            return;
        }
        // After an outage every announcement is overdue. Those of living workers are renewed within the
        // time for which an announcement is valid.
        let is_steady = shared.announced_since().is_some_and(|at| at.elapsed() >= every * MISSING);
        if is_steady {
            let answer = evict_overdue(&shared).await;
            if let Err(error) = answer
                && error.is_not_allowed()
                && !was_denied
            {
                was_denied = true;
                shared.tell(&Event::EvictionDenied { error: &error });
            }
        }
    }
}

/// Withdraws the announcement of a worker that has ended and left no job behind.
pub(super) async fn end(shared: &Shared, driver: &AnyDriver) {
    if shared.config.announce_every.is_some() && shared.clock.get().is_some() {
        let holder = shared.config.holder.clone();
        let withdrawn = Announce::withdraw(holder, shared.incarnation, shared.now());
        let _ = call(shared, Operation::Announce, driver.announce(withdrawn)).await;
    }
}

async fn call<T>(
    shared: &Shared,
    operation: Operation,
    call: impl Future<Output = Result<T, DriverError>>,
) -> Result<T, DriverError> {
    shared.observers.call(operation, 1, in_time(CALL_TIMEOUT, call)).await
}

async fn announce(shared: &Shared, driver: &AnyDriver) -> Result<(), DriverError> {
    let every = shared.config.announce_every.unwrap_or_default();
    let valid_for = (every * MISSING).min(Limits::MAX_ANNOUNCED_FOR);
    let (holder, info) = (shared.config.holder.clone(), info(shared).encode());
    let announced = Announce::new(holder, shared.incarnation, info, valid_for, shared.now());
    // Before the next one is due.
    let (began, announced) =
        (Instant::now(), in_time(CALL_TIMEOUT.min(every), driver.announce(announced)));
    let answer = shared.observers.call(Operation::Announce, 1, announced).await;
    shared.note_announced(answer.is_ok());
    match &answer {
        Ok(()) => shared.outage.answered(Part::Announcer, began, &shared.observers),
        // A store that only takes no announcements is not away.
        Err(DriverError::Unavailable(_)) => {
            let _ =
                shared.call(Part::Announcer, Operation::StoreTime, 0, driver.store_time()).await;
        }
        Err(_) => {}
    }
    answer
}

/// Whether another worker holds leases under the same name.
async fn is_name_shared(shared: &Shared, driver: &AnyDriver) -> bool {
    let all = all_workers(shared, driver, ListWorkers::new(Limits::MAX_PAGE, shared.now())).await;
    let is_other = |worker: &WorkerRecord| {
        worker.holder == shared.config.holder && worker.incarnation != shared.incarnation
    };
    all.is_ok_and(|workers| workers.iter().any(is_other))
}

async fn all_workers(
    shared: &Shared,
    driver: &AnyDriver,
    mut request: ListWorkers,
) -> Result<Vec<WorkerRecord>, DriverError> {
    let mut all = Vec::new();
    loop {
        let page = call(shared, Operation::Workers, driver.workers(request.clone())).await?;
        all.extend(page.items);
        match page.next {
            Some(next) => request = request.after(next),
            None => return Ok(all),
        }
    }
}

async fn evict_overdue(shared: &Shared) -> Result<(), DriverError> {
    let driver = &shared.driver;
    let overdue = ListWorkers::new(Limits::MAX_PAGE, shared.now()).only_overdue();
    for worker in all_workers(shared, driver, overdue).await? {
        let (holder, now) = (worker.holder.clone(), shared.now());
        if holder == shared.config.holder {
            continue;
        }
        // Named so, any worker of the name that has announced itself meanwhile keeps its leases.
        let none_of_them = Incarnation::from_bits(!worker.incarnation.to_bits());
        let evict = Evict::new(holder.clone(), now).incarnation(none_of_them);
        let leases = match call(shared, Operation::Evict, driver.evict(evict)).await {
            Ok(Evicted::Leases(leases)) => leases,
            // It will not be allowed for the next one either.
            Err(error) if error.is_not_allowed() => return Err(error),
            Ok(_) | Err(_) => continue,
        };
        shared.tell(&Event::WorkerEvicted { name: holder.as_str(), leases });
        let withdrawn = Announce::withdraw(holder, worker.incarnation, now);
        let _ = call(shared, Operation::Announce, driver.announce(withdrawn)).await;
    }
    Ok(())
}

/// What the worker says about itself.
fn info(shared: &Shared) -> WorkerInfo {
    let health = health::of(shared);
    let now = Instant::now();
    let oldest = shared.registry.all().iter().filter_map(|it| it.began()).min();
    let mut types: Vec<_> = shared.handlers.keys().map(|it| it.as_str().to_owned()).collect();
    types.sort_unstable();
    WorkerInfo {
        version: shared.config.version.clone(),
        library: env!("CARGO_PKG_VERSION").to_owned(),
        host: part::host(),
        pid: std::process::id(),
        phase: health.phase,
        problems: health.problems.iter().map(ToString::to_string).collect(),
        wake_ups: !shared.outage.are_wake_ups_lost(),
        oldest_secs: oldest.map(|began| now.saturating_duration_since(began).as_secs()),
        lost_in_hour: shared.tally.lost_in_hour(shared.now()),
        queues: shared.tally.read(&shared.pools),
        queues_left_out: 0,
        types,
        types_left_out: 0,
    }
}
