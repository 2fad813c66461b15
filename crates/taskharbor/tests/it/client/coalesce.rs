//! Concurrent enqueues share calls to the store, and an invalid job fails only its own enqueue.

use std::{future::Future, pin::Pin};

use taskharbor::{Admin, Client, DriverError, EnqueueError, Handle, JobId, Timestamp};
use taskharbor_core::{
    driver::{Enqueue, Limits},
    error::{InvalidRequest, Rejected},
};

use super::{
    Carry, carry,
    gate::{Gate, soon, waits},
};

type Enqueueing<'a> = Pin<Box<dyn Future<Output = Result<Handle<()>, EnqueueError>> + Send + 'a>>;

/// An enqueue that has got as far as it can: its call is at the gate, or it waits for another's.
async fn begun(client: &Client, job: Carry) -> Enqueueing<'_> {
    let mut enqueueing = client.enqueue(job).into_future();
    assert!(waits(&mut enqueueing).await, "it is answered already");
    enqueueing
}

async fn begin_each(
    client: &Client,
    loads: impl IntoIterator<Item = usize>,
) -> Vec<Enqueueing<'_>> {
    let mut all = Vec::new();
    for bytes in loads {
        all.push(begun(client, carry(bytes)).await);
    }
    all
}

/// The payload of a job that some driver takes offence at.
const GUILTY: usize = 13;

fn is_guilty(request: &Enqueue) -> bool {
    let mut jobs = request.sets.iter().flat_map(|set| &set.jobs);
    let guilty = format!("{{\"load\":\"{}\"}}", "x".repeat(GUILTY));
    jobs.any(|job| job.payload[..] == *guilty.as_bytes())
}

#[tokio::test]
async fn a_lone_enqueue_makes_exactly_one_call_at_once() {
    let (gate, client) = Gate::holding_one();
    // Its call is at the gate after a single poll: nothing is waited for before it.
    let lone = begun(&client, carry(1)).await;
    assert_eq!(gate.calls(), [1]);
    gate.release();
    assert!(lone.await.unwrap().is_new());
    assert_eq!(gate.calls(), [1]);
}

#[tokio::test]
async fn enqueues_one_after_another_make_a_call_each() {
    let gate = Gate::new();
    let client = gate.client();
    for _ in 0..3 {
        client.enqueue(carry(1)).await.unwrap();
    }
    assert_eq!(gate.calls(), [1, 1, 1]);
}

#[tokio::test]
async fn enqueues_during_a_call_are_sent_together_in_the_next() {
    let (gate, client) = Gate::holding_one();
    let first = begun(&client, carry(0)).await;
    // Clones of a client share their calls.
    let clone = client.clone();
    let mut others = begin_each(&client, 1..=50).await;
    others.extend(begin_each(&clone, 51..=100).await);
    assert_eq!(gate.calls(), [1]);
    gate.release();
    let mut ids = vec![first.await.unwrap().id().clone()];
    for other in others {
        let handle = other.await.unwrap();
        assert!(handle.is_new());
        ids.push(handle.id().clone());
    }
    assert_eq!(gate.calls(), [1, 100]);
    assert_eq!(gate.stored().await.unwrap(), 101);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 101);
}

#[tokio::test]
async fn each_caller_gets_the_handle_of_its_own_job() {
    let (gate, client) = Gate::holding_one();
    let mut all = begin_each(&client, 0..20).await;
    gate.release();
    for (bytes, enqueueing) in all.drain(..).enumerate() {
        let id = enqueueing.await.unwrap().id().clone();
        let record = gate.driver().inspect(id, Timestamp::MAX).await;
        let payload = record.unwrap().unwrap().job.payload;
        assert_eq!(serde_json::from_slice::<Carry>(&payload).unwrap(), carry(bytes));
    }
}

#[tokio::test]
async fn a_call_carries_a_thousand_jobs_at_most() {
    let (gate, client) = Gate::holding_one();
    let all = begin_each(&client, std::iter::repeat_n(1, 2_502)).await;
    gate.release();
    for enqueueing in all {
        enqueueing.await.unwrap();
    }
    assert_eq!(gate.calls(), [1, 1_000, 1_000, 501]);
}

#[tokio::test]
async fn a_call_that_is_large_enough_gathers_no_more() {
    let (gate, client) = Gate::holding_one();
    let large = Limits::DEFAULT_PAYLOAD_BYTES - 100;
    let all = begin_each(&client, std::iter::repeat_n(large, 21)).await;
    gate.release();
    for enqueueing in all {
        enqueueing.await.unwrap();
    }
    // Nine of nearly a mebibyte each are the first to reach eight.
    assert_eq!(gate.calls(), [1, 9, 9, 2]);
}

#[tokio::test]
async fn a_job_that_is_too_large_fails_alone() {
    let (gate, client) = Gate::holding_one();
    let first = begun(&client, carry(1)).await;
    let before = begin_each(&client, [1, 2]).await;
    let large = begun(&client, carry(Limits::DEFAULT_PAYLOAD_BYTES)).await;
    let after = begin_each(&client, [3, 4]).await;
    gate.release();
    first.await.unwrap();
    let error = large.await.unwrap_err();
    assert!(matches!(error, EnqueueError::Rejected(Rejected::PayloadTooLarge { .. })), "{error}");
    for other in before.into_iter().chain(after) {
        other.await.unwrap();
    }
    assert_eq!(gate.calls(), [1, 5]);
    assert_eq!(gate.stored().await.unwrap(), 5);
}

#[tokio::test]
async fn an_unavailable_store_is_an_error_for_each_caller() {
    for error in [DriverError::unavailable("the network is down"), DriverError::Closed] {
        let (gate, client) = Gate::holding_one();
        let (text, asked) = (error.to_string(), error.clone());
        gate.fail(move |request| (request.sets.len() > 1).then(|| asked.clone()));
        let first = begun(&client, carry(1)).await;
        let others = begin_each(&client, 2..=4).await;
        gate.release();
        first.await.unwrap();
        for other in others {
            let EnqueueError::Store(error) = other.await.unwrap_err() else { panic!("{text}") };
            assert_eq!(error.to_string(), text);
        }
        assert_eq!(gate.calls(), [1, 3], "nothing is sent again");
        assert_eq!(gate.stored().await.unwrap(), 1);
    }
}

#[tokio::test]
async fn a_call_that_one_job_spoils_is_made_again_for_each() {
    let invalid = InvalidRequest::OutOfRange { what: "size".into(), value: 2, min: 0, max: 1 };
    for error in [DriverError::backend("no such collation"), invalid.into()] {
        let (gate, client) = Gate::holding_one();
        let (text, asked) = (error.to_string(), error.clone());
        gate.fail(move |request| is_guilty(request).then(|| asked.clone()));
        let first = begun(&client, carry(1)).await;
        let others = begin_each(&client, [2, GUILTY, 3]).await;
        gate.release();
        first.await.unwrap();
        for (other, is_guilty) in others.into_iter().zip([false, true, false]) {
            let answer = other.await.map(|handle| handle.is_new()).map_err(|it| it.to_string());
            assert_eq!(answer, if is_guilty { Err(text.clone()) } else { Ok(true) });
        }
        assert_eq!(gate.calls(), [1, 3, 1, 1, 1]);
        assert_eq!(gate.stored().await.unwrap(), 3);
    }
}

#[tokio::test]
async fn the_first_callers_failure_is_its_own() {
    let (gate, client) = Gate::holding_one();
    gate.fail(|request| is_guilty(request).then(|| DriverError::unavailable("not for you")));
    let first = begun(&client, carry(GUILTY)).await;
    let others = begin_each(&client, 1..=3).await;
    gate.release();
    assert!(matches!(first.await, Err(EnqueueError::Store(DriverError::Unavailable(_)))));
    for other in others {
        other.await.unwrap();
    }
    assert_eq!(gate.calls(), [1, 3]);
}

#[tokio::test]
async fn a_first_caller_that_gives_up_strands_no_other() {
    let (gate, client) = Gate::holding_one();
    let first = begun(&client, carry(1)).await;
    let others = begin_each(&client, 2..=4).await;
    drop(first);
    // Its call may be gone with it or go on; either way the gate is free now.
    gate.release();
    for mut other in others {
        assert!(soon(&mut other).await.expect("it is not stranded").unwrap().is_new());
    }
    assert_eq!(gate.calls(), [1, 3]);
    client.enqueue(carry(5)).await.unwrap();
    assert_eq!(gate.calls(), [1, 3, 1]);
}

#[tokio::test]
async fn a_caller_that_gives_up_while_waiting_does_not_disturb_the_others() {
    let (gate, client) = Gate::holding_one();
    let first = begun(&client, carry(1)).await;
    let mut others = begin_each(&client, 2..=6).await;
    drop(others.remove(2));
    drop(others.remove(0));
    gate.release();
    first.await.unwrap();
    for other in others {
        other.await.unwrap();
    }
    assert_eq!(gate.calls(), [1, 3], "a job whose caller no longer waits is not sent");
}

#[tokio::test]
async fn a_caller_that_gives_up_while_its_job_is_sent_does_not_disturb_the_others() {
    let (gate, client) = Gate::holding_one();
    gate.hold(1);
    let first = begun(&client, carry(1)).await;
    let mut others = begin_each(&client, 2..=4).await;
    gate.release();
    first.await.unwrap();
    gate.arrived(2).await;
    drop(others.remove(1));
    gate.release();
    for other in others {
        other.await.unwrap();
    }
    assert_eq!(gate.calls(), [1, 3]);
    assert_eq!(gate.stored().await.unwrap(), 4);
}

#[tokio::test]
async fn when_all_who_waited_have_given_up_the_next_goes_at_once() {
    let (gate, client) = Gate::holding_one();
    let first = begun(&client, carry(1)).await;
    drop(begin_each(&client, 2..=4).await);
    gate.release();
    first.await.unwrap();
    client.enqueue(carry(5)).await.unwrap();
    assert_eq!(gate.calls(), [1, 1]);
}

#[tokio::test]
async fn a_caller_that_is_not_polled_strands_no_other() {
    let (gate, client) = Gate::holding_one();
    let first = begun(&client, carry(1)).await;
    gate.release();
    // As in a branch of `select!` that enqueues while another enqueue is kept for later.
    let mut other = client.enqueue(carry(2)).into_future();
    let answer = soon(&mut other).await.expect("it does not wait for one who is not polled");
    assert!(answer.unwrap().is_new());
    first.await.unwrap();
}

#[tokio::test]
async fn jobs_with_a_key_or_an_id_go_alone() {
    let (gate, client) = Gate::holding_one();
    let first = begun(&client, carry(1)).await;
    let mut waiting = begun(&client, carry(2)).await;
    client.enqueue(carry(3)).idempotency_key("k").await.unwrap();
    client.enqueue(carry(4)).id(JobId::new("mine").unwrap()).await.unwrap();
    assert_eq!(gate.calls(), [1, 1, 1]);
    assert!(waits(&mut waiting).await);
    gate.release();
    first.await.unwrap();
    waiting.await.unwrap();
    assert_eq!(gate.calls(), [1, 1, 1, 1]);
}

#[tokio::test]
async fn a_driver_that_panics_strands_no_caller() {
    let (gate, client) = Gate::holding_one();
    gate.fail(|request| {
        assert!(request.sets.len() == 1, "this driver cannot count");
        None
    });
    let first = begun(&client, carry(1)).await;
    let others = begin_each(&client, 2..=3).await;
    gate.release();
    first.await.unwrap();
    for mut other in others {
        assert!(soon(&mut other).await.expect("it is not stranded").is_err());
    }
    client.enqueue(carry(4)).await.unwrap();
}
