//! Removing a large flow: how long others wait meanwhile, and what counting costs before.

use taskharbor_core::{
    Admin, Driver, JobId, JobType, NewJob, QueueName,
    admin::{Action, Counts, Manage, Prune},
    driver::Enqueue,
    job::JobSet,
};

use super::{
    Outcome,
    size::Sizes,
    store::{QUEUE, Store},
};
use crate::{
    finding::{Bound, figure, head},
    stopwatch::now,
};

pub(crate) async fn run(sizes: &Sizes) -> Outcome {
    let members = sizes.flow.max(2);
    head(&format!("removal: a flow of {members} members that was cancelled"));
    let store = Store::new(sizes.payload).await?;
    let tail = cancelled_flow(&store, members).await?;
    let started = now();
    store.driver.counts(Counts::new(store.now())).await?;
    figure("counting them", millis(started.elapsed()), " ms", 2, Bound::AtMost(10.0));
    let at = store.now();
    let prune = Prune::new(1, at).cancelled_before(at);
    let driver = store.driver.clone();
    let started = now();
    let removal = tokio::spawn(async move { driver.prune(prune).await });
    let mut longest = std::time::Duration::ZERO;
    while !removal.is_finished() {
        let call = store.jobs(1)?;
        let asked = now();
        store.driver.enqueue(call).await?;
        longest = longest.max(asked.elapsed());
    }
    if removal.await?? != members || store.driver.inspect(tail, store.now()).await?.is_some() {
        return Err("the flow was not removed as a whole".into());
    }
    figure("removing them", millis(started.elapsed()), " ms", 0, Bound::None);
    figure("the longest enqueue meanwhile", millis(longest), " ms", 0, Bound::AtMost(200.0));
    store.check().await
}

/// Stores a flow whose last member waits for all others, and cancels it.
async fn cancelled_flow(store: &Store, members: usize) -> Outcome<JobId> {
    let ids = JobId::generate_many(store.now(), members)?;
    let (queue, job_type) = (QueueName::new(QUEUE)?, JobType::new("noop")?);
    let job = |id: &JobId| NewJob::new(id.clone(), queue.clone(), job_type.clone(), b"{}");
    let [parents @ .., tail] = ids.as_slice() else { return Err("no members".into()) };
    let last = job(tail).after(parents.iter().cloned());
    let jobs = parents.iter().map(job).chain([last]).collect();
    let enqueue = Enqueue::new(vec![JobSet::flow(jobs)], store.now());
    store.driver.enqueue(enqueue).await?.remove(0)?;
    let cancel = Manage::new(vec![tail.clone()], Action::CancelFlow, store.now());
    store.driver.manage(cancel).await?.remove(0)?;
    Ok(tail.clone())
}

fn millis(time: std::time::Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}
