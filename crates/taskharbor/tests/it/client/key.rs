//! Enqueueing the same thing twice.

use taskharbor::{Handlers, JobId, KeyHold, State, testing::Harbor};

use super::{Sum, add_up, store, sum};

#[tokio::test(start_paused = true)]
async fn a_key_that_is_held_answers_the_existing_job() {
    let harbor = store();
    let first = harbor.client().enqueue(sum([1])).idempotency_key("order-7").await.unwrap();
    let second = harbor.client().enqueue(sum([2])).idempotency_key("order-7").await.unwrap();
    assert!(first.is_new());
    assert!(!second.is_new());
    assert_eq!(first.id(), second.id());
    let jobs = harbor.jobs::<Sum>().await;
    assert_eq!(jobs.len(), 1);
    assert_eq!(jobs[0].job, sum([1]), "the first one stays as it is");
}

#[tokio::test(start_paused = true)]
async fn a_key_belongs_to_its_queue() {
    let harbor = store();
    for queue in ["a", "b"] {
        let enqueue = harbor.client().enqueue(sum([1])).queue(queue).idempotency_key("k");
        assert!(enqueue.await.unwrap().is_new(), "{queue}");
    }
    let again = harbor.client().enqueue(sum([1])).queue("b").idempotency_key("k");
    assert!(!again.await.unwrap().is_new());
}

#[tokio::test(start_paused = true)]
async fn a_key_is_held_as_long_as_was_asked() {
    let harbor = Harbor::new(Handlers::new().on(add_up));
    let hour = KeyHold::For(std::time::Duration::from_secs(3_600));
    for (hold, is_new) in [
        (KeyHold::UntilPruned, false),
        (KeyHold::UntilDone, true),
        (KeyHold::UntilTerminal, true),
        (hour, false),
    ] {
        let enqueue = || {
            let enqueue = harbor.client().enqueue(sum([1]));
            enqueue.idempotency_key(format!("{hold:?}")).key_hold(hold)
        };
        let first = enqueue().await.unwrap();
        assert_eq!(first.wait().await.unwrap(), 1);
        assert_eq!(enqueue().await.unwrap().is_new(), is_new, "{hold:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_with_a_time_is_free_after_that_time_and_one_until_terminal_after_a_failure() {
    let harbor = Harbor::new(Handlers::new().on(add_up));
    let minute = std::time::Duration::from_secs(60);
    for hold in [KeyHold::For(minute), KeyHold::UntilTerminal] {
        let enqueue = || {
            let failing = harbor.client().enqueue(sum([u64::MAX, 1]));
            failing.idempotency_key(format!("{hold:?}")).key_hold(hold)
        };
        assert!(enqueue().await.unwrap().is_new());
        assert!(!enqueue().await.unwrap().is_new(), "{hold:?}");
        harbor.run_until_idle().await;
        let is_freed_by_failure = hold == KeyHold::UntilTerminal;
        assert_eq!(enqueue().await.unwrap().is_new(), is_freed_by_failure, "{hold:?}");
        harbor.advance(2 * minute).await;
        assert!(enqueue().await.unwrap().is_new(), "{hold:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_id_again_changes_nothing() {
    let harbor = store();
    let id = JobId::new("invoice:7").unwrap();
    let first = harbor.client().enqueue(sum([1])).id(id.clone()).await.unwrap();
    let second = harbor.client().enqueue(sum([2])).id(id.clone()).priority(5).await.unwrap();
    assert!(first.is_new());
    assert!(!second.is_new());
    assert_eq!((first.id(), second.id()), (&id, &id));
    assert_eq!(harbor.record(&id).await.job.priority, 0);
    assert_eq!(harbor.jobs::<Sum>().await[0].job, sum([1]));
}

#[tokio::test(start_paused = true)]
async fn both_handles_to_one_job_get_its_output() {
    let harbor = Harbor::new(Handlers::new().on(add_up));
    let first = harbor.client().enqueue(sum([20, 22])).idempotency_key("k").await.unwrap();
    let second = harbor.client().enqueue(sum([1])).idempotency_key("k").await.unwrap();
    assert_eq!(second.wait().await.unwrap(), 42);
    assert_eq!(first.wait().await.unwrap(), 42);
    assert_eq!(harbor.state(first.id()).await, State::Done);
}

#[tokio::test(start_paused = true)]
async fn the_key_holds_also_while_both_are_under_way() {
    let harbor = store();
    let enqueue = || harbor.client().enqueue(sum([1])).idempotency_key("k").into_future();
    let (first, second) = tokio::join!(enqueue(), enqueue());
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.id(), second.id());
    assert_ne!(first.is_new(), second.is_new());
}
