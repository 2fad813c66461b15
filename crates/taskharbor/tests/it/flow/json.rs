//! The JSON form of flows.

use taskharbor::{
    Blob, Client, Context, JobKind, JobResult, MessagePack, State, flow_json as json,
    testing::Harbor,
};

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
        (r#"{"flow": {"group": [{"typ": "a"}]}}"#, "$.flow.group[0]: unknown field \"typ\""),
        (r#"{"flow": {"group": [{}]}}"#, "$.flow.group[0]: the field \"type\" is missing"),
        (r#"{"flow": {"group": {}}}"#, "$.flow.group: expected a list of steps"),
        (r#"{"flow": {"group": [], "chain": []}}"#, "$.flow: expected only one of"),
        (r#"{"flow": {"chord": []}}"#, "$.flow: the field \"then\" is missing"),
        (r#"{"flow": {"type": "a", "priority": 99999}}"#, "$.flow.priority: priority is a number"),
        (r#"{"flow": {"type": "a", "max_attempts": 0}}"#, "$.flow.max_attempts: max_attempts is"),
        (r#"{"flow": {"type": "a", "delay_ms": -1}}"#, "$.flow.delay_ms: expected a whole number"),
        (r#"{"flow": {"type": "a", "headers": {"x": 1}}}"#, "$.flow.headers.x: expected a text"),
        (r#"{"flow": {"type": "a", "on_failure": "x"}}"#, "$.flow.on_failure: expected block"),
        (r#"{"key": "a", "key": "b", "flow": {"type": "a"}}"#, "$.key: duplicate field"),
        (
            r#"{"flow": {"group": [{"type": "a"}, {"type": "a", "payload": {"x": 1, "x": 2}}]}}"#,
            "$.flow.group[1].payload.x: duplicate field",
        ),
        (r#"{"flow": {"group": [{"type": ""}]}}"#, "$.flow.group[0].type: job type"),
        (r#"{"flow": {"type": "a", "queue": ""}}"#, "$.flow.queue: queue name"),
        (r#"{"flow": {"type": "a", "label": "\u0000"}}"#, "$.flow.label: the value of header"),
        (r#"{"flow": {"group": [], "label": "\u0000"}}"#, "$.flow.label: the value of header"),
        (
            r#"{"flow": {"type": "a", "headers": {"th-x": "1"}}}"#,
            "$.flow.headers.th-x: header name",
        ),
        (r#"{"flow": {"type": "a", "timeout_ms": 0}}"#, "$.flow.timeout_ms: timeout_ms is"),
        (
            r#"{"flow": {"type": "a", "delay_ms": 999999999999999}}"#,
            "$.flow.delay_ms: the delay ends after",
        ),
        (r#"{"name": "", "flow": {"type": "a"}}"#, "$.name: flow name"),
        (r#"{"key": "", "flow": {"type": "a"}}"#, "$.key: idempotency key"),
        (
            r#"{"flow": {"type": "a", "on_failure_job": {"group": []}}}"#,
            "$.flow.on_failure_job: unknown field \"group\"",
        ),
        (
            r#"{"nodes": [{"id": "a", "type": "a", "on_failure_job": {"type": "b"}}]}"#,
            "$.nodes[0]: unknown field \"on_failure_job\"",
        ),
        (r#"{"nodes": []}"#, "$.nodes: the list is empty: a flow has at least one node"),
        (r#"{"nodes": [{"type": "a"}]}"#, "$.nodes[0]: the field \"id\" is missing"),
        (
            r#"{"nodes": [{"id": "a", "type": "a", "after": ["b"]}]}"#,
            "$.nodes[0].after[0]: unknown node \"b\"",
        ),
        (
            r#"{"nodes": [{"id": "a", "type": "a"}, {"id": "a", "type": "a"}]}"#,
            "$.nodes[1].id: duplicate node id \"a\"",
        ),
        (
            r#"{"nodes": [{"id": "a", "type": "a"}, {"id": "b", "type": "a", "after": ["a", "a"]}]}"#,
            "$.nodes[1].after[1]: \"a\" is named twice",
        ),
        (
            r#"{"nodes": [{"id": "x", "type": "a", "after": ["a"]}, {"id": "a", "type": "a", "after": ["b"]},
                {"id": "b", "type": "a", "after": ["a"]}]}"#,
            "$.nodes[1]: node \"a\" waits for itself through other nodes",
        ),
    ] {
        let error = error(text);
        assert!(error.starts_with(expected), "{text}: {error}");
    }
}

#[test]
fn what_is_too_deep_or_too_large_is_refused() {
    let deep = format!("{{\"flow\": {}{}}}", "{\"group\": [".repeat(60), "]}".repeat(60));
    assert!(error(&deep).contains("nested steps: use fewer levels"), "{}", error(&deep));
    let nodes: Vec<_> =
        (0..200_001).map(|n| format!("{{\"id\":\"{n}\",\"type\":\"a\"}}")).collect();
    let large = format!("{{\"nodes\": [{}]}}", nodes.join(","));
    assert!(error(&large).starts_with("$: more than 200000 jobs"));
}

#[test]
fn a_field_that_is_null_is_as_good_as_none() {
    let text = r#"{"name": null, "key": null, "nodes": null, "on_failure_job": null, "flow": {"chain": [
        {"type": "a", "payload": null, "queue": null, "delay_ms": null, "timeout_ms": null,
         "max_attempts": null, "priority": null, "headers": null, "label": null,
         "on_failure": null, "on_failure_job": null}], "label": null}}"#;
    assert_eq!(json::parse(text.as_bytes()).unwrap().flow.len(), 1);
    let nodes = r#"{"flow": null, "nodes": [{"id": "a", "type": "a", "after": null}]}"#;
    assert_eq!(json::parse(nodes.as_bytes()).unwrap().flow.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_wait_for_the_same_share_a_join() {
    let node = |id: &str, n, after: &str| {
        format!(r#"{{"id": "{id}{n}", "type": "give", "payload": {n}, "after": [{after}]}}"#)
    };
    let names: Vec<_> = (0..1_001).map(|n| format!("\"a{n}\"")).collect();
    let (firsts, names) = ((0..1_001).map(|n| node("a", n, "")), names.join(","));
    let nodes: Vec<_> = firsts.chain((0..1_001).map(|n| node("b", n, &names))).collect();
    let text = format!("{{\"nodes\": [{}]}}", nodes.join(","));
    let document = json::parse(text.as_bytes()).unwrap();
    assert_eq!(document.flow.len(), 2 * 1_001 + 2);
    let harbor = Harbor::new(Handlers::new());
    harbor.client().start_document(document).await.unwrap();
    assert_eq!(super::edges(&harbor.records().await), 3 * 1_001);
}

#[tokio::test(start_paused = true)]
async fn a_document_a_group_and_a_job_have_failure_jobs() {
    async fn told(_: Blob, cx: Context) -> JobResult<Option<Blob>> {
        Ok(cx.input_raw().cloned())
    }
    let job = r#""on_failure_job": {"type": "told", "label": "undo"}"#;
    let bad = r#""type": "give", "payload": -1"#;
    for text in [
        format!(r#"{{"flow": {{{bad}, {job}}}}}"#),
        format!(r#"{{"flow": {{"group": [{{{bad}}}], "on_failure": "fail_fast", {job}}}}}"#),
        format!(r#"{{"flow": {{{bad}}}, {job}}}"#),
        format!(r#"{{"nodes": [{{"id": "a", {bad}}}], {job}}}"#),
    ] {
        let harbor = Harbor::new(handlers().on_raw("told", told));
        let document = json::parse(text.as_bytes()).unwrap();
        harbor.client().start_document(document).await.unwrap();
        harbor.run_until_idle().await;
        let records = harbor.records().await;
        let undo = records.iter().find(|it| it.job.job_type.as_str() == "told").unwrap();
        let told = undo.output.as_ref().map(|it| String::from_utf8_lossy(it).into_owned());
        // Of a group it is the join that was cancelled.
        let expected = if text.contains("group") { "[true," } else { "[false,\"-1 is negative\"]" };
        assert!(told.is_some_and(|it| it.starts_with(expected)), "{text}");
    }
}

#[test]
fn the_guide_and_the_documentation_say_the_same() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path| std::fs::read_to_string(root.join(path)).unwrap();
    let guide = read("../../docs/guides/flow-json.md");
    assert_eq!(guide.split_once("\n\n").unwrap().1.trim(), read("src/flow/json.md").trim());
}
