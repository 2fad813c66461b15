//! Payloads and outputs: opaque bytes.

use std::collections::BTreeSet;

use taskharbor_core::{
    Blob, Driver, NewJob, State,
    driver::{OutputEntry, Transition},
    error::Rejected,
    job::JobSet,
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{
        T0, ack, at, child, done_with, fail, id, job, list, release, requeue, retry, settlement,
    },
};

group! {
    payload {
        a_payload_is_read_back_byte_for_byte ["JOB-2"]
        a_payload_survives_the_whole_life_of_its_job ["JOB-2"]
        a_payload_of_the_greatest_size_is_stored ["JOB-2"]
        a_larger_payload_rejects_its_set ["JOB-2" "ENQ-2"]
        payloads_of_all_lengths_around_powers_of_two_are_stored ["JOB-2"]
        outputs_of_one_call_are_not_mixed_up ["JOB-2" "SET-1"]
    }
    flows {
        an_output_is_read_back_byte_for_byte ["JOB-2" "SET-1"]
    }
}

/// A job with this payload.
fn carrying(text: &str, payload: &[u8]) -> NewJob {
    let mut job = job(text);
    job.payload = Blob::from(payload);
    job
}

/// Bytes that some encoding, language or number type would spoil.
fn hostile() -> Vec<Vec<u8>> {
    let all: Vec<u8> = (0..=255).collect();
    let reversed = all.iter().rev().copied().collect();
    let texts: [&[u8]; 12] = [
        b"",
        b"\0",
        b"\0\0\0\0",
        b"a\0b",
        b"\xff\xfe\xfd",
        b"\xed\xa0\x80 \xc0\x80 \xf4\x90\x80\x80",
        b"\\x00 \\u0000 \\ ' \" ` ; -- $1 ?1 :a {{}} %s",
        b"'); DROP TABLE th_jobs; --",
        b" \t\r\n leading and trailing \r\n\t ",
        b"{\"i\":130775545883395173,\"n\":9007199254740993,\"u\":18446744073709551615}",
        b"{\"f\":1e400,\"z\":-0.0,\"d\":0.1000000000000000055511151231257827,\"b\":1.0}",
        b"{\"b\":1,\"a\":2,\"a\":3, \"e\":\"\\u0000\\ud800\"}",
    ];
    let texts = texts.iter().map(|bytes| bytes.to_vec());
    texts.chain([all, reversed]).collect()
}

async fn a_payload_is_read_back_byte_for_byte(t: DriverUnderTest) {
    for (n, payload) in hostile().iter().enumerate() {
        t.put(carrying(&n.to_string(), payload), T0).await;
        let leased = t.take_the(&n.to_string(), T0).await;
        assert_eq!(leased.job.payload.as_ref(), payload, "granted");
        let record = t.record(&n.to_string(), T0).await;
        assert_eq!(record.job.payload.as_ref(), payload, "inspected");
    }
}

async fn an_output_is_read_back_byte_for_byte(t: DriverUnderTest) {
    for (n, output) in hostile().into_iter().enumerate() {
        let (parent, text) = (format!("{n} parent"), n.to_string());
        t.put_flow([job(&parent), child(&text, &[&parent])], T0).await;
        let output = Some(Blob::from(output));
        t.run(&parent, Transition::Ack { output: output.clone() }, T0).await;
        assert_eq!(t.record(&parent, T0).await.output, output);
        let done = OutputEntry::Done(output);
        assert_eq!(t.inputs(&text).await, [list(1), done.clone()]);
        assert_eq!(t.output(&parent).await, [done]);
        t.run(&text, ack(), T0).await;
    }
}

async fn a_payload_survives_the_whole_life_of_its_job(t: DriverUnderTest) {
    let payload: Vec<u8> = (0..=255).collect();
    t.put(carrying("a", &payload), T0).await;
    let mut granted = vec![
        t.run("a", retry(Some(at(1)), T0), T0).await,
        t.run("a", release(None), at(1)).await,
        t.take_the("a", at(1)).await,
        t.run("a", fail(at(100)), at(100)).await,
    ];
    t.act("a", requeue(), at(100)).await;
    granted.push(t.run("a", ack(), at(100)).await);
    for leased in granted {
        assert_eq!(leased.job.payload.as_ref(), payload);
    }
    assert_eq!(t.record("a", at(100)).await.job.payload.as_ref(), payload);
}

async fn a_payload_of_the_greatest_size_is_stored(t: DriverUnderTest) {
    let max = t.driver.limits().payload_bytes();
    let payload: Vec<u8> = (0..max).map(|n| n.to_le_bytes()[n % 2]).collect();
    t.put(carrying("a", &payload), T0).await;
    // Compared without printing them.
    let leased = t.take_the("a", T0).await;
    assert!(leased.job.payload.as_ref() == payload, "the payload changed");
}

async fn a_larger_payload_rejects_its_set(t: DriverUnderTest) {
    let max = t.driver.limits().payload_bytes();
    let bytes = max + 1;
    let large = carrying("large", &vec![b'x'; bytes]);
    let sets = vec![
        JobSet::from(job("a")),
        JobSet::plain(vec![job("b"), large.clone(), job("c")]),
        JobSet::flow(vec![large, child("d", &["large"])]),
        JobSet::from(job("e")),
    ];
    let answers = t.enqueue_sets(sets, T0).await;
    let rejected = Rejected::PayloadTooLarge { job: id("large"), bytes, max };
    assert_eq!(answers[1], Err(rejected.clone()));
    assert_eq!(answers[2], Err(rejected));
    assert_eq!(t.take_order(T0).await, ["a", "e"]);
    assert_eq!(t.snapshot(T0).await.records.len(), 2);
}

async fn payloads_of_all_lengths_around_powers_of_two_are_stored(t: DriverUnderTest) {
    let lengths = (0..18).flat_map(|power| [(1_usize << power) - 1, 1 << power]);
    let payload = |length: usize| vec![length.to_le_bytes()[0]; length];
    let lengths: BTreeSet<_> = lengths.collect();
    let jobs = lengths.iter().map(|length| carrying(&format!("{length}"), &payload(*length)));
    let answers = t.put_all(jobs, T0).await;
    assert_eq!(answers.len(), lengths.len());
    for length in lengths {
        let record = t.record(&format!("{length}"), T0).await;
        assert_eq!(record.job.payload.as_ref(), payload(length));
    }
}

async fn outputs_of_one_call_are_not_mixed_up(t: DriverUnderTest) {
    t.put_all((0..50).map(|n| job(&n.to_string())), T0).await;
    let jobs = t.take_many(50, T0).await;
    let items = jobs.iter().rev().map(|leased| {
        let output = (leased.job.id.as_str() != "7").then(|| leased.job.payload.clone());
        settlement(leased, Transition::Ack { output })
    });
    t.settle_all(items.collect(), T0).await;
    for n in 0..50 {
        let text = n.to_string();
        let record = t.record(&text, T0).await;
        assert_eq!(record.state, State::Done);
        let expected = if n == 7 { None } else { Some(Blob::from(text.as_bytes())) };
        assert_eq!(record.output, expected);
    }
    assert_eq!(t.output("49").await, [done_with("49")]);
}
