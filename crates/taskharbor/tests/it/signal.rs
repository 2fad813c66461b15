//! A worker that is made quiet and stopped by signals. In real time, but waiting for events alone.

use std::{process::Command, sync::Arc, time::Duration};

use taskharbor::{AnyDriver, Client, Event, Outcome, State, Worker};
use taskharbor_memory::MemoryDriver;
use tokio::sync::mpsc;

use crate::rig::{handler, work};

fn send(signal: &str) {
    let kill = Command::new("kill").args([signal, &std::process::id().to_string()]).status();
    assert!(kill.unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_signal_makes_it_quiet_the_next_drains_and_the_last_ends_the_grace_period() {
    let driver = AnyDriver::new(MemoryDriver::new());
    let client = Client::new(&driver);
    let (event, mut events) = mpsc::unbounded_channel();
    let finish = Arc::new(tokio::sync::Notify::new());
    let finishes = Arc::clone(&finish);
    let worker = Worker::builder(&driver)
        .handlers(handler(move |job, _| {
            let finish = Arc::clone(&finishes);
            async move {
                match job.name.as_str() {
                    "polite" => finish.notified().await,
                    _ => std::future::pending().await,
                }
                Ok(Outcome::Done(1))
            }
        }))
        .queue("default", 3)
        .grace(Duration::from_secs(3_600))
        .cancel_wait(Duration::from_millis(10))
        .observer(move |it: &Event<'_>| {
            let name = match it {
                Event::Started { .. } => "started",
                Event::Quiet { .. } => "quiet",
                Event::ShuttingDown { .. } => "shutting down",
                Event::Succeeded { .. } => "succeeded",
                _ => return,
            };
            let _ = event.send(name);
        });
    let polite = client.enqueue(work("polite")).await.unwrap();
    let stubborn = client.enqueue(work("stubborn")).await.unwrap();
    let running = tokio::spawn(worker.build().unwrap().run());
    assert_eq!(events.recv().await, Some("started"));
    assert_eq!(events.recv().await, Some("started"));
    send("-USR1");
    assert_eq!(events.recv().await, Some("quiet"));
    let late = client.enqueue(work("late")).await.unwrap();
    send("-TERM");
    assert_eq!(events.recv().await, Some("shutting down"));
    finish.notify_one();
    assert_eq!(events.recv().await, Some("succeeded"));
    send("-INT");
    running.await.unwrap().unwrap();
    for (handle, state, deliveries) in
        [(polite, State::Done, 1), (stubborn, State::Ready, 1), (late, State::Ready, 0)]
    {
        let now = driver.now().await.unwrap();
        let record = taskharbor::Admin::inspect(&driver, handle.id().clone(), now).await.unwrap();
        let record = record.unwrap();
        assert_eq!((record.state, record.job.attempts), (state, 0));
        assert_eq!(record.job.deliveries, deliveries);
    }
}
