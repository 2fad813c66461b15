//! The format in which jobs are written, from a client through a worker and back.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use taskharbor::{
    AnyDriver, Blob, BoxError, Client, Codec, Context, Decode, Encode, Exponential, Flow, Handlers,
    Job, JobId, JobResult, JobType, MessagePack, QueueName, State, WaitError, WorkerBuilder,
    testing::Harbor,
};
use taskharbor_core::NewJob;

/// Counts words. Its map has keys that JSON cannot have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Job)]
#[job(type = "count", output = BTreeMap<char, u32>)]
struct Count {
    text: String,
}

/// Takes the counts, and produces the letter that occurs most.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Job)]
#[job(type = "most", input = BTreeMap<char, u32>, output = Option<char>)]
struct Most;

/// Does both, in two steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Job)]
#[job(type = "both", output = Option<char>)]
struct Both {
    text: String,
}

async fn count(job: Count, _: Context) -> JobResult<BTreeMap<char, u32>> {
    let mut counts = BTreeMap::new();
    for letter in job.text.chars() {
        *counts.entry(letter).or_default() += 1;
    }
    Ok(counts)
}

async fn most(job: Most, cx: Context) -> JobResult<Option<char>> {
    Ok(cx.input(&job)?.into_iter().max_by_key(|(_, count)| *count).map(|(letter, _)| letter))
}

async fn both(job: Both, _: Context) -> JobResult<Flow<Option<char>>> {
    Ok(Flow::first(Count { text: job.text }).then(Most))
}

fn text() -> Count {
    Count { text: "anna".to_owned() }
}

fn counts() -> BTreeMap<char, u32> {
    BTreeMap::from([('a', 2), ('n', 2)])
}

fn harbor() -> Harbor {
    configured(|worker| worker)
}

/// Without jitter, so that a failure that is tried again would be, by the second.
fn configured(configure: impl FnOnce(WorkerBuilder) -> WorkerBuilder) -> Harbor {
    let policy = Exponential::new().jitter(0.0);
    let handlers = Handlers::new().on(count).on(most).on(both);
    Harbor::configured(handlers, |worker| configure(worker.retry(policy)))
}

/// A client that writes with this codec.
fn client(driver: &AnyDriver, codec: impl Codec) -> Client {
    #[expect(clippy::expect_used, reason = "the codecs of these tests have valid names")]
    Client::builder(driver).codec(codec).build().expect("a client")
}

/// Asserts that the job was dead-lettered at its first attempt, for a reason that says all of this.
async fn assert_dead(harbor: &Harbor, id: &JobId, says: &[&str]) {
    harbor.run_until_idle().await;
    harbor.advance(Duration::from_secs(3_600)).await;
    let record = harbor.record(id).await;
    assert_eq!(record.state, State::Dlq);
    assert_eq!((record.job.attempts, record.job.deliveries), (1, 1), "it was not tried again");
    let reason = record.reason.map(|it| it.to_string()).unwrap_or_default();
    for says in says {
        assert!(reason.contains(says), "{reason:?} does not say {says:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_plain_worker_runs_what_a_message_pack_client_enqueued() {
    let harbor = harbor();
    let packing = client(harbor.driver(), MessagePack);
    let handle = packing.enqueue(text()).await.unwrap();
    let job = harbor.record(handle.id()).await.job;
    assert_eq!(job.headers.get("th-codec"), Some("messagepack"));
    assert_eq!(&job.payload[..], b"\x81\xa4text\xa4anna");
    assert_eq!(handle.wait().await.unwrap(), counts());
}

#[tokio::test(start_paused = true)]
async fn a_json_client_reads_what_was_written_as_message_pack() {
    let harbor = harbor();
    let packing = client(harbor.driver(), MessagePack);
    let packed = packing.enqueue(text()).idempotency_key("k").await.unwrap();
    let by_id = harbor.client().handle::<Count>(packed.id().clone());
    assert_eq!(by_id.wait().await.unwrap(), counts());
    let by_key = harbor.client().enqueue(text()).idempotency_key("k").await.unwrap();
    assert!(!by_key.is_new());
    assert_eq!(by_key.wait().await.unwrap(), counts());
}

#[tokio::test(start_paused = true)]
async fn a_message_pack_client_reads_what_was_written_as_json() {
    let harbor = harbor();
    let packing = client(harbor.driver(), MessagePack);
    let plain = harbor.client().enqueue(text()).await.unwrap();
    let handle = packing.handle::<Count>(plain.id().clone());
    assert_eq!(handle.wait().await.unwrap(), counts());
}

#[tokio::test(start_paused = true)]
async fn flows_and_expansions_are_written_as_their_client_writes() {
    let harbor = harbor();
    let packing = client(harbor.driver(), MessagePack);
    let flow = packing.start(Flow::first(text()).then(Most)).await.unwrap();
    assert_eq!(flow.wait().await.unwrap(), Some('n'));
    let grown = packing.enqueue(Both { text: "otto".to_owned() }).await.unwrap();
    assert_eq!(grown.wait().await.unwrap(), Some('t'));
    for record in harbor.records().await {
        assert_eq!(record.job.headers.get("th-codec"), Some("messagepack"), "{record:?}");
    }
}

/// JSON, every byte of it turned around.
#[derive(Clone, Copy, Debug)]
struct Mirror {
    name: &'static str,
}

const MIRROR: Mirror = Mirror { name: "mirror" };

impl Codec for Mirror {
    fn name(&self) -> &str {
        self.name
    }

    fn encode(&self, value: Encode<'_>) -> Result<Vec<u8>, BoxError> {
        let mut bytes = serde_json::to_vec(&value)?;
        bytes.reverse();
        Ok(bytes)
    }

    fn decode(&self, bytes: &[u8], value: Decode<'_>) -> Result<(), BoxError> {
        let bytes: Vec<u8> = bytes.iter().rev().copied().collect();
        let mut deserializer = serde_json::Deserializer::from_slice(&bytes);
        value.from(&mut deserializer)?;
        Ok(deserializer.end()?)
    }
}

#[tokio::test(start_paused = true)]
async fn a_codec_of_the_applications_own_works_on_both_sides() {
    let harbor = configured(|worker| worker.codec(MIRROR));
    let mirroring = client(harbor.driver(), MIRROR);
    let handle = mirroring.enqueue(text()).await.unwrap();
    let job = harbor.record(handle.id()).await.job;
    assert_eq!(job.headers.get("th-codec"), Some("mirror"));
    assert_eq!(&job.payload[..], br#"}"anna":"txet"{"#);
    assert_eq!(handle.wait().await.unwrap(), counts());
    // Others are read as before.
    let plain = harbor.client().enqueue(text()).await.unwrap();
    assert_eq!(plain.wait().await.unwrap(), counts());
    let grown = mirroring.enqueue(Both { text: "otto".to_owned() }).await.unwrap();
    assert_eq!(grown.wait().await.unwrap(), Some('t'));
    let by_id = mirroring.handle::<Count>(handle.id().clone());
    assert_eq!(by_id.wait().await.unwrap(), counts());
}

#[tokio::test(start_paused = true)]
async fn a_codec_may_take_the_place_of_a_built_in_one_on_both_sides() {
    let json = Mirror { name: "json" };
    let harbor = configured(|worker| worker.codec(json));
    let mirroring = client(harbor.driver(), json);
    let handle = mirroring.enqueue(text()).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), counts());
    let by_id = mirroring.handle::<Count>(handle.id().clone());
    assert_eq!(by_id.wait().await.unwrap(), counts());
}

#[tokio::test(start_paused = true)]
async fn a_job_in_a_codec_that_the_worker_lacks_is_dead_lettered_at_once() {
    let harbor = harbor();
    let handle = client(harbor.driver(), MIRROR).enqueue(text()).await.unwrap();
    let says = ["written with codec \"mirror\", which this worker does not know"];
    assert_dead(&harbor, handle.id(), &says).await;
    let raw = harbor.client().enqueue_raw("count", b"").codec("cbor").await.unwrap();
    assert_dead(&harbor, raw.id(), &["\"cbor\""]).await;
}

#[tokio::test(start_paused = true)]
async fn an_output_in_a_codec_that_the_client_lacks_is_named() {
    let harbor = configured(|worker| worker.codec(MIRROR));
    let handle = client(harbor.driver(), MIRROR).enqueue(text()).await.unwrap();
    harbor.run_until_idle().await;
    let by_id = harbor.client().handle::<Count>(handle.id().clone());
    let error = by_id.wait().await.unwrap_err();
    assert!(matches!(&error, WaitError::UnknownCodec(name) if name == "mirror"), "{error}");
    assert!(by_id.wait_raw().await.unwrap().is_some(), "its bytes can be had all the same");
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_is_not_the_job_is_dead_lettered_by_the_name_of_its_type() {
    let harbor = harbor();
    for (payload, says) in [
        (&b"not json"[..], "expected"),
        (b"", "EOF"),
        (b"{\"text\":1}", "expected a string"),
        (b"{\"words\":\"anna\"}", "missing field `text`"),
        (b"{\"text\":\"anna\"}x", "trailing characters"),
        (b"{\"text\":\"\xff\"}", "invalid unicode"),
    ] {
        let handle = harbor.client().enqueue_raw("count", payload).await.unwrap();
        assert_dead(&harbor, handle.id(), &["json cannot read", "codec::Count", says]).await;
    }
    for (payload, says) in [
        (&b"\x81"[..], "codec::Count"),
        (b"\x81\xa4text\xa4annax", "there are bytes after the value"),
    ] {
        let packed = harbor.client().enqueue_raw("count", payload).codec("messagepack");
        let says = ["messagepack cannot read", "codec::Count", says];
        assert_dead(&harbor, packed.await.unwrap().id(), &says).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_raw_handler_gets_any_bytes_under_every_codec() {
    async fn turn_around(payload: Blob, _: Context) -> JobResult<Option<Blob>> {
        let turned: Vec<u8> = payload.iter().rev().copied().collect();
        Ok((!turned.is_empty()).then(|| turned.into()))
    }
    let harbor = Harbor::new(Handlers::new().on_raw("turn", turn_around));
    for codec in ["json", "messagepack", "unknown codec"] {
        for bytes in [&[0xff, 0x00, 0x01][..], b"{", b""] {
            let raw = harbor.client().enqueue_raw("turn", bytes).codec(codec).await.unwrap();
            let output = raw.wait_raw().await.unwrap();
            let turned: Vec<u8> = bytes.iter().rev().copied().collect();
            assert_eq!(output.as_deref().unwrap_or_default(), turned, "{codec}");
            assert_eq!(output.is_none(), bytes.is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_names_no_codec_is_read_as_json() {
    let harbor = harbor();
    let (id, now) = (JobId::new("from-elsewhere").unwrap(), harbor.now().await);
    let (queue, job_type) = (QueueName::new("default").unwrap(), JobType::new("count").unwrap());
    let job = NewJob::new(id.clone(), queue, job_type, br#"{"text":"anna"}"#);
    assert!(job.headers.is_empty());
    harbor.driver().enqueue_job(job, now).await.unwrap();
    assert_eq!(harbor.client().handle::<Count>(id).wait().await.unwrap(), counts());
}
