//! Starting the loops of a worker and shutting them down, in bounded time.
//!
//! The supervisor and the lease keeper have a thread and a runtime of their own, so that handlers
//! which block every thread of the application's keep neither leases from being extended nor the
//! worker from ending. A driver that is bound to the application's runtime gives them a handle of their
//! own ([`Driver::detached_handle`]), which is closed with the worker. Under a driver with a clock of
//! its own they share the runtime, so that all live in the same time.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use taskharbor_core::{AnyDriver, Driver, DriverError, driver::LeaseMark};
use tokio::{
    runtime::{Builder, Handle},
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout},
};

use super::{
    announcer,
    health::PULSE,
    keeper,
    outage::{self, Part},
    pruner, reserver,
    running::{Ending, Running},
    scheduler, settler,
    shared::{Phase, Shared},
};
use crate::{CancelReason, Event, Operation, middleware::recover};

/// How long the last outcomes have to be recorded once every handler has stopped.
pub(super) const FLUSH: Duration = Duration::from_secs(3);
/// How long the tasks of handlers that were stopped may take to say so.
const A_MOMENT: Duration = Duration::from_millis(50);
/// How long a handle of the worker's own may take to close.
pub(super) const CLOSE: Duration = Duration::from_secs(1);
/// How long a process may take to end after its worker has.
pub(crate) const EXIT: Duration = Duration::from_secs(1);

pub(super) fn start(shared: Arc<Shared>) -> Running {
    let (ending, ended) = watch::channel(None);
    let running = Running::new(Arc::clone(&shared), ended);
    let Ok(runtime) = Handle::try_current() else {
        ending.send_replace(Some(Ending::NoRuntime));
        return running;
    };
    if !has_timers() {
        let error = io::Error::other("the runtime has no timers: build it with `enable_all`");
        ending.send_replace(Some(Ending::NotStarted(Arc::new(error))));
        return running;
    }
    let own_clock = shared.driver.has_own_clock();
    let guard = Guard { shared, ending };
    if own_clock {
        let home = runtime.clone();
        runtime.spawn(guard.supervise(home, None));
    } else if let Err((error, ending)) = start_thread(guard, runtime) {
        ending.send_replace(Some(Ending::NotStarted(Arc::new(error))));
    }
    running
}

/// Whether the runtime can wait. Tokio panics where it cannot, and offers no way to ask before.
fn has_timers() -> bool {
    std::panic::catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).is_ok()
}

/// Runs supervisor and keeper on a thread and runtime of their own.
fn start_thread(
    guard: Guard,
    home: Handle,
) -> Result<(), (io::Error, watch::Sender<Option<Ending>>)> {
    let ending = guard.ending.clone();
    let run = || {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("taskharbor-leases".to_owned());
        thread.spawn(move || {
            runtime.block_on(async {
                let detached = guard.shared.driver.detached_handle();
                guard.supervise(home, detached).await;
            });
        })
    };
    run().map(drop).map_err(|error| (error, ending))
}

/// However the supervisor ends, also by being dropped with its runtime, the worker has ended then.
struct Guard {
    shared: Arc<Shared>,
    ending: watch::Sender<Option<Ending>>,
}

impl Guard {
    async fn supervise(self, home: Handle, detached: Option<AnyDriver>) {
        let driver = detached.as_ref().unwrap_or(&self.shared.driver);
        let end = recover(supervise(&self.shared, driver, &home)).await;
        self.shared.advance(Phase::Ended);
        // The results change nothing: these are the last calls.
        let last_calls = async {
            let is_aborted = self.shared.aborted.load(Ordering::SeqCst);
            let has_left_jobs = self.shared.registry.len() > 0;
            if matches!(end, Ok(Ending::Stopped)) && !is_aborted && !has_left_jobs {
                announcer::end(&self.shared, driver).await;
            }
            if let Some(detached) = &detached {
                let _ = detached.close().await;
            }
        };
        let _ = timeout(CLOSE, recover(last_calls)).await;
        self.ending.send_replace(Some(end.unwrap_or(Ending::Crashed)));
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.shared.advance(Phase::Ended);
        // Their leases are not extended any more, so handlers that still run have to stop.
        for inflight in self.shared.registry.all() {
            inflight.cancellation.raise(CancelReason::LeaseLost);
        }
        self.ending.send_if_modified(|end| {
            let is_open = end.is_none();
            if is_open {
                *end = Some(Ending::Crashed);
            }
            is_open
        });
    }
}

/// `driver` is the handle for this thread.
async fn supervise(shared: &Arc<Shared>, driver: &AnyDriver, home: &Handle) -> Ending {
    let name = shared.config.holder.as_str();
    if let Err(ending) = start_clock(shared, driver).await {
        shared.tell(&Event::WorkerStopped { name, abandoned: 0 });
        return ending;
    }
    let inbox = shared.inbox.lock().ok().and_then(|mut inbox| inbox.take());
    let Some(inbox) = inbox else {
        return Ending::Crashed;
    };
    announcer::begin(shared, driver).await;
    let version = shared.config.version.as_deref();
    let shutdown_within = shared.config.shutdown_within();
    shared.tell(&Event::WorkerStarted { name, version, shutdown_within });
    let mut keeper = tokio::spawn(keeper::run(Arc::clone(shared), driver.clone()));
    let mut settler = home.spawn(settler::run(Arc::clone(shared), inbox));
    let mut reserver = home.spawn(reserver::run(Arc::clone(shared)));
    let probe = tokio::spawn(outage::probe(Arc::clone(shared), driver.clone()));
    let announcer = tokio::spawn(announcer::run(Arc::clone(shared), driver.clone()));
    let pulse = home.spawn(pulse(Arc::clone(shared)));
    let leases_pulse = tokio::spawn(leases_pulse(Arc::clone(shared)));
    let recovery = home.spawn(announcer::recover_others(Arc::clone(shared)));
    // Nothing waits for these two: another worker, or the next one, does the rest of their work.
    let pruner = home.spawn(pruner::run(Arc::clone(shared)));
    let scheduler = home.spawn(scheduler::run(Arc::clone(shared)));
    let ended = tokio::select! {
        biased;
        () = shared.reached(Phase::Draining) => Ok(()),
        ended = &mut keeper => ended,
        ended = &mut settler => ended,
        ended = &mut reserver => ended,
    };
    // A task that was dropped has lost its runtime; any other end while there is work is a bug.
    let is_gone = ended.is_err_and(|error| error.is_cancelled());
    let mut crashed = !is_gone && shared.phase() < Phase::Draining;
    if !crashed && !is_gone {
        tokio::select! {
            biased;
            () = stop(shared, &mut reserver) => {}
            () = died(&mut keeper) => crashed = true,
            () = died(&mut settler) => crashed = true,
        }
    }
    let abandoned = shared.registry.len();
    shared.advance(Phase::Ended);
    let looks = [pruner, scheduler, probe, announcer, pulse, leases_pulse, recovery];
    for task in [keeper, settler, reserver].into_iter().chain(looks) {
        task.abort();
    }
    shared.tell(&Event::WorkerStopped { name, abandoned });
    match (crashed, is_gone) {
        (true, _) => Ending::Crashed,
        (false, true) => Ending::RuntimeGone,
        (false, false) => Ending::from_phase(shared),
    }
}

/// Says again and again that the runtime of the handlers runs. Under a clock of the caller's own, time
/// passes as fast as nothing happens, so that this would be all that happens.
async fn pulse(shared: Arc<Shared>) {
    while !shared.driver.has_own_clock() {
        shared.health.pulse(Instant::now());
        tokio::time::sleep(PULSE).await;
    }
}

/// The same for the runtime that keeps leases.
async fn leases_pulse(shared: Arc<Shared>) {
    while !shared.driver.has_own_clock() {
        shared.health.leases_pulse(Instant::now());
        tokio::time::sleep(PULSE).await;
    }
}

/// Waits for a task to end in a way that it should not. Each of them ends by itself when the worker
/// has, and then this goes on waiting.
async fn died(task: &mut JoinHandle<()>) {
    if task.is_finished() || task.await.is_ok() {
        std::future::pending::<()>().await;
    }
}

/// Asks the store for its time until it answers, or the worker is told to stop. A store that refuses
/// will not do otherwise later: it has no schema, or one that this program does not know.
pub(super) async fn start_clock(shared: &Shared, driver: &AnyDriver) -> Result<(), Ending> {
    let (began, limit) = (Instant::now(), shared.config.start_timeout);
    for failures in 1.. {
        let call = shared.call(Part::Reserver, Operation::StoreTime, 0, driver.clock());
        let clock = tokio::select! {
            biased;
            () = shared.reached(Phase::Draining) => break,
            clock = call => clock,
        };
        let pause = shared.backoff(failures);
        match clock {
            Ok(clock) => {
                let _ = shared.clock.set(clock);
                return Ok(());
            }
            Err(error @ DriverError::Backend(_)) => return Err(Ending::Store(error)),
            Err(error) if limit.is_some_and(|limit| began.elapsed() + pause >= limit) => {
                return Err(Ending::Store(error));
            }
            Err(_) => {}
        }
        tokio::select! {
            biased;
            () = shared.reached(Phase::Draining) => break,
            () = tokio::time::sleep(pause) => {}
        }
    }
    Err(Ending::from_phase(shared))
}

/// Lets handlers finish, then tells them to stop, then goes without them.
async fn stop(shared: &Arc<Shared>, reserver: &mut JoinHandle<()>) {
    let inflight = shared.registry.len();
    let grace = shared.config.grace;
    shared.tell(&Event::ShuttingDown { inflight, grace });
    // If the process is killed from here on, the jobs are not to blame.
    for inflight in shared.registry.all() {
        inflight.set_mark(LeaseMark::Leaving);
    }
    shared.registry.call_keeper();
    let mut drained = std::pin::pin!(async {
        // Jobs that a reservation in flight brings are released by the reserver itself.
        if !reserver.is_finished() {
            let _ = reserver.await;
        }
        shared.registry.empty().await;
    });
    tokio::select! {
        biased;
        () = shared.reached(Phase::Ended) => return,
        () = &mut drained => return,
        () = shared.reached(Phase::Cancelling) => {}
        () = tokio::time::sleep(grace) => {}
    }
    shared.advance(Phase::Cancelling);
    for inflight in shared.registry.all() {
        inflight.cancellation.raise(CancelReason::Shutdown);
    }
    let stopped = async {
        let _ = timeout(shared.config.cancel_wait.saturating_add(A_MOMENT), &mut drained).await;
        // Of those that cannot be stopped there is nothing to record.
        let _ = timeout(FLUSH - A_MOMENT, shared.registry.recorded()).await;
    };
    tokio::select! {
        biased;
        () = shared.reached(Phase::Ended) => {}
        () = stopped => {}
    }
}
