//! Starting the loops of a worker and shutting them down, in bounded time.

use std::{io, sync::Arc};

use tokio::{
    runtime::{Builder, Handle},
    task::JoinHandle,
    time::timeout,
};

use super::{
    keeper,
    outage::Part,
    reserver,
    running::{Ending, Running},
    settler,
    shared::{Phase, Shared},
};
use crate::{CancelReason, Event, middleware::recover};

pub(super) fn start(shared: Arc<Shared>) -> Running {
    let (ending, ended) = tokio::sync::watch::channel(None);
    match Handle::try_current() {
        Ok(runtime) => {
            let shared = Arc::clone(&shared);
            runtime.spawn(async move {
                let end = recover(supervise(&shared)).await.unwrap_or(Ending::Crashed);
                shared.advance(Phase::Ended);
                // Nobody keeps their leases any more, so whatever still runs has to stop.
                for inflight in shared.registry.all() {
                    inflight.cancellation.raise(CancelReason::LeaseLost);
                }
                ending.send_replace(Some(end));
            });
        }
        Err(_) => {
            ending.send_replace(Some(Ending::NoRuntime));
        }
    }
    Running::new(shared, ended)
}

async fn supervise(shared: &Arc<Shared>) -> Ending {
    if !start_clock(shared).await {
        return Ending::from_phase(shared);
    }
    let inbox = shared.inbox.lock().ok().and_then(|mut inbox| inbox.take());
    let Some(inbox) = inbox else {
        return Ending::Crashed;
    };
    if let Err(error) = start_keeper(shared) {
        return Ending::NotStarted(Arc::new(error));
    }
    shared.tell(&Event::WorkerStarted { name: shared.config.holder.as_str() });
    let mut settler = tokio::spawn(settler::run(Arc::clone(shared), inbox));
    let mut reserver = tokio::spawn(reserver::run(Arc::clone(shared)));
    let crashed = tokio::select! {
        biased;
        () = shared.reached(Phase::Draining) => false,
        _ = &mut settler => shared.phase() == Phase::Working,
        _ = &mut reserver => shared.phase() == Phase::Working,
    };
    let abandoned = if crashed { shared.registry.len() } else { stop(shared, &mut reserver).await };
    shared.advance(Phase::Ended);
    reserver.abort();
    settler.abort();
    shared.tell(&Event::WorkerStopped { abandoned });
    if crashed { Ending::Crashed } else { Ending::from_phase(shared) }
}

/// Asks the store for its time until it answers; `false` if the worker was told to stop first.
async fn start_clock(shared: &Shared) -> bool {
    for failures in 1.. {
        if shared.phase() > Phase::Working {
            return false;
        }
        if let Ok(clock) = shared.call(Part::Reserver, "clock", shared.driver.clock()).await {
            let _ = shared.clock.set(clock);
            return true;
        }
        tokio::select! {
            biased;
            () = shared.reached(Phase::Draining) => {}
            () = tokio::time::sleep(shared.backoff(failures)) => {}
        }
    }
    false
}

/// Starts the lease keeper: on a thread and runtime of its own, so that handlers which block every
/// thread cannot keep it from its work; under a clock of its own on this one, so that all go by
/// the same time.
fn start_keeper(shared: &Arc<Shared>) -> io::Result<()> {
    let keeper = keeper::run(Arc::clone(shared));
    if shared.driver.has_own_clock() {
        tokio::spawn(keeper);
        return Ok(());
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name("taskharbor-leases".to_owned());
    thread.spawn(move || runtime.block_on(keeper))?;
    Ok(())
}

/// Lets handlers finish, then tells them to stop, then goes without them; answers how many jobs
/// are left behind.
async fn stop(shared: &Arc<Shared>, reserver: &mut JoinHandle<()>) -> usize {
    let inflight = shared.registry.len();
    let grace = shared.config.grace;
    shared.tell(&Event::ShuttingDown { inflight, grace });
    let mut drained = std::pin::pin!(async {
        // What a reservation in the air brings is given back by the reserver itself.
        if !reserver.is_finished() {
            let _ = reserver.await;
        }
        shared.registry.empty().await;
    });
    let in_time = tokio::select! {
        biased;
        () = shared.reached(Phase::Ended) => return shared.registry.len(),
        () = &mut drained => true,
        () = shared.reached(Phase::Cancelling) => false,
        () = tokio::time::sleep(grace) => false,
    };
    if !in_time {
        shared.advance(Phase::Cancelling);
        for inflight in shared.registry.all() {
            inflight.cancellation.raise(CancelReason::Shutdown);
        }
        // The handlers have this time to stop, then the last outcomes to be recorded.
        let limit = shared.config.cancel_wait.saturating_mul(2);
        tokio::select! {
            biased;
            () = shared.reached(Phase::Ended) => {}
            _ = timeout(limit, drained) => {}
        }
    }
    shared.registry.len()
}
