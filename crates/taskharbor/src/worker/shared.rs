//! The state that the loops of a worker share.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use taskharbor_core::{
    AnyDriver, DriverError, JobType, Timestamp,
    admin::{Declaration, LimitsDeclaration},
    clock::{Clock, ClockReading},
    driver::Incarnation,
    name::Holder,
};
use tokio::{
    sync::{Notify, mpsc, watch},
    time::Instant,
};

use super::{
    caution::Caution,
    health::HealthNotes,
    outage::{Outage, Part},
    pool::SlotPools,
    settler::Finished,
    supervisor::{CLOSE, EXIT, FLUSH},
    tally::Tally,
    unfit::Unreadable,
};
use crate::{
    CancelReason, Event, LossReason, Middleware, Operation, Retention, RetryPolicy,
    codec::Format,
    deadline::in_time,
    handler::Entry,
    inflight::{Inflight, Registry},
    middleware::recover,
    observe::Observers,
};

/// How long the store may take to tell its time.
const CLOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// How far a worker is on its way from start to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// It reserves and runs jobs.
    Working,
    /// It reserves nothing more; handlers have all the time they need.
    Quiet,
    /// Handlers have the grace period to finish.
    Draining,
    /// Handlers are told to stop.
    Cancelling,
    /// Everything stops where it is.
    Ended,
}

/// What was configured.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) holder: Holder,
    pub(super) lease_for: Duration,
    pub(super) heartbeat: Duration,
    pub(super) grace: Duration,
    pub(super) cancel_wait: Duration,
    pub(super) poll: Duration,
    /// How far ahead jobs are reserved, at most.
    pub(super) ahead: Duration,
    pub(super) call_timeout: Duration,
    pub(super) start_timeout: Option<Duration>,
    pub(super) timeout: Option<Duration>,
    pub(super) missing: Unreadable,
    pub(super) unreadable: Unreadable,
    pub(super) crash_limit: u32,
    pub(super) retention: Retention,
    /// The version of the service.
    pub(super) version: Option<String>,
    /// How often the worker announces itself, if it does.
    pub(super) announce_every: Option<Duration>,
    /// Whether it evicts workers whose announcement is overdue.
    pub(super) recovers_others: bool,
}

impl Config {
    /// How long before a lease ends its handler is stopped, if the lease could not be extended:
    /// a tenth of the lease, at least 2 s, and never more than leaves time for a heartbeat.
    pub(super) fn margin(&self) -> Duration {
        let margin = (self.lease_for / 10).max(Duration::from_secs(2));
        margin.min((self.lease_for - self.heartbeat) / 2)
    }

    /// The longest that a shutdown takes, whatever the handlers do, with the end of the process.
    pub(super) const fn shutdown_within(&self) -> Duration {
        let for_handlers = self.grace.saturating_add(self.cancel_wait);
        for_handlers.saturating_add(FLUSH).saturating_add(CLOSE).saturating_add(EXIT)
    }

    /// How long a call may take. Leases are not extended while their jobs are being settled, so a
    /// call that hangs then has to be given up while they live.
    fn limit_of(&self, part: Part) -> Duration {
        let lease_allows = ((self.lease_for - self.heartbeat) / 2).min(self.heartbeat);
        match part {
            Part::Settler => self.call_timeout.min(lease_allows),
            // Worth less than the time in which jobs could be reserved, or a slot be used, without it.
            Part::Watch | Part::Probe | Part::Hold | Part::Announcer => {
                self.call_timeout.min(Duration::from_secs(5))
            }
            Part::Reserver | Part::Keeper | Part::Input | Part::Pruner | Part::Scheduler => {
                self.call_timeout
            }
        }
    }
}

/// The state that the loops of a worker share.
pub(super) struct Shared {
    pub(super) driver: AnyDriver,
    pub(super) config: Config,
    pub(super) handlers: HashMap<JobType, Entry<()>>,
    pub(super) formats: Vec<Format>,
    pub(super) middleware: Arc<[Arc<dyn Middleware>]>,
    pub(super) retry: Arc<dyn RetryPolicy>,
    pub(super) observers: Observers,
    pub(super) pools: SlotPools,
    /// A slot is free, or few jobs wait for one.
    pub(super) freed: Notify,
    /// Jobs wait for a slot.
    pub(super) buffered: Notify,
    pub(super) caution: Caution,
    pub(super) registry: Registry,
    pub(super) outcomes: mpsc::Sender<Finished>,
    /// The other end, until the settler takes it.
    pub(super) inbox: Mutex<Option<mpsc::Receiver<Finished>>>,
    pub(super) outage: Outage,
    /// The schedules to declare, until the scheduler takes them.
    pub(super) declaration: Mutex<Option<Declaration>>,
    /// The limits to declare, until the reserver takes them.
    pub(super) limits: Mutex<Option<LimitsDeclaration>>,
    /// Whether the slot of a schedule waits for an earlier job of it, and that such a job has ended.
    pub(super) key_waits: AtomicBool,
    pub(super) key_freed: Notify,
    pub(super) phase: watch::Sender<Phase>,
    pub(super) clock: OnceLock<Arc<dyn Clock>>,
    pub(super) random: Mutex<fastrand::Rng>,
    /// Whether the worker ends because the driver was closed.
    pub(super) closed: AtomicBool,
    /// Whether the worker ends as if its process had died.
    pub(super) aborted: AtomicBool,
    pub(super) incarnation: Incarnation,
    /// Since when every announcement has succeeded.
    pub(super) announced_since: Mutex<Option<Instant>>,
    pub(super) tally: Tally,
    pub(super) health: HealthNotes,
}

impl Shared {
    /// The store's time. The clock is started before any loop is.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.get().map_or(Timestamp::EPOCH, |clock| clock.now())
    }

    /// An announcement has succeeded or not.
    pub(super) fn note_announced(&self, is_announced: bool) {
        let mut since = self.announced_since.lock().unwrap_or_else(PoisonError::into_inner);
        *since = is_announced.then(|| since.unwrap_or_else(Instant::now));
    }

    /// Since when every announcement has succeeded, if the last one has.
    pub(super) fn announced_since(&self) -> Option<Instant> {
        *self.announced_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn chance(&self) -> f64 {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).f64()
    }

    pub(super) fn tell(&self, event: &Event<'_>) {
        self.tally.note(event, &self.pools, || self.now());
        self.observers.tell(event);
    }

    pub(super) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Goes on to this phase; never back. Whether it was not reached before.
    pub(super) fn advance(&self, to: Phase) -> bool {
        self.phase.send_if_modified(|phase| {
            let later = to > *phase;
            if later {
                *phase = to;
            }
            later
        })
    }

    /// Waits for this phase or a later one.
    pub(super) async fn reached(&self, phase: Phase) {
        // The sender lives in here too, so there is always another value to wait for.
        let _ = self.phase.subscribe().wait_for(|now| *now >= phase).await;
    }

    /// Waits for a call to the store with this many items, bounds the time it takes and tells
    /// observers of it.
    pub(super) async fn call<T>(
        &self,
        part: Part,
        operation: Operation,
        items: usize,
        call: impl Future<Output = Result<T, DriverError>>,
    ) -> Result<T, DriverError> {
        let (began, call) = (Instant::now(), in_time(self.config.limit_of(part), call));
        let note = self.health.call(part, began);
        let answer = self.observers.call(operation, items, call).await;
        match &answer {
            Ok(_) => {
                note.answered();
                self.outage.answered(part, began, &self.observers);
            }
            Err(DriverError::Closed) => self.close(),
            // The request was refused, which says nothing about the health of the store.
            Err(DriverError::Invalid(_)) => note.answered(),
            Err(DriverError::Backend(_)) if part == Part::Settler => note.answered(),
            Err(error) => {
                note.failed(Instant::now());
                self.outage.failed(part, began, operation, error, &self.observers);
            }
        }
        answer
    }

    /// As [`Self::call`], where a worker goes on without an answer: if the driver panics, the call has
    /// failed.
    pub(super) async fn call_or_recover<T>(
        &self,
        part: Part,
        operation: Operation,
        items: usize,
        call: impl Future<Output = Result<T, DriverError>>,
    ) -> Result<T, DriverError> {
        let call = async {
            let answer = recover(call).await;
            answer.unwrap_or_else(|panic| Err(DriverError::ContractViolation(panic.to_string())))
        };
        self.call(part, operation, items, call).await
    }

    /// Keeps the clock in step with the store's: asks the store if the last answer is so old. Without an
    /// answer the clock goes on as it is.
    pub(super) async fn sync_clock(
        &self,
        driver: &AnyDriver,
        age: Duration,
    ) -> Result<Option<ClockReading>, DriverError> {
        let call = in_time(CLOCK_TIMEOUT, driver.sync_clock(age));
        self.observers.call(Operation::StoreTime, 0, call).await
    }

    /// The driver was closed under the worker: nothing can be recorded any more.
    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        for inflight in self.registry.all() {
            self.lose(&inflight, &LossReason::Closed);
        }
        self.advance(Phase::Ended);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Stops a job whose lease is lost. Told once.
    pub(super) fn lose(&self, inflight: &Arc<Inflight>, why: &LossReason) {
        if inflight.cancellation.raise(CancelReason::LeaseLost) {
            self.tell(&Event::LeaseLost { job: &inflight.job, why });
        }
    }

    /// The time to wait before trying again after this many failures in a row.
    pub(super) fn backoff(&self, failures: u32) -> Duration {
        super::outage::BACKOFF.after(failures, self.chance())
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("config", &self.config)
            .field("pools", &self.pools)
            .field("phase", &self.phase())
            .finish_non_exhaustive()
    }
}
