//! What can be asked of a handle, and done to what it stands for.

use taskharbor::{
    Denied, EnqueueError, Error, Flow, FlowState, Handlers, Job, ManageError, Options, Requeue,
    State, WaitError, testing::Harbor,
};

use super::{Give, Write, gives, harbor};

#[tokio::test(start_paused = true)]
async fn a_flow_is_counted_while_it_runs_and_after() {
    let harbor = harbor();
    let late = Options::new().delay(std::time::Duration::from_secs(60));
    let members = [Give(1).with(Options::new()), Give(2).with(late)];
    let handle = harbor.client().start(Flow::chord(members, Write)).name("two").await.unwrap();
    harbor.run_until_idle().await;
    let status = handle.status().await.unwrap();
    assert_eq!(status.state, FlowState::Running);
    assert_eq!(status.name.as_ref().map(ToString::to_string).as_deref(), Some("two"));
    let members = status.members;
    assert_eq!((members.done, members.scheduled, members.blocked), (1, 1, 2));
    handle.wait().await.unwrap();
    assert_eq!(handle.status().await.unwrap().members.done, 4);
}

#[tokio::test(start_paused = true)]
async fn a_plain_job_is_counted_as_a_flow_of_one() {
    let harbor = harbor();
    let good = harbor.client().enqueue(Give(1)).await.unwrap();
    let bad = harbor.client().enqueue(Give(-1)).await.unwrap();
    assert_eq!(good.status().await.unwrap().state, FlowState::Running);
    harbor.run_until_idle().await;
    assert_eq!(good.status().await.unwrap().state, FlowState::Done);
    assert_eq!(bad.status().await.unwrap().state, FlowState::Failed);
    assert_eq!(bad.requeue_failed(Requeue::new()).await.unwrap(), 1);
    let denied = good.requeue_failed(Requeue::new()).await;
    assert!(matches!(denied, Err(ManageError::Denied(Denied::WrongState(State::Done)))));
    assert!(matches!(good.tree(10).await, Err(WaitError::Gone)));
}

#[tokio::test(start_paused = true)]
async fn a_flow_and_a_job_are_cancelled_and_not_twice() {
    let harbor = Harbor::new(Handlers::new());
    let flow = harbor.client().start(Flow::chord(gives([1, 2]), Write)).await.unwrap();
    let job = harbor.client().enqueue(Give(1)).await.unwrap();
    assert_eq!(flow.cancel().await.unwrap(), State::Cancelled);
    assert_eq!(job.cancel().await.unwrap(), State::Cancelled);
    assert!(harbor.records().await.iter().all(|it| it.state == State::Cancelled));
    assert!(matches!(flow.cancel().await, Err(ManageError::Denied(Denied::WrongState(_)))));
    assert!(matches!(job.cancel().await, Err(ManageError::Denied(Denied::WrongState(_)))));
    let gone = harbor.client().handle::<Give>(taskharbor::JobId::new("nobody").unwrap());
    assert!(matches!(gone.cancel().await, Err(ManageError::Denied(Denied::JobNotFound))));
    assert!(matches!(gone.status().await, Err(WaitError::Gone)));
}

#[tokio::test(start_paused = true)]
async fn a_function_that_starts_and_waits_has_one_error() {
    async fn both(harbor: &Harbor, queue: &str) -> Result<i64, Error> {
        let step = Give(1).with(Options::new().queue(queue));
        harbor.client().start(step).await?.wait().await
    }
    let harbor = harbor();
    assert_eq!(both(&harbor, "default").await.unwrap(), 1);
    let error = both(&harbor, "").await.unwrap_err();
    assert!(matches!(error, WaitError::NotStarted(EnqueueError::Invalid(_))), "{error}");
}
