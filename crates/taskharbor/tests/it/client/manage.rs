//! The actions of operators through a client: on one job, on many by a filter, on a queue.

use std::time::Duration;

use taskharbor::{
    Client, Denied, Filter, Handlers, JobId, ManageError, QueueName, Requeue, State,
    testing::Harbor,
};
use tokio::time::Instant;

use super::{add_up, store, sum};

const DAY: Duration = Duration::from_secs(86_400);

fn mail() -> Filter {
    Filter::all().queue(QueueName::new("mail").unwrap())
}

async fn stored(client: &Client, count: usize, queue: &str) -> Vec<JobId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        let job = client.enqueue(sum([1])).queue(queue).delay(DAY).await.unwrap();
        ids.push(job.id().clone());
    }
    ids
}

#[tokio::test(start_paused = true)]
async fn one_job_is_run_now_cancelled_requeued_and_purged() {
    let harbor = store();
    let client = harbor.client();
    let id = &stored(client, 1, "mail").await[0];
    let job = client.job(id);
    assert_eq!(job.run_now().await.unwrap(), State::Ready);
    assert_eq!(job.set_priority(3).await.unwrap(), State::Ready);
    assert_eq!(job.inspect().await.unwrap().unwrap().job.priority, 3);
    assert_eq!(job.cancel().await.unwrap(), State::Cancelled);
    assert_eq!(job.requeue(Requeue::new()).await.unwrap(), State::Ready);
    let denied = job.purge().await.unwrap_err();
    assert!(matches!(denied, ManageError::Denied(Denied::WrongState(State::Ready))), "{denied}");
    job.cancel().await.unwrap();
    assert_eq!(job.purge().await.unwrap(), State::Cancelled);
    assert!(job.inspect().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_filter_chooses_what_is_cancelled_run_and_purged() {
    let harbor = store();
    let client = harbor.client();
    stored(client, 3, "mail").await;
    stored(client, 2, "other").await;
    assert_eq!(client.jobs(mail()).list(2).await.unwrap().len(), 2);
    assert_eq!(client.jobs(mail()).run_now().await.unwrap().done, 3);
    assert_eq!(client.jobs(mail()).run_now().await.unwrap().matched(), 0);
    assert_eq!(client.jobs(mail()).cancel().await.unwrap().done, 3);
    let purged = client.jobs(Filter::all()).purge().await.unwrap();
    assert_eq!((purged.done, purged.matched()), (3, 3));
    assert_eq!(client.jobs(Filter::all()).list(10).await.unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_dlq_is_listed_requeued_and_purged_by_error() {
    let harbor = Harbor::new(Handlers::new().on(add_up));
    let client = harbor.client();
    for _ in 0..3 {
        client.enqueue(sum([u64::MAX, 1])).await.unwrap();
    }
    harbor.run_until_idle().await;
    let too_large = || Filter::all().error("too large");
    assert_eq!(client.dlq().list(too_large(), 10).await.unwrap().len(), 3);
    let none = client.dlq().requeue(Filter::all().error("other"), Requeue::new()).await.unwrap();
    assert_eq!(none.matched(), 0);
    assert_eq!(client.dlq().requeue(too_large(), Requeue::new()).await.unwrap().done, 3);
    harbor.run_until_idle().await;
    assert_eq!(client.dlq().purge(too_large()).await.unwrap().done, 3);
    assert!(client.dlq().list(Filter::all(), 10).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_rate_paces_an_action() {
    let harbor = store();
    let client = harbor.client();
    stored(client, 21, "mail").await;
    let started = Instant::now();
    let acted = client.jobs(mail()).rate(10, Duration::from_secs(1)).cancel().await.unwrap();
    assert_eq!((acted.done, started.elapsed()), (21, Duration::from_secs(2)));
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_paused_and_resumed_by_its_name() {
    let harbor = store();
    let client = harbor.client();
    stored(client, 2, "mail").await;
    client.queue("mail").pause().await.unwrap();
    let counts = client.queue("mail").counts().await.unwrap();
    assert_eq!((counts.states.scheduled, counts.paused_since), (2, Some(harbor.now().await)));
    client.queue("mail").resume().await.unwrap();
    assert_eq!(client.queue("mail").counts().await.unwrap().paused_since, None);
    assert_eq!(client.queues().await.unwrap().len(), 1);
    let invalid = client.queue("").pause().await.unwrap_err();
    assert!(matches!(invalid, ManageError::Name(_)), "{invalid}");
}
