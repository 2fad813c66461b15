//! The JSON form of flows.

use taskharbor::{Client, JobKind, MessagePack, State, flow_json as json, testing::Harbor};

use super::{Handlers, handlers};

/// The place and the words of the error that a document is met with.
fn error(text: &str) -> String {
    json::parse(text.as_bytes()).unwrap_err().to_string()
}

async fn output(text: &str) -> String {
    let harbor = Harbor::new(handlers());
    let document = json::parse(text.as_bytes()).unwrap();
    let handle = harbor.client().start_document(document).await.unwrap();
    String::from_utf8(handle.wait_raw().await.unwrap().unwrap().to_vec()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn steps_inside_one_another_run() {
    let chain = r#"{"flow": {"chain": [
        {"type": "give", "payload": 1},
        {"group": [{"type": "add", "payload": 1}, {"type": "add", "payload": 2}], "label": "both"},
        {"type": "write"}
    ]}}"#;
    assert_eq!(output(chain).await, "\"[2, 3]\"");
    let chord =
        r#"{"flow": {"chord": [{"type": "give", "payload": 4}], "then": {"type": "write"}}}"#;
    assert_eq!(output(chord).await, "\"[4]\"");
    let gather = r#"{"flow": {"chain": [
        {"gather": [{"type": "give", "payload": 4}, {"type": "give", "payload": -4}]},
        {"type": "judge"}
    ]}}"#;
    assert_eq!(output(gather).await, "\"4; dead-lettered: -4 is negative\"");
    assert_eq!(output(r#"{"flow": {"group": []}}"#).await, "[]");
}

#[tokio::test(start_paused = true)]
async fn nodes_that_name_what_they_wait_for_run() {
    let diamond = r#"{"nodes": [
        {"id": "end", "type": "write", "after": ["left", "right"]},
        {"id": "left", "type": "add", "payload": 10, "after": ["top"]},
        {"id": "right", "type": "add", "payload": 20, "after": ["top"]},
        {"id": "top", "type": "give", "payload": 1}
    ]}"#;
    assert_eq!(output(diamond).await, "\"[11, 21]\"");
    let two_ends = r#"{"nodes": [
        {"id": "b", "type": "add", "payload": 1, "after": ["a"]},
        {"id": "a", "type": "give", "payload": 1},
        {"id": "c", "type": "give", "payload": 7}
    ]}"#;
    assert_eq!(output(two_ends).await, "[2,7]");
}

#[tokio::test(start_paused = true)]
async fn a_document_carries_name_key_and_options() {
    let harbor = Harbor::new(Handlers::new());
    let text = r#"{"name": "nightly", "key": "k1", "flow": {"type": "give", "payload": {"a": [1]},
        "queue": "q", "delay_ms": 1000, "timeout_ms": 500, "max_attempts": 3, "priority": -2,
        "headers": {"tenant": "acme"}, "label": "L", "on_failure": "cancel"}}"#;
    let start = || harbor.client().start_document(json::parse(text.as_bytes()).unwrap());
    let handle = start().await.unwrap();
    assert!(!start().await.unwrap().is_new());
    let record = harbor.record(handle.id()).await;
    assert_eq!((record.state, record.kind), (State::Scheduled, JobKind::Work));
    assert_eq!(&record.job.payload[..], br#"{"a":[1]}"#);
    assert_eq!((record.job.queue.as_str(), record.job.priority), ("q", -2));
    assert_eq!(record.job.max_attempts, Some(3));
    assert_eq!(record.job.headers.get("tenant"), Some("acme"));
    assert_eq!(record.job.headers.get("th-label"), Some("L"));
    let name = handle.status().await.unwrap().name;
    assert_eq!(name.map(|it| it.to_string()).as_deref(), Some("nightly"));
}

#[tokio::test(start_paused = true)]
async fn a_client_of_another_format_reads_what_it_started() {
    let harbor = Harbor::new(handlers());
    let client = Client::builder(harbor.driver()).codec(MessagePack).build().unwrap();
    let text =
        br#"{"flow": {"group": [{"type": "give", "payload": 1}, {"type": "give", "payload": 2}]}}"#;
    let handle = client.start_document(json::parse(text).unwrap()).await.unwrap();
    assert_eq!(&handle.wait_raw().await.unwrap().unwrap()[..], b"[1,2]");
    let other = harbor.client().flow_handle::<Vec<i64>>(handle.id().clone());
    assert_eq!(other.wait().await.unwrap(), [1, 2]);
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    for (text, expected) in [
        ("{", "$: this is not JSON"),
        ("[]", "$: expected an object"),
        ("{}", "$: the field \"flow\" is missing"),
        (r#"{"flow": {"type": "a"}, "nodes": []}"#, "$: expected either a flow or nodes"),
        (r#"{"flow": {"group": [{"typ": "a"}]}}"#, "$.flow.group[0]: there is no field \"typ\""),
        (r#"{"flow": {"group": [{}]}}"#, "$.flow.group[0]: the field \"type\" is missing"),
        (r#"{"flow": {"group": {}}}"#, "$.flow.group: expected a list of steps"),
        (r#"{"flow": {"group": [], "chain": []}}"#, "$.flow: expected only one of"),
        (r#"{"flow": {"chord": []}}"#, "$.flow: the field \"then\" is missing"),
        (r#"{"flow": {"type": "a", "priority": 99999}}"#, "$.flow.priority: priority is a number"),
        (r#"{"flow": {"type": "a", "max_attempts": 0}}"#, "$.flow.max_attempts: max_attempts is"),
        (r#"{"flow": {"type": "a", "delay_ms": -1}}"#, "$.flow.delay_ms: expected a whole number"),
        (r#"{"flow": {"type": "a", "headers": {"x": 1}}}"#, "$.flow.headers.x: expected a text"),
        (r#"{"flow": {"type": "a", "on_failure": "x"}}"#, "$.flow.on_failure: expected hold"),
        (r#"{"nodes": []}"#, "$.nodes: a flow has at least one node"),
        (r#"{"nodes": [{"type": "a"}]}"#, "$.nodes[0]: the field \"id\" is missing"),
        (
            r#"{"nodes": [{"id": "a", "type": "a", "after": ["b"]}]}"#,
            "$.nodes[0].after[0]: there is no node \"b\"",
        ),
        (
            r#"{"nodes": [{"id": "a", "type": "a"}, {"id": "a", "type": "a"}]}"#,
            "$.nodes[1].id: a node \"a\" was named before",
        ),
        (
            r#"{"nodes": [{"id": "a", "type": "a"}, {"id": "b", "type": "a", "after": ["a", "a"]}]}"#,
            "$.nodes[1].after[1]: \"a\" is named twice",
        ),
        (
            r#"{"nodes": [{"id": "x", "type": "a", "after": ["a"]}, {"id": "a", "type": "a", "after": ["b"]},
                {"id": "b", "type": "a", "after": ["a"]}]}"#,
            "$.nodes[1]: node \"a\" waits, through others, for itself",
        ),
    ] {
        let error = error(text);
        assert!(error.starts_with(expected), "{text}: {error}");
    }
}

#[test]
fn what_is_too_deep_or_too_large_is_refused() {
    let deep = format!("{{\"flow\": {}{}}}", "{\"group\": [".repeat(60), "]}".repeat(60));
    assert!(error(&deep).contains("steps inside one another"));
    let nodes: Vec<_> =
        (0..200_001).map(|n| format!("{{\"id\":\"{n}\",\"type\":\"a\"}}")).collect();
    let large = format!("{{\"nodes\": [{}]}}", nodes.join(","));
    assert!(error(&large).starts_with("$: more than 200000 jobs"));
}
