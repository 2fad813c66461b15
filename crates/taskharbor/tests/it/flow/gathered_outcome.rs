//! Flows whose steps fail.

use taskharbor::{
    Blob, Context, FailurePolicy, Flow, FlowState, IntoFlow, Job, JobResult, State, WaitError,
    flow_json, testing::Harbor,
};

use super::{Add, Give, Judge, Write, gives, handlers, harbor, outcome};

#[tokio::test(start_paused = true)]
async fn gathered_members_tell_what_became_of_each() {
    let outcomes = outcome(Flow::gather(gives([1, -2, 3])).then(Judge)).await;
    assert_eq!(outcomes, "1; dead-lettered: -2 is negative; 3");
    assert_eq!(outcome(Flow::gather(gives([])).then(Judge)).await, "");
    let raw = outcome(Flow::gather(gives([1, -2]))).await;
    assert_eq!(raw[0], Ok(1));
    assert_eq!(raw[1].as_ref().unwrap_err().reason.as_deref(), Some("-2 is negative"));
}

#[tokio::test(start_paused = true)]
async fn a_gathered_chain_that_fails_in_its_middle_is_one_failure() {
    let chain = |n| Flow::first(Give(n)).then(Add(1)).then(Add(1));
    let outcomes = outcome(Flow::gather([chain(1), chain(-1)]).then(Judge)).await;
    assert!(outcomes.starts_with("3; cancelled: job "), "{outcomes}");
}

#[tokio::test(start_paused = true)]
async fn gathered_groups_in_groups_keep_their_outcomes_apart() {
    let flow = Flow::group([Flow::gather(gives([1, -1])), Flow::gather(gives([2]))]);
    let outcomes = outcome(flow).await;
    assert_eq!((outcomes[0].len(), outcomes[1].len()), (2, 1));
    assert!(outcomes[0][1].is_err());
    assert_eq!(outcomes[1][0], Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_flow_is_held_and_goes_on_when_its_members_are_requeued() {
    let harbor = harbor();
    let handle = harbor.client().start(Flow::chord(gives([1, -2]), Write)).await.unwrap();
    harbor.run_until_idle().await;
    let status = handle.status().await.unwrap();
    assert_eq!(status.state, FlowState::Blocked);
    assert_eq!((status.members.done, status.members.dlq, status.members.blocked), (1, 1, 2));
    assert_eq!(handle.requeue_failed(taskharbor::Requeue::new()).await.unwrap(), 1);
    assert_eq!(handle.status().await.unwrap().state, FlowState::Running);
    harbor.run_until_idle().await;
    // It fails again, and is held again.
    assert_eq!(handle.status().await.unwrap().state, FlowState::Blocked);
    handle.cancel().await.unwrap();
    assert_eq!(handle.status().await.unwrap().state, FlowState::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_policy_holds_for_all_steps_that_have_none() {
    let harbor = harbor();
    let flow = Flow::chord(gives([1, -2]), Write).policy(FailurePolicy::Cancel);
    let handle = harbor.client().start(flow).await.unwrap();
    assert!(matches!(handle.wait().await, Err(WaitError::Cancelled { .. })));
    let released = Flow::group(gives([1, -2])).policy(FailurePolicy::Continue);
    let handle = harbor.client().start(released).await.unwrap();
    let Err(WaitError::Member(failure)) = handle.wait().await else { panic!("no failure") };
    assert_eq!(failure.to_string(), "dead-lettered: -2 is negative");
}

#[tokio::test(start_paused = true)]
async fn a_step_that_needs_the_output_of_a_failed_parent_fails_permanently() {
    let harbor = harbor();
    let flow = Flow::group(gives([-2])).policy(FailurePolicy::Continue).then(Write);
    let handle = harbor.client().start(flow).await.unwrap();
    let Err(WaitError::DeadLettered { reason: Some(reason) }) = handle.wait().await else {
        panic!("no failure")
    };
    assert_eq!(reason.as_str(), "a step before it is dead-lettered: -2 is negative");
}

#[tokio::test(start_paused = true)]
async fn fail_fast_stops_what_has_not_started() {
    let harbor = harbor();
    let slow = Give(5).with(taskharbor::Options::new().delay(std::time::Duration::from_secs(60)));
    let members = [Give(-1).into_flow(), slow.into_flow()];
    let flow = Flow::group(members).policy(FailurePolicy::FailFast).then(Write);
    let handle = harbor.client().start(flow).await.unwrap();
    assert!(handle.wait().await.is_err());
    let states: Vec<_> = harbor.records().await.iter().map(|it| it.state).collect();
    assert_eq!(states, [State::Dlq, State::Cancelled, State::Cancelled, State::Cancelled]);
}

/// The input of a handler of bytes, and the failure that it read.
async fn witness(_: Blob, cx: Context) -> JobResult<Option<Blob>> {
    let input = cx.input_raw().map_or("nothing".into(), |it| String::from_utf8_lossy(it));
    let failure = cx.failure().map(ToString::to_string).unwrap_or_default();
    Ok(Some(Blob::from(serde_json::to_vec(&format!("{input} {failure}"))?)))
}

/// Produces its payload as it is.
async fn spill(payload: Blob, _: Context) -> JobResult<Option<Blob>> {
    Ok(Some(Blob::from(serde_json::from_slice::<String>(&payload)?.into_bytes())))
}

async fn from_document(text: &str) -> Result<String, WaitError> {
    let harbor = Harbor::new(handlers().on_raw("witness", witness).on_raw("spill", spill));
    let document = flow_json::parse(text.as_bytes()).unwrap();
    let handle = harbor.client().start_document(document).await.unwrap();
    let output = handle.wait_raw().await?;
    Ok(output.map_or(String::new(), |it| String::from_utf8_lossy(&it).into_owned()))
}

#[tokio::test(start_paused = true)]
async fn a_handler_of_bytes_runs_behind_a_step_that_failed_and_let_it_go() {
    let failed = r#"{"type": "give", "payload": -1, "on_failure": "continue"}"#;
    let chain = format!(r#"{{"flow": {{"chain": [{failed}, {{"type": "witness"}}]}}}}"#);
    let told = "dead-lettered: -1 is negative";
    assert_eq!(from_document(&chain).await.unwrap(), format!("\"null {told}\""));
    let nodes = r#"{"nodes": [{"id": "a", "type": "give", "payload": 1},
        {"id": "b", "type": "give", "payload": -1, "on_failure": "continue"},
        {"id": "c", "type": "witness", "after": ["a", "b"]}]}"#;
    assert_eq!(from_document(nodes).await.unwrap(), format!("\"[1,null] {told}\""));
    let good = r#"{"flow": {"chain": [{"type": "give", "payload": 1}, {"type": "witness"}]}}"#;
    assert_eq!(from_document(good).await.unwrap(), "\"1 \"");
}

#[tokio::test(start_paused = true)]
async fn an_output_that_is_not_one_value_is_refused_where_a_list_is_made_of_it() {
    for steps in ["group", "gather"] {
        let members = r#"[{"type": "give", "payload": 1}, {"type": "spill", "payload": "1,2"}]"#;
        let step = format!(r#"{{"{steps}": {members}}}"#);
        let chain = format!(r#"{{"flow": {{"chain": [{step}, {{"type": "witness"}}]}}}}"#);
        let Err(WaitError::DeadLettered { reason: Some(reason) }) = from_document(&chain).await
        else {
            panic!("no failure")
        };
        let expected = "json cannot read an output as one value: what parent 2 of 2 of ";
        assert!(reason.as_str().starts_with(expected), "{reason}");
        // A caller that waits for the group itself is told the same.
        let error = from_document(&format!(r#"{{"flow": {step}}}"#)).await.unwrap_err();
        assert!(matches!(error, WaitError::Decode(_)), "{error}");
        assert!(error.to_string().contains(": what parent 2 of 2 of "), "{error}");
    }
}
