//! Lanes and limits: what they cost a drain, a call and the log, and how soon a freed place is used.

mod dominant;
mod drain;
mod fleet;
mod freed;
mod full;
mod log;

use taskharbor_core::{
    Admin, Driver, NewJob, QueueName,
    admin::{Change, Configure, QueueLimits},
    name::LaneName,
};

use super::{
    Outcome,
    server::Server,
    size::Sizes,
    store::{QUEUE, Store},
};

/// The usual number of lanes.
const LANES: usize = 1_000;

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    drain::run(server, sizes).await?;
    full::run(server, sizes).await?;
    freed::run(server, sizes).await?;
    fleet::run(server, sizes).await?;
    dominant::run(server, sizes).await?;
    log::run(server, sizes).await
}

/// How the jobs of a queue are spread, and what limits it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shape {
    /// Jobs take turns between this many lanes; none if zero.
    lanes: usize,
    limits: Option<QueueLimits>,
}

impl Shape {
    fn of(lanes: usize, limits: Option<QueueLimits>) -> Self {
        Self { lanes, limits }
    }

    /// A new store with jobs that wait, its first connections open, as [`Store::filled`] makes it.
    async fn filled(&self, server: &Server, schema: &str, sizes: &Sizes) -> Outcome<Store> {
        let store = Store::new(server, schema, sizes.payload).await?;
        self.limit(&store).await?;
        self.fill(&store, sizes.jobs + 2, sizes.bulk).await?;
        let (first, second) = tokio::join!(store.step(1), store.step(1));
        if first? + second? < 2 {
            return Err("jobs are missing".into());
        }
        store.vacuum().await?;
        Ok(store)
    }

    /// Sets the limits.
    async fn limit(&self, store: &Store) -> Outcome {
        let Some(limits) = self.limits.clone() else { return Ok(()) };
        let set = Change::SetLimits { queue: QueueName::new(QUEUE)?, limits: Some(limits) };
        for answer in store.driver.configure(Configure::new(vec![set], store.clock.now())).await? {
            answer?;
        }
        Ok(())
    }

    async fn fill(&self, store: &Store, count: usize, bulk: usize) -> Outcome {
        for start in (0..count).step_by(bulk) {
            let jobs =
                store.jobs_with(bulk.min(count - start), |number, job| match self.lanes {
                    0 => Ok(job),
                    lanes => in_lane(job, &format!("lane-{:05}", (start + number) % lanes)),
                })?;
            for answer in store.driver.enqueue(jobs).await? {
                answer?;
            }
        }
        Ok(())
    }
}

fn in_lane(job: NewJob, lane: &str) -> Outcome<NewJob> {
    Ok(job.lane(LaneName::new(lane)?))
}

/// Enqueues one job in this lane.
async fn put(store: &Store, lane: &str) -> Outcome {
    let job = store.jobs_with(1, |_, job| in_lane(job, lane))?;
    for answer in store.driver.enqueue(job).await? {
        answer?;
    }
    Ok(())
}
