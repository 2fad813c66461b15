//! Jobs that meet others with their key or id: the answers, the waits, and the state of the transaction.

use taskharbor::{DriverError, EnqueueError, Flow, Handle, JobId};

use super::app::{App, soon, work};
use crate::transaction::Library;

async fn keyed<L: Library>(
    app: &App<L>,
    open: &mut L::Open<'_>,
    key: &str,
) -> Result<Handle<u64>, EnqueueError> {
    app.client.enqueue(work("a")).idempotency_key(key).within(L::tx(&app.pg, open)).await
}

pub async fn a_job_that_is_there_already_does_not_break_the_transaction<L: Library>() {
    let app = App::<L>::new().await;
    let id = JobId::new("the-one").unwrap();
    let first = app.client.enqueue(work("a")).id(id.clone()).idempotency_key("k").await.unwrap();
    let flow = app.client.start(Flow::first(work("b"))).idempotency_key("f").await.unwrap();
    let mut db = app.db().await;
    let mut open = L::begin(&mut db).await.unwrap();
    L::execute(&mut open, "INSERT INTO app_order VALUES (1)").await.unwrap();

    let same_key = keyed(&app, &mut open, "k").await.unwrap();
    assert_eq!((same_key.id(), same_key.is_new()), (first.id(), false));
    let same_id = app.client.enqueue(work("c")).id(id);
    let same_id = same_id.within(L::tx(&app.pg, &mut open)).await.unwrap();
    assert_eq!((same_id.id(), same_id.is_new()), (first.id(), false));
    let same_flow = app.client.start(Flow::first(work("d"))).idempotency_key("f");
    let same_flow = same_flow.within(L::tx(&app.pg, &mut open)).await.unwrap();
    assert_eq!((same_flow.id(), same_flow.is_new()), (flow.id(), false));

    // A transaction also sees its own jobs, before other sessions do.
    let mine = keyed(&app, &mut open, "mine").await.unwrap();
    let again = keyed(&app, &mut open, "mine").await.unwrap();
    assert_eq!((mine.is_new(), again.is_new(), again.id()), (true, false, mine.id()));

    L::execute(&mut open, "INSERT INTO app_order VALUES (2)").await.unwrap();
    L::commit(open).await.unwrap();
    assert_eq!((app.count("app_order").await, app.count("th_job").await), (2, 3));
    app.check().await;
}

/// What the second of two transactions is answered that enqueue with the same key, the first of which ends so.
async fn second<L: Library>(app: &App<L>, first_commits: bool) -> (Handle<u64>, Handle<u64>) {
    let (mut db, mut other_db) = (app.db().await, app.db().await);
    let mut one = L::begin(&mut db).await.unwrap();
    let mut two = L::begin(&mut other_db).await.unwrap();
    let first = keyed(app, &mut one, "k").await.unwrap();
    let second = async {
        let handle = keyed(app, &mut two, "k").await.unwrap();
        L::execute(&mut two, "INSERT INTO app_order VALUES (2)").await.unwrap();
        L::commit(two).await.unwrap();
        app.log.note("second");
        handle
    };
    let end_first = async {
        app.until_a_session_waits_for_a_lock().await;
        assert_eq!(app.log.count("second"), 0);
        match first_commits {
            true => L::commit(one).await.unwrap(),
            false => L::rollback(one).await.unwrap(),
        }
    };
    let (second, ()) = soon(async { tokio::join!(second, end_first) }).await;
    assert_eq!((app.count("app_order").await, app.count("th_job").await), (1, 1));
    app.check().await;
    (first, second)
}

pub async fn the_second_with_a_key_waits_and_is_the_same_job_if_the_first_commits<L: Library>() {
    let (first, second) = second(&App::<L>::new().await, true).await;
    assert_eq!((second.is_new(), second.id()), (false, first.id()));
}

pub async fn the_second_with_a_key_waits_and_is_new_if_the_first_is_rolled_back<L: Library>() {
    let app = App::<L>::new().await;
    let (first, second) = second(&app, false).await;
    assert!(second.is_new());
    assert_ne!(second.id(), first.id());
    assert!(app.record(second.id()).await.is_some());
}

const REPEATABLE_READ: &str = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ";

pub async fn at_repeatable_read_what_was_stored_since_it_began_is_a_conflict_to_be_tried_again<
    L: Library,
>() {
    let app = App::<L>::new().await;
    let mut db = app.db().await;
    let before = app.client.enqueue(work("a")).idempotency_key("before").await.unwrap();
    for kind in ["key", "id", "flow"] {
        let mut open = L::begin(&mut db).await.unwrap();
        L::execute(&mut open, REPEATABLE_READ).await.unwrap();
        // What stood there before the first statement is seen, and what is new can be stored.
        let seen = keyed(&app, &mut open, "before").await.unwrap();
        assert_eq!((seen.id(), seen.is_new()), (before.id(), false));
        assert!(keyed(&app, &mut open, "new").await.unwrap().is_new());

        let id = JobId::new("since").unwrap();
        let since = app.client.enqueue(work("a")).idempotency_key(kind);
        since.id(JobId::new(format!("{id}-{kind}")).unwrap()).await.unwrap();
        let conflict = match kind {
            "key" => keyed(&app, &mut open, kind).await,
            "id" => {
                let same = app.client.enqueue(work("a"));
                let same = same.id(JobId::new(format!("{id}-{kind}")).unwrap());
                same.within(L::tx(&app.pg, &mut open)).await
            }
            _ => {
                let same = app.client.start(Flow::first(work("a"))).idempotency_key(kind);
                same.within(L::tx(&app.pg, &mut open)).await
            }
        };
        let Err(EnqueueError::Store(error @ DriverError::Unavailable(_))) = conflict else {
            panic!("{kind}: {conflict:?}");
        };
        assert!(format!("{error:?}").contains("40001"), "{kind}: {error:?}");
        // As after any such conflict, the transaction is of no more use.
        L::execute(&mut open, "SELECT 1").await.unwrap_err();
        L::rollback(open).await.unwrap();
    }
    let mut again = L::begin(&mut db).await.unwrap();
    L::execute(&mut again, REPEATABLE_READ).await.unwrap();
    assert!(!keyed(&app, &mut again, "key").await.unwrap().is_new());
    L::commit(again).await.unwrap();
    assert_eq!(app.count("th_job").await, 4);
    app.check().await;
}

pub async fn an_error_of_the_server_says_nothing_of_what_was_enqueued<L: Library>() {
    let app = App::<L>::new().await;
    let mut db = app.db().await;
    let mut open = L::begin(&mut db).await.unwrap();
    // A transaction that is broken already refuses everything.
    L::execute(&mut open, "SELECT 1/0").await.unwrap_err();
    let job = app.client.enqueue(work("canary")).idempotency_key("canary");
    let error = job.within(L::tx(&app.pg, &mut open)).await.unwrap_err();
    let said = format!("{error} {error:?}");
    assert!(said.contains("25P02") && !said.contains("canary"), "{said}");

    // The schema is not there: the message says what to run.
    L::rollback(open).await.unwrap();
    let mut open = L::begin(&mut db).await.unwrap();
    let rename = format!("ALTER SCHEMA {} RENAME TO elsewhere", app.store.schema());
    L::execute(&mut open, &rename).await.unwrap();
    let error = app.client.enqueue(work("a")).within(L::tx(&app.pg, &mut open)).await.unwrap_err();
    assert!(error.to_string().contains("run the migration"), "{error}");
    L::rollback(open).await.unwrap();
}
