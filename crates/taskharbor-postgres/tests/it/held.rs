//! Transactions that have stored a job and stay open: only callers that store the same job wait.

use std::time::Duration;

use taskharbor_core::{
    Admin, Driver, JobId, NewJob,
    admin::{Action, Manage, Prune, Requeue},
    driver::{Enqueue, Transaction},
    job::KeyHold,
    name::IdempotencyKey,
};
use taskharbor_postgres::{HeldElsewhere, PostgresDriver};
use tokio::{task::JoinSet, time::timeout};

use crate::{
    fixture::{ack, fail, id, job, lease, noon, settle, store, store_at},
    harness::store::{self, Store},
};

const CALLERS: usize = 12;
const DEADLINE: Duration = Duration::from_secs(5);
/// For calls that wait for no other transaction.
const AT_ONCE: Duration = Duration::from_millis(2_500);

/// Stores a job, and leaves the transaction open while other callers store the same one.
async fn all_others_go_on(with_job: impl Fn(usize) -> NewJob) {
    let ours: Store = store::named().await;
    let driver = ours.another_with(|it| it.pool_size(8).call_deadline(DEADLINE)).await;
    store(&driver, vec![job("running")]).await;
    let running = lease(&driver, "q", 1).await;
    let mut sql = ours.sql().await;
    let open = sql.transaction().await.unwrap();
    let request = Enqueue::new(vec![with_job(0).into()], noon());
    driver.tx(&open).enqueue(request).await.unwrap()[0].as_ref().unwrap();

    let mut callers = JoinSet::new();
    for number in 1..=CALLERS {
        let request = Enqueue::new(vec![with_job(number).into()], noon());
        let driver: PostgresDriver = driver.clone();
        callers.spawn(async move { driver.enqueue(request).await });
    }
    until_one_waits(&ours).await;
    let others = async {
        let generated = job(JobId::generate(noon()).unwrap().as_str());
        store_at(&driver, generated, noon()).await;
        settle(&driver, &running, ack()).await;
        assert_eq!(lease(&driver, "q", 1).await.len(), 1);
    };
    timeout(AT_ONCE, others).await.expect("a call that waits for nothing was answered");

    let first = callers.join_next().await.unwrap().unwrap().unwrap_err();
    assert!(matches!(HeldElsewhere::of(&first), Some(HeldElsewhere::Stored(_))), "{first:?}");
    assert!(first.to_string().contains("find it in pg_stat_activity"), "{first}");
    open.commit().await.unwrap();
    while let Some(answer) = callers.join_next().await {
        match answer.unwrap() {
            Ok(answers) => assert!(answers[0].is_ok(), "{answers:?}"),
            // It waited for too long.
            Err(error) => assert!(HeldElsewhere::of(&error).is_some(), "{error:?}"),
        }
    }
}

/// Until the server has a call wait for another transaction.
pub(crate) async fn until_one_waits(store: &Store) {
    let sql = store.sql().await;
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
                   AND application_name = current_setting('application_name')";
    while sql.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_forgotten_transaction_with_a_key_stalls_only_callers_of_that_key() {
    let key = IdempotencyKey::new("K").unwrap();
    all_others_go_on(|number| job(format!("k{number}")).idempotency_key(key.clone())).await;
}

#[tokio::test]
async fn a_forgotten_transaction_with_an_id_stalls_only_callers_of_that_id() {
    all_others_go_on(|_| job("order-42")).await;
}

#[tokio::test]
async fn a_requeue_waits_for_an_open_transaction_with_its_key_for_a_moment_only() {
    let ours = store::named().await;
    let key = IdempotencyKey::new("K").unwrap();
    let keyed = |id| job(id).idempotency_key(key.clone()).key_hold(KeyHold::UntilTerminal);
    store(&ours, vec![keyed("keyed"), job("other")]).await;
    settle(&ours, &lease(&ours, "q", 2).await, fail()).await;
    let mut sql = ours.sql().await;
    let open = sql.transaction().await.unwrap();
    let request = Enqueue::new(vec![keyed("new").into()], noon());
    ours.another().await.tx(&open).enqueue(request).await.unwrap()[0].as_ref().unwrap();

    // It holds up all other calls that requeue, purge or prune for as long as it waits.
    let requeue = |text| Manage::new(vec![id(text)], Action::Requeue(Requeue::new()), noon());
    let answer = timeout(AT_ONCE, ours.manage(requeue("keyed"))).await.expect("it gave up soon");
    let error = answer.unwrap_err();
    assert!(matches!(HeldElsewhere::of(&error), Some(HeldElsewhere::Locked(_))), "{error:?}");
    assert!(ours.manage(requeue("other")).await.unwrap()[0].is_ok());
    ours.prune(Prune::new(1, noon()).done_before(noon())).await.unwrap();
    open.rollback().await.unwrap();
    assert!(ours.manage(requeue("keyed")).await.unwrap()[0].is_ok());
}
