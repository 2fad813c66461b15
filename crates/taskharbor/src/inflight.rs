//! The jobs that a worker holds: their leases, and which part of the worker is using each.
//!
//! Two parts of a worker send a job's token to the store: the lease keeper and the settler. A
//! driver may answer an extension with another token, so the two never send the same job at once:
//! the second one waits, and then uses the latest token. A handler that acknowledges its job in a
//! transaction of its own is the third part. From then on the transaction may lock the job in the
//! store, so the keeper does not extend its lease until the handler has ended.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use slab::Slab;
use taskharbor_core::{
    Text, Timestamp,
    driver::{Lease, LeaseMark, LeaseToken, Leased},
    job::JobView,
};
use tokio::{sync::Notify, time::Instant};

use crate::{CancelReason, cancel::Cancellation};

/// A job that this worker holds.
#[derive(Debug)]
pub(crate) struct Inflight {
    pub(crate) job: JobView,
    pub(crate) cancellation: Cancellation,
    hold: Mutex<Hold>,
    reported: AtomicBool,
    ended: AtomicBool,
    is_left_alone: AtomicBool,
    deadline: OnceLock<Timestamp>,
    began: OnceLock<Instant>,
    /// The keeper has its answer; a handler may wait for it.
    answered: Notify,
    place: usize,
}

#[derive(Debug)]
struct Hold {
    lease: Lease,
    busy: Busy,
    report: Option<Text>,
    ack: Ack,
    mark: Mark,
}

/// A mark of a lease that the store has to record.
#[derive(Debug, Default)]
struct Mark {
    wanted: Option<LeaseMark>,
    in_flight: Option<LeaseMark>,
    stored: Option<LeaseMark>,
}

/// Whether the handler has acknowledged the job in a transaction of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ack {
    No,
    /// It has begun to. Only the store knows whether the transaction commits.
    Begun,
    /// It has not, and no longer can.
    Missed,
}

/// Why a handler cannot acknowledge its job in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAck {
    /// It has done so before.
    Again,
    /// It has ended.
    Over,
}

/// Which part has sent the job's token to the store and waits for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Busy {
    Free,
    Keeper,
    Settler,
    /// The handler, whose transaction may be open for a while after the answer.
    Handler,
}

impl Inflight {
    /// A job that no worker holds, to run its handler by itself.
    #[cfg(feature = "testing")]
    pub(crate) fn alone(leased: Leased) -> Self {
        Self::new(leased, 0)
    }

    fn new(Leased { job, lease, .. }: Leased, place: usize) -> Self {
        Self {
            job,
            cancellation: Cancellation::default(),
            hold: Mutex::new(Hold {
                lease,
                busy: Busy::Free,
                report: None,
                ack: Ack::No,
                mark: Mark::default(),
            }),
            reported: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            is_left_alone: AtomicBool::new(false),
            deadline: OnceLock::new(),
            began: OnceLock::new(),
            answered: Notify::new(),
            place,
        }
    }

    /// Its handler begins.
    pub(crate) fn begin(&self, now: Instant) {
        let _ = self.began.set(now);
    }

    /// When its handler began, if it has and has not ended.
    pub(crate) fn began(&self) -> Option<Instant> {
        self.began.get().copied().filter(|_| !self.has_ended())
    }

    fn hold(&self) -> MutexGuard<'_, Hold> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn expires_at(&self) -> Timestamp {
        self.hold().lease.expires_at
    }

    /// Whether no outcome of the job may be recorded here any more.
    pub(crate) fn is_lost(&self) -> bool {
        self.cancellation.reason() == Some(CancelReason::LeaseLost)
    }

    /// The handler has ended, and the settler has the job.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    /// Whether the handler has ended. What the keeper hears about the job then may be the echo of
    /// an outcome whose answer was lost, so it is left to the settler to find out.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// When the handler has to have ended.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.deadline.get().copied()
    }

    pub(crate) fn set_deadline(&self, deadline: Timestamp) {
        let _ = self.deadline.set(deadline);
    }

    /// The store does not extend this lease; the settler will find out what that means.
    pub(crate) fn leave_alone(&self) {
        self.is_left_alone.store(true, Ordering::SeqCst);
    }

    /// Whether the keeper has anything to do with this job.
    pub(crate) fn is_kept(&self) -> bool {
        !self.is_lost() && !self.is_left_alone.load(Ordering::SeqCst)
    }

    /// Whether the settler has the job in flight, or a transaction of the handler's has it.
    pub(crate) fn is_being_settled(&self) -> bool {
        matches!(self.hold().busy, Busy::Settler | Busy::Handler)
    }

    /// Whether the keeper has the job in flight.
    pub(crate) fn is_being_extended(&self) -> bool {
        self.hold().busy == Busy::Keeper
    }

    /// What the handler last said about its progress, for the keeper to pass on.
    pub(crate) fn report(&self, report: Text) {
        self.hold().report = Some(report);
        self.reported.store(true, Ordering::Relaxed);
    }

    /// Has the keeper mark the lease, once it is called. A lease that is leaving stays so, also if its
    /// handler starts a moment later.
    pub(crate) fn set_mark(&self, mark: LeaseMark) {
        let mut hold = self.hold();
        if hold.mark.wanted != Some(LeaseMark::Leaving) {
            hold.mark.wanted = Some(mark);
        }
    }

    /// Whether the keeper has a mark to pass on.
    pub(crate) fn needs_mark(&self) -> bool {
        let hold = self.hold();
        hold.mark.wanted != hold.mark.stored
    }

    /// Waits until the store has a mark for the lease.
    pub(crate) async fn marked(&self) {
        loop {
            let mut answered = std::pin::pin!(self.answered.notified());
            // Registered before looking, so that nothing is missed in between.
            answered.as_mut().enable();
            if self.hold().mark.stored.is_some() {
                return;
            }
            answered.await;
        }
    }

    /// The token and the news, unless the settler has the job in flight.
    pub(crate) fn begin_extending(&self) -> Option<(LeaseToken, Option<Text>, Option<LeaseMark>)> {
        let mut hold = self.hold();
        if hold.busy != Busy::Free {
            return None;
        }
        hold.busy = Busy::Keeper;
        let report =
            if self.reported.swap(false, Ordering::Relaxed) { hold.report.clone() } else { None };
        hold.mark.in_flight = hold.mark.wanted.filter(|mark| hold.mark.stored != Some(*mark));
        Some((hold.lease.token, report, hold.mark.in_flight))
    }

    /// The keeper has its answer: the new lease, or none if the call did not get through.
    pub(crate) fn end_extending(&self, lease: Option<Lease>) {
        let mut hold = self.hold();
        hold.busy = Busy::Free;
        let mark = hold.mark.in_flight.take();
        match lease {
            Some(lease) => {
                hold.lease = lease;
                hold.mark.stored = mark.or(hold.mark.stored);
            }
            // The report may not have arrived either.
            None if hold.report.is_some() => self.reported.store(true, Ordering::Relaxed),
            None => {}
        }
        drop(hold);
        self.answered.notify_waiters();
    }

    /// The token with which the handler acknowledges the job in a transaction of its own, once the
    /// keeper has its answer. From here on no other part may ack the job.
    pub(crate) async fn begin_ack(&self) -> Result<LeaseToken, NoAck> {
        loop {
            let mut answered = std::pin::pin!(self.answered.notified());
            // Registered before looking, so that nothing is missed in between.
            answered.as_mut().enable();
            if let Some(begun) = self.try_begin_ack() {
                return begun;
            }
            answered.await;
        }
    }

    /// `None` while the keeper has the job in flight.
    fn try_begin_ack(&self) -> Option<Result<LeaseToken, NoAck>> {
        let mut hold = self.hold();
        match (hold.ack, hold.busy) {
            (Ack::Begun, _) => Some(Err(NoAck::Again)),
            (Ack::Missed, _) => Some(Err(NoAck::Over)),
            (Ack::No, Busy::Keeper) => None,
            (Ack::No, _) => {
                (hold.ack, hold.busy) = (Ack::Begun, Busy::Handler);
                Some(Ok(hold.lease.token))
            }
        }
    }

    /// The handler has ended: whether it has acknowledged the job in a transaction of its own. If
    /// not, it cannot any more.
    pub(crate) fn end_ack(&self) -> bool {
        let mut hold = self.hold();
        match hold.ack {
            Ack::Begun => {
                // The transaction is over with its handler, or nearly.
                if hold.busy == Busy::Handler {
                    hold.busy = Busy::Free;
                }
                true
            }
            Ack::No | Ack::Missed => {
                hold.ack = Ack::Missed;
                false
            }
        }
    }

    /// Whether the handler has begun to acknowledge the job in a transaction of its own: then the
    /// job may be done, and its lease gone with that.
    pub(crate) fn may_be_acked(&self) -> bool {
        self.hold().ack == Ack::Begun
    }

    /// The latest token, unless the keeper has the job in flight.
    pub(crate) fn begin_settling(&self) -> Option<LeaseToken> {
        let mut hold = self.hold();
        if hold.busy == Busy::Keeper {
            return None;
        }
        hold.busy = Busy::Settler;
        Some(hold.lease.token)
    }

    /// The settler's call did not get through; the keeper may extend the lease meanwhile.
    pub(crate) fn end_settling(&self) {
        self.hold().busy = Busy::Free;
    }
}

/// All jobs that a worker holds, from their reservation until they are settled or lost.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    held: Mutex<Slab<Arc<Inflight>>>,
    /// Notified when a job is removed, because a shutdown waits for the last one.
    emptied: Notify,
    /// The keeper is to look again before the time it sleeps until.
    keeper_called: Notify,
    /// Until when the keeper sleeps, in microseconds.
    keeper_wakes_at: AtomicI64,
    /// The keeper has its answers; what the settler put off can go.
    extended: Notify,
}

impl Registry {
    fn held(&self) -> MutexGuard<'_, Slab<Arc<Inflight>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers jobs; each lease is first to be extended when it has `rest` left. A lease that ends
    /// before `too_soon` is not worth a start: its job is registered as one that has ended, so the
    /// keeper leaves it to the settler.
    pub(crate) fn insert(
        &self,
        jobs: Vec<Leased>,
        rest: Duration,
        too_soon: Timestamp,
    ) -> Vec<Arc<Inflight>> {
        let due = jobs.iter().map(|leased| leased.lease.expires_at.saturating_sub(rest)).min();
        let mut held = self.held();
        let insert = |leased: Leased| {
            let is_late = leased.lease.expires_at <= too_soon;
            let place = held.vacant_entry();
            let inflight = Arc::new(Inflight::new(leased, place.key()));
            inflight.ended.store(is_late, Ordering::SeqCst);
            Arc::clone(place.insert(inflight))
        };
        let inserted = jobs.into_iter().map(insert).collect();
        drop(held);
        let wakes_at = self.keeper_wakes_at.load(Ordering::SeqCst);
        if due.is_some_and(|due| due.as_micros() < wakes_at) {
            self.call_keeper();
        }
        inserted
    }

    pub(crate) fn remove<'a>(&self, jobs: impl IntoIterator<Item = &'a Arc<Inflight>>) {
        let mut held = self.held();
        for job in jobs {
            if held.get(job.place).is_some_and(|it| Arc::ptr_eq(it, job)) {
                held.remove(job.place);
            }
        }
        drop(held);
        self.emptied.notify_waiters();
    }

    pub(crate) fn all(&self) -> Vec<Arc<Inflight>> {
        self.held().iter().map(|(_, job)| Arc::clone(job)).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.held().len()
    }

    pub(crate) async fn empty(&self) {
        loop {
            let mut emptied = std::pin::pin!(self.emptied.notified());
            emptied.as_mut().enable();
            if self.len() == 0 {
                return;
            }
            emptied.await;
        }
    }

    /// Waits until none of these jobs is held any more.
    pub(crate) async fn gone(&self, jobs: &[Arc<Inflight>]) {
        let is_held =
            |job: &Arc<Inflight>| self.held().get(job.place).is_some_and(|it| Arc::ptr_eq(it, job));
        loop {
            let mut removed = std::pin::pin!(self.emptied.notified());
            removed.as_mut().enable();
            if !jobs.iter().any(is_held) {
                return;
            }
            removed.await;
        }
    }

    /// Has the keeper look at once.
    pub(crate) fn call_keeper(&self) {
        self.keeper_called.notify_one();
    }

    /// Waits for [`Registry::call_keeper`].
    pub(crate) async fn keeper_called(&self) {
        self.keeper_called.notified().await;
    }

    /// What comes later than this need not call the keeper; `None` is never.
    pub(crate) fn keeper_sleeps_until(&self, at: Option<Timestamp>) {
        let at = at.map_or(i64::MAX, Timestamp::as_micros);
        self.keeper_wakes_at.store(at, Ordering::SeqCst);
    }

    /// Waits until no job is left whose handler has ended.
    pub(crate) async fn recorded(&self) {
        loop {
            let mut removed = std::pin::pin!(self.emptied.notified());
            removed.as_mut().enable();
            if !self.held().iter().any(|(_, job)| job.has_ended()) {
                return;
            }
            removed.await;
        }
    }

    pub(crate) fn announce_extended(&self) {
        self.extended.notify_one();
    }

    pub(crate) async fn extended(&self) {
        self.extended.notified().await;
    }
}

#[cfg(test)]
mod tests;
