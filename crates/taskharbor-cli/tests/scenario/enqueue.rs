//! `enqueue`.

use super::piped;
use crate::store::Store;

#[test]
fn a_job_is_stored_with_all_that_was_said() {
    let store = Store::new();
    let id = store.enqueue(&[
        "email:send",
        "{\"to\": \"ada\"}",
        "--queue",
        "eu:mail",
        "--at",
        "2999-01-01T00:00:00Z",
        "--timeout",
        "1m30s",
        "--max-attempts",
        "3",
        "--key",
        "welcome-ada",
        "--priority",
        "-5",
        "--header",
        "trace=a=b",
    ]);
    let job = store.inspect(&id);
    for (field, value) in [
        ("type", "email:send"),
        ("queue", "eu:mail"),
        ("state", "scheduled"),
        ("run_at", "2999-01-01T00:00:00.000000Z"),
        ("due_at", "2999-01-01T00:00:00.000000Z"),
        ("idempotency_key", "welcome-ada"),
    ] {
        assert_eq!(job[field], value, "{job}");
    }
    assert_eq!((&job["max_attempts"], &job["priority"]), (&3.into(), &(-5).into()));
    assert_eq!(job["timeout_nanos"], 90_000_000_000_u64);
    assert_eq!(job["headers"]["trace"], "a=b");
    assert_eq!(job["payload"]["to"], "ada");
}

#[test]
fn the_payload_comes_from_the_line_a_file_or_a_pipe() {
    let store = Store::new();
    let payload = |id: &str| store.inspect(id)["payload"].clone();
    assert_eq!(payload(&store.enqueue(&["t"])), serde_json::json!({}));
    assert_eq!(payload(&store.enqueue(&["t", "[1, 2]"])), serde_json::json!([1, 2]));
    std::fs::write(store.dir().join("job.json"), "{\"from\": \"file\"}").unwrap();
    assert_eq!(payload(&store.enqueue(&["t", "@job.json"]))["from"], "file");
    let piped = piped(&mut store.command(&["enqueue", "t", "-"]), b"\xff\x00raw");
    let job = store.inspect(piped.out.trim());
    assert_eq!((&job["payload"], &job["payload_base64"]), (&().into(), &"/wByYXc=".into()));
}

#[test]
fn a_key_that_is_held_answers_with_the_job_that_holds_it() {
    let store = Store::new();
    let first = store.json(&["enqueue", "t", "--key", "once"]);
    assert_eq!(first["existed"], false);
    let again = store.json(&["enqueue", "t", "--idempotency-key", "once"]);
    assert_eq!((&again["id"], &again["existed"]), (&first["id"], &true.into()));
    let told = store.run(&["enqueue", "t", "--key", "once"]);
    assert_eq!(told.code, Some(0));
    assert!(told.err.contains("existed; nothing was stored"), "{told:?}");
}

#[test]
fn a_key_is_held_as_long_as_was_said() {
    let store = Store::new();
    let hold = |hold: &str| {
        let id = store.enqueue(&["t", "--key", hold, "--key-hold", hold]);
        let job = store.inspect(&id);
        (job["key_hold"].as_str().unwrap().to_owned(), job["key_held_until"].clone())
    };
    assert_eq!(hold("until-pruned"), ("until_pruned".to_owned(), ().into()));
    assert_eq!(hold("until-done"), ("until_done".to_owned(), ().into()));
    assert_eq!(hold("until-terminal"), ("until_terminal".to_owned(), ().into()));
    let (name, until) = hold("24h");
    assert_eq!(name, "for");
    assert!(until.is_string(), "{until}");
    let id = store.enqueue(&["t", "--key", "shown", "--key-hold", "until-done"]);
    let text = store.ok(&["inspect", &id]);
    assert!(text.contains("until done"), "{text}");
    // A key of a job that is cancelled is free if that was said.
    let first = store.enqueue(&["t", "--key", "k", "--key-hold", "until-terminal"]);
    store.ok(&["cancel", &first]);
    assert_eq!(store.json(&["enqueue", "t", "--key", "k"])["existed"], false);
}

#[test]
fn many_are_stored_from_one_line_or_many() {
    let store = Store::new();
    let ids = store.ok(&["enqueue", "t", "--count", "2500", "--queue", "copies"]);
    assert_eq!(ids.lines().count(), 2_500);
    let input: String = (0..2_500).map(|row| format!("{{\"row\": {row}}}\r\n\n")).collect();
    let mut command = store.command(&["enqueue", "row", "--lines", "--queue", "rows", "--json"]);
    let answer = piped(&mut command, input.as_bytes());
    assert_eq!((answer.code, answer.out.lines().count()), (Some(0), 2_500), "{}", answer.err);
    let last: serde_json::Value = serde_json::from_str(answer.out.lines().last().unwrap()).unwrap();
    assert_eq!(store.inspect(last["id"].as_str().unwrap())["payload"]["row"], 2_499);
    let queues = store.lines(&["stats", "--window", "0s"]);
    let ready: Vec<_> = queues.iter().map(|it| (&it["queue"], &it["ready"])).collect();
    assert_eq!(ready, [(&"copies".into(), &2_500.into()), (&"rows".into(), &2_500.into())]);
}

#[test]
fn a_line_that_is_refused_costs_no_other_its_place() {
    let store = Store::new();
    let input = format!("1\n{}\n3\n", "x".repeat(2 * 1024 * 1024));
    let mut command = store.command(&["enqueue", "t", "--lines"]);
    let answer = piped(&mut command, input.as_bytes());
    assert_eq!((answer.code, answer.out.lines().count()), (Some(2), 2), "{answer:?}");
    assert!(
        answer.err.contains("line 2: ") && answer.err.contains("1 line was not stored"),
        "{answer:?}"
    );
    assert_eq!(store.lines(&["list"]).len(), 2);
}

#[test]
fn waiting_prints_what_the_job_produced() {
    let store = Store::new();
    store.enqueue(&["echo"]);
    let mut worker = store.command(&["worker", "--builtin"]).spawn().unwrap();
    let waited = store.run(&["enqueue", "echo", "{\"a\":1}", "--wait"]);
    assert_eq!((waited.code, &*waited.out), (Some(0), "{\"a\":1}"), "{waited:?}");
    let waited = store.json(&["enqueue", "echo", "[true]", "--wait"]);
    assert_eq!((&waited["state"], &waited["output"][0]), (&"done".into(), &true.into()));
    let failed = store.run(&["enqueue", "fail", "\"no\"", "--max-attempts", "1", "--wait"]);
    assert_eq!(failed.code, Some(1));
    assert!(failed.err.contains("dead-lettered") && failed.err.contains("no"), "{failed:?}");
    worker.kill().unwrap();
    worker.wait().unwrap();
}

#[test]
fn the_error_of_a_line_is_json_if_that_was_asked_for() {
    let store = Store::new();
    let input = format!("1\n{}\n", "x".repeat(2 * 1024 * 1024));
    let answer =
        piped(&mut store.command(&["enqueue", "t", "--lines", "--json"]), input.as_bytes());
    assert_eq!(answer.code, Some(2), "{answer:?}");
    let told: Vec<serde_json::Value> =
        answer.err.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&told[0]["line"], &told[0]["error"]["code"]), (&2.into(), &"rejected".into()));
    assert!(told[1]["error"]["message"].as_str().unwrap().contains("1 line was not stored"));
}

#[test]
fn a_line_loses_its_end_and_nothing_else() {
    let store = Store::new();
    let answer = piped(&mut store.command(&["enqueue", "t", "--lines"]), b"1\r\r\n\r\n2\n");
    let ids: Vec<_> = answer.out.lines().collect();
    assert_eq!(ids.len(), 2, "{answer:?}");
    let bytes = |id: &str| store.inspect(id)["payload_bytes"].clone();
    assert_eq!((bytes(ids[0]), bytes(ids[1])), (2.into(), 1.into()));
}
