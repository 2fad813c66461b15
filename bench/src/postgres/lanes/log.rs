//! Bytes of the log over the life of a job: plain, in a lane, and in a lane with limits.

use taskharbor_core::admin::QueueLimits;

use super::{
    super::{
        Outcome,
        server::Server,
        size::Sizes,
        store::Store,
        wal::{position, set_full_page_writes, to_f64},
    },
    LANES, Shape,
};
use crate::finding::{Bound, figure, head};

const SCHEMA: &str = "lanes_log";
const PHASES: [&str; 4] = ["enqueue", "reserve and ack", "prune", "vacuum"];
/// More than are ever inflight.
const UNREACHED: u32 = 1_000_000;

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    head(&format!("lanes, log: {} jobs through their whole life", sizes.jobs));
    let limits = QueueLimits::new().inflight(UNREACHED).per_lane(UNREACHED);
    for (name, shape) in [
        ("plain", Shape::default()),
        ("in lanes", Shape::of(LANES, None)),
        ("in lanes with limits", Shape::of(LANES, Some(limits))),
    ] {
        let store = Store::new(server, SCHEMA, sizes.payload).await?;
        shape.limit(&store).await?;
        set_full_page_writes(&store, "off").await?;
        let phases = life(&store, &shape, sizes).await;
        set_full_page_writes(&store, "on").await?;
        let (phases, jobs) = (phases?, to_f64(i64::try_from(sizes.jobs)?));
        let total = phases.iter().sum::<f64>() / jobs;
        figure(&format!("{name}: log per job"), total, " B", 0, Bound::None);
        for (phase, bytes) in PHASES.iter().zip(phases) {
            figure(&format!("  {phase}"), bytes / jobs, " B", 0, Bound::None);
        }
    }
    Ok(())
}

/// The bytes of each phase.
async fn life(store: &Store, shape: &Shape, sizes: &Sizes) -> Outcome<[f64; PHASES.len()]> {
    let mut at = [position(store).await?, 0, 0, 0, 0];
    shape.fill(store, sizes.jobs, sizes.bulk).await?;
    at[1] = position(store).await?;
    let done = store.drain(sizes.batch).await?;
    if done < sizes.jobs {
        return Err(format!("{done} of {} jobs were drained", sizes.jobs).into());
    }
    at[2] = position(store).await?;
    store.prune(sizes.bulk).await?;
    at[3] = position(store).await?;
    store.vacuum().await?;
    at[4] = position(store).await?;
    store.check().await?;
    Ok([0, 1, 2, 3].map(|phase| to_f64(at[phase + 1] - at[phase])))
}
