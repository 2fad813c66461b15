//! Draining jobs that do nothing through lanes and limits, beside a plain queue.

use taskharbor::AnyDriver;
use taskharbor_core::admin::QueueLimits;

use super::{
    super::{Outcome, server::Server, side::Side, size::Sizes, store::QUEUE, usage::Usage},
    LANES, Shape,
};
use crate::finding::{Bound, head, ratio};
use crate::noop::work;

const SCHEMA: &str = "lanes";
/// A transaction of the application that keeps dead rows from being removed.
const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class";
/// More than are ever inflight.
const UNREACHED: u32 = 1_000_000;

/// A side of the comparison.
struct Case {
    name: String,
    shape: Shape,
    /// Whether an old snapshot is held.
    has_snapshot: bool,
    /// The side that it is compared with, by number.
    beside: usize,
    bound: Bound,
    side: Side,
}

impl Case {
    fn new(name: impl Into<String>, shape: Shape, bound: Bound) -> Self {
        let (name, side) = (name.into(), Side::default());
        Self { name, shape, has_snapshot: false, beside: 0, bound, side }
    }
}

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    let (jobs, handlers) = (sizes.jobs, sizes.concurrency);
    head(&format!("lanes, drain: {jobs} waiting jobs that do nothing, {handlers} handlers"));
    let mut cases = cases(handlers);
    for _ in 0..sizes.rounds {
        for case in &mut cases {
            drain(server, sizes, case).await?;
        }
    }
    for case in &cases {
        case.side.print(&case.name);
    }
    for case in &cases[1..] {
        let other = &cases[case.beside];
        let what = format!("{} / {}", case.name, other.name);
        ratio(&what, &case.side.rate.over(&other.side.rate), case.bound);
    }
    Ok(())
}

/// The first one is what most others are compared with.
fn cases(handlers: usize) -> Vec<Case> {
    let mut cases = vec![Case::new("plain", Shape::default(), Bound::None)];
    for lanes in [10, LANES, 5 * LANES] {
        let name = format!("{lanes} lanes");
        cases.push(Case::new(name, Shape::of(lanes, None), Bound::AtLeast(0.7)));
    }
    // Two thirds of the handlers find a place.
    let lanes = (handlers / 3).max(1);
    let name = format!("{lanes} lanes, two jobs of each");
    let shape = Shape::of(lanes, Some(QueueLimits::new().per_lane(2)));
    cases.push(Case::new(name, shape, Bound::AtLeast(0.6)));
    let shape = Shape::of(0, Some(QueueLimits::new().inflight(UNREACHED)));
    cases.push(Case::new("a limit that is never reached", shape, Bound::AtLeast(0.9)));
    let name = format!("{LANES} lanes, an old snapshot");
    let mut held = Case::new(name, Shape::of(LANES, None), Bound::None);
    held.has_snapshot = true;
    held.beside = cases.iter().position(|case| case.shape == held.shape).unwrap_or(0);
    cases.push(held);
    cases
}

async fn drain(server: &Server, sizes: &Sizes, case: &mut Case) -> Outcome {
    let store = case.shape.filled(server, SCHEMA, sizes).await?;
    let reader = server.connect("public").await?;
    if case.has_snapshot {
        reader.batch_execute(SNAPSHOT).await?;
    }
    let driver = AnyDriver::new(store.driver.clone());
    let before = Usage::now(server)?;
    let took = work(&driver, QUEUE, sizes.jobs, sizes.concurrency).await?;
    case.side.push(sizes.jobs, took, Usage::now(server)?.since(before));
    drop(reader);
    store.check().await
}
