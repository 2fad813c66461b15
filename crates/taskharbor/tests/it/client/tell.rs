//! The events for observers of a client.

use std::sync::{Arc, Mutex};

use taskharbor::{Client, Counters, Event, Flow, HeaderError};

use super::{carry, store, sum};

/// Every [`Event::Enqueued`], as a line of text.
type Lines = Arc<Mutex<Vec<String>>>;

fn observed(driver: &taskharbor::AnyDriver) -> (Result<Client, HeaderError>, Lines) {
    let lines = Lines::default();
    let writer = Arc::clone(&lines);
    let write = move |event: &Event<'_>| {
        if let Event::Enqueued { id, job_type, queue, is_new, .. } = event
            && let Ok(mut lines) = writer.lock()
        {
            lines.push(format!("{id} {job_type} {queue} {is_new}"));
        }
    };
    (Client::builder(driver).observer(write).build(), lines)
}

#[tokio::test(start_paused = true)]
async fn observers_learn_what_is_enqueued_and_whether_it_is_new() {
    let harbor = store();
    let (client, lines) = observed(harbor.driver());
    let client = client.unwrap();
    let plain = client.enqueue(sum([1])).await.unwrap();
    let keyed = client.enqueue(carry(1)).queue("heavy").idempotency_key("k").await.unwrap();
    client.enqueue(carry(2)).queue("heavy").idempotency_key("k").await.unwrap();
    let (plain, keyed) = (plain.id(), keyed.id());
    let expected = [
        format!("{plain} sum default true"),
        format!("{keyed} carry heavy true"),
        format!("{keyed} carry heavy false"),
    ];
    assert_eq!(*lines.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn each_job_of_many_and_of_a_flow_is_told() {
    let harbor = store();
    let (client, lines) = observed(harbor.driver());
    let client = client.unwrap();
    let many = client.enqueue_many([sum([1]), sum([2])]).await.unwrap();
    let flow = client.start(Flow::first(carry(1)).then(carry(2))).await.unwrap();
    let lines = lines.lock().unwrap();
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[0], format!("{} sum default true", many[0].id()));
    assert_eq!(lines[1], format!("{} sum default true", many[1].id()));
    assert!(lines[2].ends_with(" carry default true"), "{}", lines[2]);
    assert_eq!(lines[3], format!("{} carry default true", flow.id()));
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_not_told() {
    let harbor = store();
    let (client, lines) = observed(harbor.driver());
    client.unwrap().enqueue(sum([1])).max_attempts(0).await.unwrap_err();
    assert!(lines.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_does_not_keep_a_job_from_being_enqueued() {
    let harbor = store();
    let counters = Counters::new();
    let client = Client::builder(harbor.driver())
        .observer(|_: &Event<'_>| panic!("an observer's own mistake"))
        .observer(counters.clone())
        .build()
        .unwrap();
    assert!(client.enqueue(sum([1])).await.unwrap().is_new());
    assert_eq!(counters.read().enqueued, 1);
}

#[tokio::test(start_paused = true)]
async fn observers_learn_of_every_call_to_the_store() {
    let harbor = store();
    let lines = Lines::default();
    let writer = Arc::clone(&lines);
    let counters = Counters::new();
    let write = move |event: &Event<'_>| {
        if let Event::Called { operation, items, error, .. } = event {
            let error = error.map_or(String::new(), |error| format!(" {error}"));
            writer.lock().unwrap().push(format!("{operation} {items}{error}"));
        }
    };
    let client = Client::builder(harbor.driver()).observer(write).observer(counters.clone());
    let client = client.build().unwrap();
    let told = || std::mem::take(&mut *lines.lock().unwrap());
    client.enqueue(sum([1])).await.unwrap();
    client.enqueue(sum([1])).idempotency_key("k").await.unwrap();
    client.enqueue_many([sum([1]), sum([2]), sum([3])]).await.unwrap();
    assert_eq!(told(), ["enqueue 1", "enqueue 1", "enqueue 3"]);
    let flow = client.start(Flow::group([sum([1]), sum([2])])).await.unwrap();
    assert_eq!(told(), ["enqueue 3"]);
    flow.status().await.unwrap();
    flow.tree(10).await.unwrap();
    assert_eq!(
        told(),
        ["inspect_flow 1", "inspect_flow 1", "list 0", "inspect 1", "inspect 1", "inspect 1"]
    );
    flow.cancel().await.unwrap();
    assert!(flow.wait_raw().await.is_err());
    assert_eq!(told(), ["manage 1", "outputs 1"]);
    assert_eq!((counters.read().calls, counters.read().failed_calls), (12, 0));
    taskharbor::Driver::close(harbor.driver()).await.unwrap();
    client.enqueue(sum([1])).await.unwrap_err();
    assert_eq!(told(), ["enqueue 1 the driver is closed"]);
    assert_eq!(counters.read().failed_calls, 1);
}
