//! Wake-ups over a stream of events.

use std::{future::poll_fn, pin::Pin};

use axum::{
    body::{Body, HttpBody},
    http::Method,
};
use serde_json::json;
use taskharbor_core::{
    Admin, Driver,
    admin::{Action, Manage},
    wire::{WakeEvent, WatchRequest},
};

use super::{id, one_job, queue};
use crate::rig::{Rig, request};

/// An open stream.
struct Events {
    body: Body,
    text: String,
}

impl Events {
    async fn open(rig: &Rig, asked: &WatchRequest) -> Self {
        let body = Body::from(serde_json::to_vec(asked).unwrap());
        let response = rig.open(request(Method::POST, "driver/watch", body)).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let body = response.into_body();
        let mut events = Self { body, text: String::new() };
        let reaching = WakeEvent::Reaching { reaching: true, problem: None };
        assert_eq!(events.next().await, Some(reaching));
        events
    }

    /// The next block of the stream; `None` when it ends.
    async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(block);
            }
            let body = &mut self.body;
            let frame = poll_fn(|it| Pin::new(&mut *body).poll_frame(it)).await?;
            let data = frame.unwrap().into_data().unwrap();
            self.text.push_str(std::str::from_utf8(&data).unwrap());
        }
    }

    async fn next(&mut self) -> Option<WakeEvent> {
        let block = self.block().await?;
        let data = block.strip_prefix("event: wake\ndata: ").unwrap();
        Some(serde_json::from_str(data).unwrap())
    }
}

fn both() -> WatchRequest {
    WatchRequest { queues: vec![queue("mail"), queue("other")], jobs: vec![id("a"), id("b")] }
}

#[tokio::test]
async fn a_stream_tells_of_queues_and_jobs() {
    let rig = Rig::new();
    let mut events = Events::open(&rig, &both()).await;
    rig.driver.enqueue(one_job("a", rig.now())).await.unwrap()[0].as_ref().unwrap();
    assert_eq!(events.next().await, Some(WakeEvent::Queues(vec![queue("mail")])));
    let cancel = Manage::new(vec![id("a")], Action::Cancel, rig.now());
    rig.driver.manage(cancel).await.unwrap()[0].as_ref().unwrap();
    assert_eq!(events.next().await, Some(WakeEvent::Job(id("a"))));
    // The end of one job may be the end of others.
    assert_eq!(events.next().await, Some(WakeEvent::All));
}

#[tokio::test(start_paused = true)]
async fn a_stream_in_which_nothing_happens_is_kept_alive() {
    let rig = Rig::new();
    let mut events = Events::open(&rig, &both()).await;
    let before = tokio::time::Instant::now();
    assert_eq!(events.block().await.as_deref(), Some(": alive"));
    assert_eq!(before.elapsed().as_secs(), 15);
}

#[tokio::test]
async fn a_stream_ends_with_the_driver() {
    let rig = Rig::new();
    let mut events = Events::open(&rig, &both()).await;
    rig.driver.close().await.unwrap();
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn a_watch_of_nothing_or_of_too_much_is_refused() {
    let rig = Rig::new();
    let reply = rig.post("driver/watch", &json!({})).await;
    assert_eq!(reply.problem(), (400, "invalid_request".into()));
    let jobs: Vec<String> = (0..1_001).map(|it| it.to_string()).collect();
    let reply = rig.post("driver/watch", &json!({ "jobs": jobs })).await;
    assert_eq!(reply.problem(), (400, "out_of_range".into()));
}

#[tokio::test]
async fn streams_are_bounded_and_a_stream_that_is_gone_makes_room() {
    let rig = Rig::new();
    let mut open = Vec::new();
    for _ in 0..1_000 {
        open.push(Events::open(&rig, &both()).await);
    }
    let asked = serde_json::to_value(both()).unwrap();
    let reply = rig.post("driver/watch", &asked).await;
    assert_eq!(reply.problem(), (503, "too_many_streams".into()));
    open.clear();
    // The tasks of the streams notice when they run next.
    while rig
        .open(request(Method::POST, "driver/watch", Body::from(asked.to_string())))
        .await
        .status()
        != 200
    {
        tokio::task::yield_now().await;
    }
}
