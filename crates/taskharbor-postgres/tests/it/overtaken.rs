//! Calls that wait for an open transaction, and find that it has changed what they are about.

use std::time::Duration;

use taskharbor_core::{
    Admin, Driver,
    admin::{Action, Manage},
    driver::{Settle, Settled, Settlement, Transaction, Transition},
    error::{Denied, Refusal},
    flow::Expansion,
};
use tokio::time::timeout;

use crate::{
    fixture::{LEASE, ack, after, id, job, lease, noon, reserve, store, tokens},
    harness::store::named,
    held::until_one_waits,
};

/// Longer than a call takes that does not wait, and shorter than the transaction stays open.
const WAIT_LIMIT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_job_that_became_a_flow_meanwhile_is_not_purged_as_a_single_one() {
    let on = named().await;
    store(&on, vec![job("a")]).await;
    let (name, token) = tokens(&lease(&on, "q", 1).await).remove(0);
    let mut sql = on.sql().await;
    let open = sql.transaction().await.unwrap();
    let expand = Transition::Expand(Expansion::new(vec![job("b")]));
    let settle = Settle::new(vec![Settlement::new(name, token, expand)], noon());
    on.driver().tx(&open).settle(settle).await.unwrap()[0].clone().unwrap();

    let driver = on.driver().clone();
    let purge = Manage::new(vec![id("a")], Action::Purge, noon());
    let purge = tokio::spawn(async move { driver.manage(purge).await.unwrap().remove(0) });
    until_one_waits(&on).await;
    open.commit().await.unwrap();
    let answer = timeout(WAIT_LIMIT, purge).await.unwrap().unwrap();
    assert_eq!(answer, Err(Denied::InFlow(id("a"))));
    assert_eq!(on.check().await.unwrap(), []);
}

#[tokio::test]
async fn a_late_holder_is_refused_at_once_while_the_next_one_acks_in_a_transaction() {
    let on = named().await;
    store(&on, vec![job("a")]).await;
    let (name, late) = tokens(&lease(&on, "q", 1).await).remove(0);
    let now = after(LEASE);
    let (_, token) = tokens(&on.reserve(reserve(1, now, LEASE)).await.unwrap().jobs).remove(0);
    let mut sql = on.sql().await;
    let open = sql.transaction().await.unwrap();
    let settle = |token| Settle::new(vec![Settlement::new(name.clone(), token, ack())], now);
    let applied = on.driver().tx(&open).settle(settle(token)).await.unwrap().remove(0);
    assert_eq!(applied, Ok(Settled::Applied));

    let answer = timeout(WAIT_LIMIT, on.settle(settle(late))).await.unwrap().unwrap().remove(0);
    assert_eq!(answer, Err(Refusal::LeaseMismatch));
    open.commit().await.unwrap();
    assert_eq!(on.check().await.unwrap(), []);
}
