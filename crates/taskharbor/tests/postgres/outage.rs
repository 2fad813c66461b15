//! Servers that go away under clients and workers: cut down, demoted, full, or with each connection cut.

use std::{sync::Arc, time::Duration};

use taskharbor::{Client, ConnectError, Driver, JobId, WorkerError, connect, connect_within};

use crate::{
    harness::server::{Server, Stop},
    workload::{
        Chore, HELD, Ledger, Producer, all_done, config, open, sql, still_working, terminate,
        until, worker,
    },
};

const SECOND: Duration = Duration::from_secs(1);
/// How soon work goes on once the server is back.
const SOON: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_job_is_lost_when_the_server_is_cut_down_again_and_again() {
    let server = Server::start_with("fsync = on");
    let driver = open(config(&server.url())).await;
    let ledger = Arc::<Ledger>::default();
    let workers = [(); 2].map(|()| worker(&driver, &ledger).build().unwrap().start());
    let producer = Producer::start(&driver, 5);
    for round in 0..4 {
        let before = ledger.done();
        until("work has begun", SOON, async || ledger.done() >= before + 50).await;
        server.stop(Stop::Immediate);
        server.start_again();
        let done = ledger.done();
        let after = until("work goes on", SOON, async || ledger.done() >= done + 20).await;
        println!("round {round}: work went on {after:?} after the server was back");
    }
    let acknowledged = producer.stop().await;
    all_done(&driver, &ledger, &acknowledged, 3 * SOON).await;
    println!("{} jobs, {} begun again", acknowledged.len(), ledger.repeated());
    // At most what both workers had in their hands each time.
    assert!(ledger.repeated() <= 4 * 16, "{}", ledger.repeated());
    assert_eq!(*ledger.hopeless.lock().unwrap(), [""; 0]);
    still_working(&workers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_back_as_a_standby_is_waited_for() {
    let server = Server::start();
    let driver = open(config(&server.url()).application_name("workload")).await;
    let elsewhere = open(config(&server.url()).application_name("elsewhere")).await;
    let ledger = Arc::<Ledger>::default();
    // Without wake-ups, it would take a minute until work goes on.
    let builder = worker(&driver, &ledger).poll(60 * SECOND).lease(300 * SECOND);
    let worker = builder.build().unwrap();
    let workers = [worker.start()];
    let client = Client::new(&elsewhere);
    let chore = |name: &str| Chore { name: name.to_owned(), millis: 1 };
    client.enqueue(chore("before")).await.unwrap();
    until("the first is done", SOON, async || ledger.done() == 1).await;
    let held = JobId::new(HELD).unwrap();
    client.enqueue(chore(HELD)).id(held.clone()).await.unwrap();
    until("the second has begun", SOON, async || ledger.begun(HELD) == 1).await;

    server.demote();
    let refused = client.enqueue(chore("meanwhile")).await.unwrap_err();
    println!("refused with {refused:?}");
    assert!(refused.to_string().contains("the store is unavailable"), "{refused}");
    let refused = async || !ledger.errors.lock().unwrap().is_empty();
    ledger.finish.notify_one();
    until("the worker has noticed", SOON, refused).await;
    server.promote();

    let listening = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'workload' \
                     AND query LIKE '%LISTEN%'";
    let look = sql(&server.url()).await;
    let after = until("it listens again", 2 * SOON, async || {
        look.query_one(listening, &[]).await.unwrap().get::<_, i64>(0) == 1
    });
    println!("listening {:?} after the promotion", after.await);
    client.enqueue(chore("after")).await.unwrap();
    until("the last is done", SOON, async || ledger.begun("after") == 1).await;
    all_done(&driver, &ledger, &[held], SOON).await;
    assert_eq!(ledger.repeated(), 0, "the outcome was kept until the server took it");
    assert_eq!(*ledger.hopeless.lock().unwrap(), [""; 0]);
    still_working(&workers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cutting_every_connection_loses_no_job_and_no_lease() {
    let server = Server::start();
    let driver = open(config(&server.url()).application_name("workload")).await;
    let ledger = Arc::<Ledger>::default();
    let build = || worker(&driver, &ledger).lease(4 * SECOND).queue("long", 4).build().unwrap();
    let workers = [build().start(), build().start()];
    let client = Client::new(&driver);
    let mut jobs = Vec::new();
    for number in 0..6 {
        let id = JobId::new(format!("long-{number}")).unwrap();
        let chore = Chore { name: id.as_str().to_owned(), millis: 9_000 };
        client.enqueue(chore).queue("long").id(id.clone()).await.unwrap();
        jobs.push(id);
    }
    let producer = Producer::start(&driver, 5);
    until("work has begun", SOON, async || ledger.done() > 20).await;
    let killer = sql(&server.url()).await;
    for _ in 0..6 {
        let done = ledger.done();
        let cut = terminate(&killer, "workload").await;
        let after = until("work goes on", SOON, async || ledger.done() > done + 20).await;
        println!("work went on {after:?} after {cut} connections were cut");
        tokio::time::sleep(SECOND).await;
    }
    jobs.extend(producer.stop().await);
    all_done(&driver, &ledger, &jobs, 3 * SOON).await;
    println!("{} jobs, {} begun again", jobs.len(), ledger.repeated());
    assert_eq!(*ledger.lost.lock().unwrap(), [""; 0], "no lease had to be lost");
    assert_eq!(ledger.repeated(), 0, "no outcome was lost either");
    still_working(&workers).await;

    // Wake-ups come back: without them, it would take up to a second.
    let listening = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'workload' \
                     AND query LIKE '%LISTEN%'";
    until("it listens again", SOON, async || {
        killer.query_one(listening, &[]).await.unwrap().get::<_, i64>(0) == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_room_for_more_connections_is_waited_for() {
    let server = Server::start_with("max_connections = 20\nsuperuser_reserved_connections = 0");
    let driver = open(config(&server.url()).application_name("workload")).await;
    let ledger = Arc::<Ledger>::default();
    let workers = [worker(&driver, &ledger).build().unwrap().start()];
    let producer = Producer::start(&driver, 5);
    until("work has begun", SOON, async || ledger.done() > 20).await;
    let killer = sql(&server.url()).await;
    let mut others = Vec::new();
    // All room is taken, also that of the driver's own connections, as soon as those are cut.
    until("there is no room", SOON, async || {
        terminate(&killer, "workload").await;
        while let Ok((client, connection)) =
            tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await
        {
            tokio::spawn(connection);
            others.push(client);
        }
        let left = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'workload'";
        killer.query_one(left, &[]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
    let refused = async || !ledger.errors.lock().unwrap().is_empty();
    until("the worker has noticed", SOON, refused).await;
    still_working(&workers).await;
    let done = ledger.done();
    drop(others);
    let after = until("work goes on", SOON, async || ledger.done() > done + 20).await;
    println!("work went on {after:?} after there was room");
    let acknowledged = producer.stop().await;
    all_done(&driver, &ledger, &acknowledged, 3 * SOON).await;
    assert_eq!(*ledger.hopeless.lock().unwrap(), [""; 0]);
    still_working(&workers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_hang_hold_up_neither_heartbeats_nor_callers_for_long() {
    let server = Server::start();
    let deadline = 2 * SECOND;
    let driver = open(config(&server.url()).pool_size(1).call_deadline(deadline)).await;
    let ledger = Arc::<Ledger>::default();
    let builder = worker(&driver, &ledger).lease(3 * SECOND).queue("long", 4);
    let workers = [builder.build().unwrap().start()];
    let client = Client::new(&driver);
    let mut jobs = Vec::new();
    for (name, queue, millis) in
        [("long", "long", 9_000), ("short-1", "default", 300), ("short-2", "default", 600)]
    {
        let id = JobId::new(name).unwrap();
        let chore = Chore { name: name.to_owned(), millis };
        client.enqueue(chore).queue(queue).id(id.clone()).await.unwrap();
        jobs.push(id);
    }
    until("all have begun", SOON, async || jobs.iter().all(|id| ledger.begun(id.as_str()) == 1))
        .await;
    // A session locks the short jobs and leaves its transaction open, so their outcomes wait.
    let other = sql(&server.url()).await;
    let hold = "BEGIN; SELECT h.seq FROM taskharbor.th_live h JOIN taskharbor.th_job j USING (seq) \
                WHERE j.id LIKE 'short%' FOR UPDATE OF h";
    other.batch_execute(hold).await.unwrap();
    let start = tokio::time::Instant::now();
    let mut slowest = Duration::ZERO;
    while start.elapsed() < 6 * SECOND {
        let begun = tokio::time::Instant::now();
        let _ = client.enqueue(Chore { name: "more".to_owned(), millis: 1 }).await;
        slowest = slowest.max(begun.elapsed());
        tokio::time::sleep(SECOND / 10).await;
    }
    println!("the slowest call took {slowest:?}");
    assert!(slowest < 2 * deadline, "{slowest:?}");
    other.batch_execute("ROLLBACK").await.unwrap();
    all_done(&driver, &ledger, &jobs, 2 * SOON).await;
    assert_eq!(ledger.begun("long"), 1);
    assert!(!ledger.lost.lock().unwrap().contains(&"long".to_owned()));
    still_working(&workers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_yet_is_waited_for() {
    let server = Server::start();
    server.stop(Stop::Immediate);
    let unavailable = |error: &ConnectError| {
        assert!(matches!(error, ConnectError::Unavailable { .. }), "{error}");
    };
    unavailable(&connect(&server.url()).await.unwrap_err());
    let began = tokio::time::Instant::now();
    unavailable(&connect_within(&server.url(), SECOND).await.unwrap_err());
    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());

    let url = server.url();
    let connecting = tokio::spawn(async move { connect_within(&url, SOON).await });
    tokio::task::block_in_place(|| server.start_again());
    let driver = connecting.await.unwrap().unwrap();
    driver.migrate().await.unwrap();

    // What waiting does not cure is not waited for.
    let began = tokio::time::Instant::now();
    let error = connect_within("postgres://localhost/?no_such_setting=1", SOON).await.unwrap_err();
    assert!(matches!(error, ConnectError::Config { .. }), "{error}");
    assert!(began.elapsed() < SECOND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_worker_notices_within_a_second_that_its_driver_was_closed() {
    let server = Server::start();
    let driver = open(config(&server.url())).await;
    let ledger = Arc::<Ledger>::default();
    // No heartbeat, poll or wake-up comes within that second by itself.
    let builder = worker(&driver, &ledger).lease(600 * SECOND).poll(600 * SECOND);
    let running = builder.build().unwrap().start();
    let client = Client::new(&driver);
    let jobs = (0..8).map(|_| Chore { name: HELD.to_owned(), millis: 0 });
    client.enqueue_many(jobs).await.unwrap();
    until("all slots are taken", SOON, async || ledger.begun(HELD) == 8).await;
    driver.close().await.unwrap();
    let ended = tokio::time::timeout(SECOND, running.ended()).await;
    assert!(matches!(ended, Ok(Err(WorkerError::Closed))), "{ended:?}");
}
