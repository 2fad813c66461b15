//! Removing flows that are too large for one transaction.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
};

use taskharbor_core::{
    Admin, Driver, NewJob, State,
    admin::{Action, Counts, Filter, List, Manage, Prune},
    driver::{Enqueue, Enqueued},
    job::{JobSet, KeyHold},
    name::IdempotencyKey,
};
use taskharbor_sqlite::{SqliteDriver, rusqlite::Connection};

use crate::{
    fixture::{NOON, id, job, put, state},
    temp_dir::TempDir,
};

/// Several steps.
const MEMBERS: usize = 2_500;

fn key() -> IdempotencyKey {
    IdempotencyKey::new("order 7").unwrap()
}

/// A store with a large flow that was cancelled, and a job beside it.
async fn with_cancelled_flow(temp: &TempDir) -> SqliteDriver {
    let driver = SqliteDriver::open_with(temp.config()).await.unwrap();
    put(&driver, "beside").await;
    let ids = (1..MEMBERS).map(|number| format!("member {number}"));
    let members: Vec<NewJob> = ids.map(|text| job(&text)).collect();
    let tail = job("tail").after(members.iter().map(|member| member.id.clone()));
    let tail = tail.idempotency_key(key()).key_hold(KeyHold::UntilPruned);
    let flow = JobSet::flow(members.into_iter().chain([tail]).collect());
    driver.enqueue(Enqueue::new(vec![flow], NOON)).await.unwrap().remove(0).unwrap();
    let cancel = Manage::new(vec![id("tail")], Action::CancelFlow, NOON);
    let answer = driver.manage(cancel).await.unwrap().remove(0);
    assert_eq!(answer, Ok(State::Cancelled));
    driver
}

fn prune_all() -> Prune {
    Prune::new(10, NOON).cancelled_before(NOON)
}

/// How many records are in the file, seen or not.
fn records(temp: &TempDir) -> usize {
    let conn = Connection::open(temp.file()).unwrap();
    let records: i64 = conn.query_row("SELECT count(*) FROM th_job", [], |row| row.get(0)).unwrap();
    usize::try_from(records).unwrap()
}

/// Begins to prune, and stops when the flow is gone: no step after the first has been asked for.
async fn interrupted_prune(driver: &SqliteDriver) {
    let mut prune = pin!(driver.prune(prune_all()));
    poll_fn(|cx| {
        assert!(prune.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    while driver.flow(id("tail"), NOON).await.unwrap().is_some() {}
}

#[tokio::test]
async fn no_caller_sees_a_part_of_a_flow_that_is_being_removed() {
    let temp = TempDir::new();
    let driver = with_cancelled_flow(&temp).await;
    interrupted_prune(&driver).await;
    assert_eq!(records(&temp), MEMBERS + 1, "the members are deleted later");
    for member in ["member 1", "member 2000", "tail"] {
        assert_eq!(state(&driver, member).await, None);
    }
    let counts = driver.counts(Counts::new(NOON)).await.unwrap();
    assert_eq!(counts.len(), 1);
    assert_eq!((counts[0].states.ready, counts[0].states.cancelled), (1, 0));
    let listed = driver.list(List::new(Filter::default(), 100, NOON)).await.unwrap().items;
    assert_eq!(listed.iter().map(|it| it.id.clone()).collect::<Vec<_>>(), [id("beside")]);
    assert_eq!(driver.export(None, 100).await.unwrap().items.len(), 1);
    let conn = Connection::open(temp.file()).unwrap();
    let seen: i64 = conn.query_row("SELECT count(*) FROM th_jobs", [], |row| row.get(0)).unwrap();
    assert_eq!(seen, 1);
    assert_eq!(driver.check().await.unwrap(), []);
}

#[tokio::test]
async fn ids_and_keys_of_a_flow_that_is_being_removed_are_free() {
    let temp = TempDir::new();
    let driver = with_cancelled_flow(&temp).await;
    interrupted_prune(&driver).await;
    put(&driver, "member 7").await;
    let keyed = job("other").idempotency_key(key());
    let flow = JobSet::flow(vec![job("member 8"), job("tail").after([id("member 8")])]);
    let sets = vec![JobSet::from(keyed), flow];
    let answers = driver.enqueue(Enqueue::new(sets, NOON)).await.unwrap();
    let inserted = |text| Enqueued::Inserted(id(text));
    assert_eq!(
        answers,
        [Ok(vec![inserted("other")]), Ok(vec![inserted("member 8"), inserted("tail")])]
    );
    assert_eq!(driver.check().await.unwrap(), []);
    assert_eq!(driver.prune(prune_all()).await.unwrap(), 0);
    assert_eq!(records(&temp), 5, "beside, member 7, other, member 8 and tail");
    assert_eq!(state(&driver, "member 7").await, Some(State::Ready));
    assert_eq!(driver.check().await.unwrap(), []);
}

#[tokio::test]
async fn an_interrupted_removal_is_continued() {
    let temp = TempDir::new();
    let driver = with_cancelled_flow(&temp).await;
    interrupted_prune(&driver).await;
    driver.close().await.unwrap();
    let driver = SqliteDriver::open_with(temp.config()).await.unwrap();
    assert_eq!(records(&temp), MEMBERS + 1);
    assert_eq!(driver.prune(prune_all()).await.unwrap(), 0);
    assert_eq!(records(&temp), 1);
    assert_eq!(driver.check().await.unwrap(), []);
}

#[tokio::test]
async fn a_large_flow_is_removed_as_a_whole() {
    let temp = TempDir::new();
    let driver = with_cancelled_flow(&temp).await;
    assert_eq!(driver.prune(prune_all()).await.unwrap(), MEMBERS, "the limit splits no flow");
    assert_eq!(records(&temp), 1);
    assert_eq!(driver.prune(prune_all()).await.unwrap(), 0);
    assert_eq!(driver.check().await.unwrap(), []);
}

#[tokio::test]
async fn a_large_flow_is_purged_as_a_whole() {
    let temp = TempDir::new();
    let driver = with_cancelled_flow(&temp).await;
    let purge = Manage::new(vec![id("tail")], Action::PurgeFlow, NOON);
    assert_eq!(driver.manage(purge).await.unwrap(), [Ok(State::Cancelled)]);
    assert_eq!(records(&temp), 1);
    assert_eq!(driver.check().await.unwrap(), []);
}
