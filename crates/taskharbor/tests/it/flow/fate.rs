//! What becomes of a flow whose steps fail.

use taskharbor::{FailurePolicy, Flow, FlowState, IntoFlow, Job, State, WaitError};

use super::{Add, Give, Judge, Write, gives, harbor, outcome};

#[tokio::test(start_paused = true)]
async fn gathered_members_tell_what_became_of_each() {
    let fates = outcome(Flow::gather(gives([1, -2, 3])).then(Judge)).await;
    assert_eq!(fates, "1; dead-lettered: -2 is negative; 3");
    assert_eq!(outcome(Flow::gather(gives([])).then(Judge)).await, "");
    let raw = outcome(Flow::gather(gives([1, -2]))).await;
    assert_eq!(raw[0], Ok(1));
    assert_eq!(raw[1].as_ref().unwrap_err().reason.as_deref(), Some("-2 is negative"));
}

#[tokio::test(start_paused = true)]
async fn a_gathered_chain_that_fails_in_its_middle_is_one_failure() {
    let chain = |n| Flow::first(Give(n)).then(Add(1)).then(Add(1));
    let fates = outcome(Flow::gather([chain(1), chain(-1)]).then(Judge)).await;
    assert!(fates.starts_with("3; cancelled: job "), "{fates}");
}

#[tokio::test(start_paused = true)]
async fn gathered_groups_in_groups_keep_their_fates_apart() {
    let flow = Flow::group([Flow::gather(gives([1, -1])), Flow::gather(gives([2]))]);
    let fates = outcome(flow).await;
    assert_eq!((fates[0].len(), fates[1].len()), (2, 1));
    assert!(fates[0][1].is_err());
    assert_eq!(fates[1][0], Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_flow_is_held_and_goes_on_when_its_members_are_requeued() {
    let harbor = harbor();
    let handle = harbor.client().start(Flow::chord(gives([1, -2]), Write)).await.unwrap();
    harbor.run_until_idle().await;
    let status = handle.status().await.unwrap();
    assert_eq!(status.state, FlowState::Held);
    assert_eq!((status.members.done, status.members.dlq, status.members.blocked), (1, 1, 2));
    assert_eq!(handle.requeue_failed(taskharbor::Requeue::new()).await.unwrap(), 1);
    assert_eq!(handle.status().await.unwrap().state, FlowState::Running);
    harbor.run_until_idle().await;
    // It fails again, and is held again.
    assert_eq!(handle.status().await.unwrap().state, FlowState::Held);
    handle.cancel().await.unwrap();
    assert_eq!(handle.status().await.unwrap().state, FlowState::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_policy_holds_for_all_steps_that_have_none() {
    let harbor = harbor();
    let flow = Flow::chord(gives([1, -2]), Write).policy(FailurePolicy::Cancel);
    let handle = harbor.client().start(flow).await.unwrap();
    assert!(matches!(handle.wait().await, Err(WaitError::Cancelled { .. })));
    let released = Flow::group(gives([1, -2])).policy(FailurePolicy::Release);
    let handle = harbor.client().start(released).await.unwrap();
    let Err(WaitError::Member(failure)) = handle.wait().await else { panic!("no failure") };
    assert_eq!(failure.to_string(), "dead-lettered: -2 is negative");
}

#[tokio::test(start_paused = true)]
async fn a_step_that_needs_what_failed_and_was_let_go_fails_for_good() {
    let harbor = harbor();
    let flow = Flow::group(gives([-2])).policy(FailurePolicy::Release).then(Write);
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
