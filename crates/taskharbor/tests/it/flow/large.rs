//! Flows of many members.

use taskharbor::{EnqueueError, Flow, FlowState, Handlers, Limits, testing::Harbor};

use super::{Give, Rest, gives};

#[tokio::test(start_paused = true)]
async fn a_chord_of_a_hundred_thousand_members_starts_whole() {
    let harbor = Harbor::new(Handlers::new());
    let members = gives(0..100_000);
    let flow = Flow::chord(members, super::Write);
    assert_eq!(flow.len(), 100_002);
    let handle = harbor.client().start(flow).idempotency_key("large").await.unwrap();
    let status = handle.status().await.unwrap();
    assert_eq!(status.state, FlowState::Running);
    assert_eq!((status.members.ready, status.members.blocked), (100_000, 2));
}

#[tokio::test(start_paused = true)]
async fn a_flow_over_the_limit_is_refused_and_stores_nothing() {
    let harbor = Harbor::new(Handlers::new());
    let flow = Flow::group((0..Limits::MAX_FLOW_JOBS).map(|_| Rest));
    let error = harbor.client().start(flow).await.unwrap_err();
    assert!(matches!(error, EnqueueError::Store(_)), "{error}");
    assert_eq!(error.to_string(), "the number of jobs in one call is 200001: choose 0 to 200000");
    assert!(harbor.records().await.is_empty());
    let _ = Give(0);
}
