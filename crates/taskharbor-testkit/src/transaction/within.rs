//! Enqueueing in the application's transaction.

use taskharbor::{
    AnyDriver, Client, Context, EnqueueError, Flow, Handle, JobResult, Outcome, State,
};

use super::app::{After, App, after, handler, soon, work};
use crate::transaction::Library;

pub async fn a_job_is_there_when_the_transaction_commits_and_not_before<L: Library>() {
    let app = App::<L>::new().await;
    let mut db = app.db().await;
    let mut open = L::begin(&mut db).await.unwrap();
    let handle = app.client.enqueue(work("a")).within(L::tx(&app.pg, &mut open)).await.unwrap();
    assert!(handle.is_new());
    assert_eq!(app.state(handle.id()).await, None);
    L::commit(open).await.unwrap();
    assert_eq!(app.state(handle.id()).await, Some(State::Ready));

    let running = app.worker(handler(|_, _| async { Ok(Outcome::Done(7)) })).build().unwrap();
    let running = running.start();
    assert_eq!(soon(handle.wait()).await.unwrap(), 7);
    running.shutdown().await.unwrap();
    app.check().await;
}

pub async fn a_job_is_not_there_when_the_transaction_is_rolled_back_or_dropped<L: Library>() {
    let app = App::<L>::new().await;
    let mut db = app.db().await;
    for explicitly in [true, false] {
        let mut open = L::begin(&mut db).await.unwrap();
        app.client.enqueue(work("a")).within(L::tx(&app.pg, &mut open)).await.unwrap();
        L::execute(&mut open, "INSERT INTO app_order VALUES (1)").await.unwrap();
        match explicitly {
            true => L::rollback(open).await.unwrap(),
            false => drop(open),
        }
        // What comes next on the connection comes after that.
        let mut next = L::begin(&mut db).await.unwrap();
        L::execute(&mut next, "SELECT 1").await.unwrap();
        L::rollback(next).await.unwrap();
        assert_eq!((app.count("app_order").await, app.count("th_job").await), (0, 0));
        assert_eq!((app.count("th_live").await, app.count("th_key").await), (0, 0));
    }
}

pub async fn many_jobs_raw_ones_and_flows_go_into_one_transaction<L: Library>() {
    let app = App::<L>::new().await;
    let (client, pg) = (&app.client, &app.pg);
    let mut db = app.db().await;
    let mut open = L::begin(&mut db).await.unwrap();
    let many = ["a", "b", "c"].map(work);
    let many = client.enqueue_many(many).within(L::tx(pg, &mut open)).await.unwrap();
    let raw = client.enqueue_raw("raw", b"\xff\x00").header("tenant", "blue");
    let raw = raw.within(L::tx(pg, &mut open)).await.unwrap();
    let flow = Flow::first(work("first")).then(After {});
    let flow = client.start(flow).name("steps").within(L::tx(pg, &mut open)).await.unwrap();
    assert_eq!(app.count("th_job").await, 0);
    L::commit(open).await.unwrap();
    assert_eq!(app.count("th_job").await, 6);
    app.check().await;

    let handlers = handler(|_, _| async { Ok(Outcome::Done(4)) }).on(after);
    let handlers = handlers.on_raw("raw", |payload, cx: Context| async move {
        assert_eq!(cx.headers().get("tenant"), Some("blue"));
        JobResult::Ok(Some(payload))
    });
    let running = app.worker(handlers).build().unwrap().start();
    for handle in &many {
        assert_eq!(soon(Handle::wait(handle)).await.unwrap(), 4);
    }
    assert_eq!(&soon(raw.wait_raw()).await.unwrap().unwrap()[..], b"\xff\x00");
    assert_eq!(soon(flow.wait()).await.unwrap(), 5);
    running.shutdown().await.unwrap();
    app.check().await;
}

pub async fn the_jobs_and_what_the_application_writes_are_one<L: Library>() {
    let app = App::<L>::new().await;
    let mut db = app.db().await;
    // The second time an order of the first stands in the way, after both jobs were stored.
    for (first, second, commits) in [(1, 2, true), (3, 1, false)] {
        let mut open = L::begin(&mut db).await.unwrap();
        for (name, order) in [("a", first), ("b", second)] {
            app.client.enqueue(work(name)).within(L::tx(&app.pg, &mut open)).await.unwrap();
            let insert = format!("INSERT INTO app_order VALUES ({order})");
            let inserted = L::execute(&mut open, &insert).await;
            assert_eq!(inserted.is_ok(), commits || name == "a", "{inserted:?}");
        }
        if commits {
            L::commit(open).await.unwrap();
        }
    }
    assert_eq!((app.count("app_order").await, app.count("th_job").await), (2, 2));
    app.check().await;
}

pub async fn a_transaction_of_another_driver_is_refused_and_stays_as_it_was<L: Library>() {
    let (app, other) = (App::<L>::new().await, App::<L>::new().await);
    // Another handle on the same store is another driver too: who made it has to say so.
    let neighbour = app.store.another().await;
    let mut db = app.db().await;
    let mut open = L::begin(&mut db).await.unwrap();
    L::execute(&mut open, "INSERT INTO app_order VALUES (1)").await.unwrap();
    for wrong in [&other.pg, &neighbour] {
        let refused = app.client.enqueue(work("a")).within(L::tx(wrong, &mut open)).await;
        assert!(matches!(refused, Err(EnqueueError::OtherStore)), "{refused:?}");
        let refused = app.client.start(work("a")).within(L::tx(wrong, &mut open)).await;
        assert!(matches!(refused, Err(EnqueueError::OtherStore)), "{refused:?}");
    }
    let client = Client::new(&AnyDriver::new(neighbour.clone()));
    client.enqueue(work("b")).within(L::tx(&neighbour, &mut open)).await.unwrap();
    L::commit(open).await.unwrap();
    assert_eq!((app.count("app_order").await, app.count("th_job").await), (1, 1));
    assert_eq!(other.count("th_job").await, 0);
}
