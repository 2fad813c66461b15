//! Reserving jobs for a worker, and what a worker does before it starts a handler.

use std::{mem, time::Duration};

use taskharbor::{
    Timestamp,
    remote::{Admission, RemoteWorker, Ticket},
};
use taskharbor_core::{
    AnyDriver, Driver, DriverError,
    driver::{
        Demand, ExtendLeases, Extension, LeaseMark, Leased, Reserve, Settle, Settlement, Transition,
    },
    name::Holder,
};
use tokio::time::Instant;

/// One answer carries no more payloads than this, unless a single one is larger.
const MAX_BYTES: usize = 32 * 1024 * 1024;
/// How long a job is kept apart from another one that may kill its worker.
const APART: Duration = Duration::from_secs(1);

/// What is reserved, for whom.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) demands: Vec<Demand>,
    pub(super) holder: Holder,
    pub(super) worker: RemoteWorker,
    pub(super) lease_for: Duration,
}

/// A job that a worker may run.
#[derive(Debug)]
pub(super) struct Handed {
    pub(super) leased: Leased,
    pub(super) ticket: Ticket,
    /// How long it had been available.
    pub(super) waited: Duration,
    /// While it runs, its worker reserves nothing for this long.
    pub(super) alone: Option<Duration>,
}

/// Jobs that were reserved. Dropped before they are handed over, they are released.
#[derive(Debug)]
pub(super) struct Granted {
    driver: AnyDriver,
    jobs: Vec<Handed>,
    next_due: Option<Duration>,
    /// Whether jobs were reserved that the worker does not run.
    was_refused: bool,
}

impl Granted {
    pub(super) fn jobs(&self) -> &[Handed] {
        &self.jobs
    }

    /// How long until there may be more.
    pub(super) const fn next_due(&self) -> Option<Duration> {
        self.next_due
    }

    pub(super) const fn was_refused(&self) -> bool {
        self.was_refused
    }

    /// The jobs, which are the worker's from now on.
    pub(super) fn hand_over(mut self) -> Vec<Handed> {
        mem::take(&mut self.jobs)
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        let jobs = mem::take(&mut self.jobs);
        if jobs.is_empty() {
            return;
        }
        let driver = self.driver.clone();
        let items = jobs.iter().map(|handed| &handed.leased);
        let items = items.map(|it| settlement(it, RemoteWorker::release_unstarted())).collect();
        // Without a runtime the server is gone, and the jobs come back when their leases end.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { settle(&driver, items).await });
        }
    }
}

impl Grant {
    /// Reserves jobs, and does with each what a worker does before it starts a handler.
    pub(super) async fn reserve(&self, driver: &AnyDriver) -> Result<Granted, DriverError> {
        let (now, then) = (driver.now().await?, Instant::now());
        let demands = self.demands.clone();
        let request = Reserve::new(demands, self.holder.clone(), now, self.lease_for);
        let reserved = driver.reserve(request).await?;
        let next_due = reserved.next_due.map(|due| due.since(now));
        let is_clock_right = is_clock_right(driver, &reserved.jobs, now, then).await;
        let (mut jobs, mut refused) = (Vec::new(), Vec::new());
        let (mut bytes, mut runs_alone) = (0, false);
        for leased in reserved.jobs {
            let job = &leased.job;
            let alone = self.worker.runs_alone_for(job);
            bytes += job.payload.len();
            let admitted = if !is_clock_right && job.may_be_reclaimed() {
                Admission::Settle(self.worker.clock_set_back(job, self.lease_for, now))
            } else if alone.is_some() && runs_alone {
                Admission::Settle(self.worker.keep_apart(job, APART, now))
            } else if bytes > MAX_BYTES && !jobs.is_empty() {
                Admission::Settle(RemoteWorker::release_unstarted())
            } else {
                self.worker.admit(&leased, now)
            };
            match admitted {
                Admission::Run(ticket) => {
                    runs_alone |= alone.is_some();
                    let waited = now.since(job.available_at);
                    jobs.push(Handed { leased, ticket, waited, alone });
                }
                Admission::Settle(transition) => refused.push(settlement(&leased, transition)),
            }
        }
        let was_refused = !refused.is_empty();
        let mut granted = Granted { driver: driver.clone(), jobs, next_due, was_refused };
        settle(driver, refused).await;
        self.record_starts(&mut granted).await?;
        Ok(granted)
    }

    /// Has the store know that jobs start whose lease ran out before, so that it can tell another crash from
    /// an answer that is lost on its way to a worker. A job whose start is not recorded does not start.
    async fn record_starts(&self, granted: &mut Granted) -> Result<(), DriverError> {
        let has_expired = |handed: &Handed| handed.leased.job.expirations > 0;
        let starts = granted.jobs.iter().filter(|handed| has_expired(handed));
        let items = starts.map(|Handed { leased, .. }| {
            Extension::new(leased.job.id.clone(), leased.lease.token).mark(LeaseMark::Started)
        });
        let items: Vec<_> = items.collect();
        if items.is_empty() {
            return Ok(());
        }
        let now = granted.driver.now().await?;
        let request = ExtendLeases::new(items, now, self.lease_for);
        let mut answers = granted.driver.extend_leases(request).await?.into_iter();
        let mut cancelled = Vec::new();
        granted.jobs.retain_mut(|handed| {
            if !has_expired(handed) {
                return true;
            }
            let Some(Ok(extended)) = answers.next() else { return false };
            handed.leased.lease = extended.lease;
            handed.ticket = handed.ticket.clone().with_token(extended.lease.token);
            if extended.cancel_requested {
                let released = RemoteWorker::release_unstarted();
                cancelled.push(settlement(&handed.leased, released));
            }
            !extended.cancel_requested
        });
        settle(&granted.driver, cancelled).await;
        Ok(())
    }
}

/// Whether the clock that showed `now` was not ahead of the store's. By a clock that is ahead, leases seem to
/// have ended that have not. A clock that cannot be compared with the store's may be ahead.
async fn is_clock_right(
    driver: &AnyDriver,
    jobs: &[Leased],
    now: Timestamp,
    then: Instant,
) -> bool {
    if !jobs.iter().any(|leased| leased.job.may_be_reclaimed()) {
        return true;
    }
    match driver.sync_clock(Duration::ZERO).await {
        Ok(reading) => reading.is_none_or(|it| !it.was_ahead(now, then.into_std())),
        Err(_) => false,
    }
}

fn settlement(leased: &Leased, transition: Transition) -> Settlement {
    Settlement::new(leased.job.id.clone(), leased.lease.token, transition)
}

/// Settles jobs that are not handed out. If that fails, they come back when their leases
/// end.
async fn settle(driver: &AnyDriver, items: Vec<Settlement>) {
    if items.is_empty() {
        return;
    }
    let settled = async {
        let now = driver.now().await?;
        driver.settle(Settle::new(items, now)).await
    };
    if let Err(error) = settled.await {
        tracing::warn!(%error, "jobs that were not handed out could not be released");
    }
}
