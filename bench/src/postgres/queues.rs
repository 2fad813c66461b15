//! A reserve over many queues that have had jobs and are empty now.

use taskharbor_core::{
    Driver, JobId, JobType, NewJob, QueueName,
    driver::{Demand, Enqueue, Reserve},
    job::JobSet,
    name::Holder,
};

use super::{
    Outcome,
    server::Server,
    size::Sizes,
    store::{LEASE, Store, json},
};
use crate::finding::{Bound, Rounds, finding, head, median_ms};
use crate::stopwatch::now;

const CALLS: usize = 50;
const MOST_MS: f64 = 1.0;

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    head(&format!("queues: reserve from {} empty queues", sizes.queues));
    let store = Store::new(server, "queues", sizes.payload).await?;
    let names = (0..sizes.queues).map(|number| QueueName::new(format!("queue-{number}")));
    let names = names.collect::<Result<Vec<_>, _>>()?;
    let now = store.clock.now();
    let mut sets = Vec::new();
    for queue in &names {
        let job_type = JobType::new("noop")?;
        let id = JobId::generate(now)?;
        sets.push(JobSet::from(NewJob::new(id, queue.clone(), job_type, json(sizes.payload))));
    }
    store.driver.enqueue(Enqueue::new(sets, now)).await?;
    let jobs = store.driver.reserve(request(&store, &names)?).await?.jobs;
    if jobs.len() < names.len() {
        return Err(format!("{} of {} jobs were reserved", jobs.len(), names.len()).into());
    }
    store.ack(jobs).await?;
    store.vacuum().await?;
    let [mut one, mut all] = [Rounds::default(), Rounds::default()];
    for _ in 0..sizes.rounds {
        one.push(calls(&store, &names[..1]).await?);
        all.push(calls(&store, &names).await?);
    }
    finding("one queue", &one, " ms", 2, Bound::None);
    finding(&format!("{} queues", sizes.queues), &all, " ms", 2, Bound::AtMost(MOST_MS));
    Ok(())
}

fn request(store: &Store, names: &[QueueName]) -> Outcome<Reserve> {
    let demands = names.iter().map(|queue| Demand::new(queue.clone(), 10)).collect();
    Ok(Reserve::new(demands, Holder::new("bench")?, store.clock.now(), LEASE))
}

/// The median of some calls, in milliseconds.
async fn calls(store: &Store, names: &[QueueName]) -> Outcome<f64> {
    let mut samples = Vec::new();
    for _ in 0..CALLS {
        let request = request(store, names)?;
        let began = now();
        let reserved = store.driver.reserve(request).await?;
        samples.push(began.elapsed());
        if !reserved.jobs.is_empty() {
            return Err("a queue was not empty".into());
        }
    }
    Ok(median_ms(&samples))
}
