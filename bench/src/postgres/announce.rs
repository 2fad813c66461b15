//! The cost for a server of the announcements of many workers.

use std::time::Duration;

use taskharbor_core::{
    Driver,
    driver::{Announce, Incarnation},
    name::Holder,
};
use tokio::time::sleep;

use super::{Outcome, server::Server, size::Sizes, store::Store, usage::Usage};
use crate::{
    finding::{Bound, figure, head},
    stopwatch::now,
};

/// Workers that announce themselves.
const WORKERS: u64 = 500;
/// How often each does so.
const EVERY: Duration = Duration::from_secs(10);
/// For how long an announcement is valid.
const VALID_FOR: Duration = Duration::from_secs(30);
/// How often all of them do so.
const TURNS: u32 = 3;

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    head(&format!("announce: {WORKERS} workers, each every {} s", EVERY.as_secs()));
    let store = Store::new(server, "announce", sizes.payload).await?;
    let gap = EVERY / u32::try_from(WORKERS)?;
    // Every row is there, and the connection has its plans.
    for worker in 0..WORKERS {
        announce(&store, worker).await?;
    }
    let (before, started) = (Usage::now(server)?, now());
    for turn in 0..TURNS {
        for worker in 0..WORKERS {
            announce(&store, worker).await?;
            let number = turn * u32::try_from(WORKERS)? + u32::try_from(worker)? + 1;
            sleep((gap * number).saturating_sub(started.elapsed())).await;
        }
    }
    let spent = Usage::now(server)?.since(before);
    let share = spent.server / started.elapsed().as_secs_f64() * 100.0;
    figure("server, of a core", share, "%", 2, Bound::AtMost(1.0));
    Ok(())
}

async fn announce(store: &Store, worker: u64) -> Outcome {
    let holder = Holder::new(format!("worker-{worker}"))?;
    let waits = "0,".repeat(11) + "0";
    let info = format!(
        r#"{{"version":"1.0","host":"host-{worker}","pid":{worker},"phase":"working","wake_ups":true,"library":"0.1.0","types":["email:send","image:resize","report:build"],"queues":[{{"name":"default","slots":16,"busy":3,"started":100,"done":97,"wait":[{waits}],"run":[{waits}]}}]}}"#
    );
    let incarnation = Incarnation::from_bits(worker);
    let request =
        Announce::new(holder, incarnation, info.as_bytes().into(), VALID_FOR, store.clock.now());
    Ok(store.driver.announce(request).await?)
}
