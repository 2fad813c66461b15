//! [`MemoryDriver`]: the store behind a lock, for clients and workers.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, TryLockError},
    task::Poll,
};

use taskharbor_core::{
    Driver, DriverError, JobId, QueueName, Timestamp,
    clock::{Clock, StoreClock},
    driver::{
        Announce, Answers, Due, DueSchedules, Enqueue, Enqueued, ExtendLeases, Extended, Fire,
        Limits, OutputPage, Outputs, Reserve, Reserved, Settle, Settled, WakeHub, Watch,
    },
    error::{FireRefused, Refusal, Rejected},
};

use crate::store::Store;

/// Jobs in memory. Clones share one store; it is gone with the last of them.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use taskharbor_core::AnyDriver;
/// use taskharbor_memory::MemoryDriver;
///
/// let driver = AnyDriver::new(MemoryDriver::new());
/// driver.migrate().await?;
/// // Now: Client::new(&driver) and Worker::builder(&driver), of the crate taskharbor.
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryDriver {
    shared: Arc<Shared>,
}

struct Shared {
    store: Mutex<Store>,
    hub: WakeHub,
    limits: Limits,
    clock: Option<Arc<dyn Clock>>,
}

impl MemoryDriver {
    /// A driver on an empty store that goes by the machine's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with(Limits::default(), None)
    }

    /// A driver on an empty store with its own bounds.
    #[must_use]
    pub fn with_limits(limits: Limits) -> Self {
        Self::with(limits, None)
    }

    /// A driver on an empty store whose own time is this clock's: for tests with a manual clock.
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self::with(Limits::default(), Some(clock))
    }

    fn with(limits: Limits, clock: Option<Arc<dyn Clock>>) -> Self {
        let store = Mutex::new(Store::new(limits));
        Self { shared: Arc::new(Shared { store, hub: WakeHub::new(), limits, clock }) }
    }

    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, Store>, DriverError> {
        let poisoned = |_| DriverError::backend("a panic left the store in an unknown state");
        let store = self.shared.store.lock().map_err(poisoned)?;
        // CLO-1, REF-5: before anything else is looked at.
        if store.closed { Err(DriverError::Closed) } else { Ok(store) }
    }

    /// Yields while another call is in the critical section, so that the thread can do other work;
    /// for a bounded number of times, since what follows waits for the lock anyway.
    async fn turn(&self) {
        for _ in 0..8 {
            if !matches!(self.shared.store.try_lock(), Err(TryLockError::WouldBlock)) {
                return;
            }
            let mut stepped_aside = false;
            poll_fn(|context| {
                if std::mem::replace(&mut stepped_aside, true) {
                    return Poll::Ready(());
                }
                context.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
        }
    }

    /// Runs one step in a critical section, then wakes the watches for which it made work.
    ///
    /// One lock makes racing calls follow each other: ENQ-7, KEY-6, RES-9, SET-10, CAN-9, SCH-5. A step has
    /// no await, so a dropped call happened whole or not at all: DRO-1. No other transaction can lock
    /// a job: REF-6.
    pub(crate) fn act<T>(
        &self,
        act: impl FnOnce(&mut Store) -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        let mut store = self.lock()?;
        let answer = act(&mut store);
        let mut wakes = std::mem::take(&mut store.wakes);
        drop(store);
        wakes.dedup();
        // WAK-1
        self.shared.hub.wake(&wakes);
        answer
    }

    /// These jobs may have ended.
    pub(crate) fn wake_jobs(&self, ids: &[JobId]) {
        // WAK-2
        self.shared.hub.wake_jobs(ids);
    }
}

impl Default for MemoryDriver {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for MemoryDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MemoryDriver")
    }
}

impl Driver for MemoryDriver {
    fn limits(&self) -> Limits {
        self.shared.limits
    }

    async fn enqueue(&self, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        // Outside of the lock, though a closed driver says so first.
        let checked = request.check();
        self.turn().await;
        self.act(|store| {
            checked?;
            Ok(store.enqueue(request))
        })
    }

    async fn reserve(&self, request: Reserve) -> Result<Reserved, DriverError> {
        self.turn().await;
        // LIM-2: one call after the other counts leases and grants.
        self.act(|store| store.reserve(&request))
    }

    async fn extend_leases(&self, request: ExtendLeases) -> Answers<Extended, Refusal> {
        self.act(|store| store.extend(request))
    }

    async fn settle(&self, request: Settle) -> Answers<Settled, Refusal> {
        let checked = request.check();
        self.turn().await;
        let ids: Vec<_> = request.items.iter().map(|item| item.id.clone()).collect();
        self.act(|store| {
            checked?;
            Ok(store.settle(request))
        })
        .inspect(|_| self.wake_jobs(&ids))
    }

    async fn outputs(&self, request: Outputs) -> Answers<OutputPage, Refusal> {
        let store = self.lock()?;
        request.check()?;
        Ok(store.outputs(&request))
    }

    async fn due_schedules(&self, request: DueSchedules) -> Result<Due, DriverError> {
        let store = self.lock()?;
        request.check()?;
        Ok(store.due_schedules(&request))
    }

    async fn fire(&self, request: Fire) -> Answers<Vec<Enqueued>, FireRefused> {
        self.act(|store| {
            request.check()?;
            Ok(store.fire(request))
        })
    }

    async fn announce(&self, request: Announce) -> Result<(), DriverError> {
        self.act(|store| Ok(store.announce(request)?))
    }

    async fn watch(&self, queues: Vec<QueueName>) -> Result<Watch, DriverError> {
        let _open = self.lock()?;
        Ok(self.shared.hub.watch(queues))
    }

    async fn watch_job(&self, id: JobId) -> Result<Watch, DriverError> {
        let _open = self.lock()?;
        Ok(self.shared.hub.watch_job(id))
    }

    async fn store_time(&self) -> Result<Timestamp, DriverError> {
        let _open = self.lock()?;
        // STO-1, TIM-1: nothing else reads a clock.
        Ok(self.shared.clock.as_ref().map_or_else(StoreClock::wall_time, |clock| clock.now()))
    }

    async fn close(&self) -> Result<(), DriverError> {
        match self.lock() {
            Ok(mut store) => store.closed = true,
            Err(DriverError::Closed) => {}
            Err(error) => return Err(error),
        }
        self.shared.hub.close();
        Ok(())
    }
}
