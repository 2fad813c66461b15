//! The calls of a handle: status, cancelling and requeueing.

use std::sync::{Arc, Mutex};

use taskharbor::{
    AnyDriver, Client, Denied, Driver, EnqueueError, Error, Flow, FlowState, Handlers, Job, JobId,
    ManageError, Options, QueueName, Requeue, State, Timestamp, WaitError,
    testing::{Harbor, TokioClock},
};
use taskharbor_core::{
    JobType, NewJob,
    clock::Clock,
    driver::{Demand, Reserve, Settle, Settlement, Transition},
    flow::Expansion,
    name::Holder,
};
use taskharbor_memory::MemoryDriver;

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
    let gone = harbor.client().handle::<Give>(taskharbor::JobId::new("unknown").unwrap());
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

/// What happens, when a clock has been looked at this many times.
type Meanwhile = (u32, Option<Box<dyn FnOnce() + Send>>);

/// A clock that lets something happen when it is looked at.
struct Meddling {
    clock: TokioClock,
    left: Mutex<Meanwhile>,
}

impl Clock for Meddling {
    fn now(&self) -> Timestamp {
        let mut left = self.left.lock().unwrap();
        left.0 = left.0.saturating_sub(1);
        let what = if left.0 == 0 { left.1.take() } else { None };
        drop(left);
        what.into_iter().for_each(|it| it());
        self.clock.now()
    }
}

#[tokio::test(start_paused = true)]
async fn an_expansion_that_meets_a_cancel_is_cancelled() {
    let clock = TokioClock::starting_at(Timestamp::from_micros(2_000_000_000_000_000).unwrap());
    let meddling = Arc::new(Meddling { clock, left: Mutex::default() });
    let store = MemoryDriver::with_clock(Arc::new(clock));
    let driver = AnyDriver::new(store.clone()).with_clock(Arc::clone(&meddling) as Arc<dyn Clock>);
    let handle = Client::new(&driver).enqueue(Give(1)).await.unwrap();
    let queues = vec![Demand::new(QueueName::new("default").unwrap(), 1)];
    let holder = Holder::new("worker").unwrap();
    let reserve = Reserve::new(queues, holder, clock.now(), std::time::Duration::from_secs(30));
    let leased = store.reserve(reserve).await.unwrap().jobs.remove(0);
    // The flow gets new members between the two calls of which a cancel consists.
    let id = handle.id().clone();
    let grow = move || {
        let (queue, kind) = (QueueName::new("default").unwrap(), JobType::new("give").unwrap());
        let new = NewJob::new(JobId::new("grown").unwrap(), queue, kind, b"1");
        let expansion = Transition::Expand(Expansion::new(vec![new]));
        let item = Settlement::new(id, leased.lease.token, expansion);
        let settle = store.settle(Settle::new(vec![item], clock.now()));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(std::pin::pin!(settle).poll(&mut context).is_ready());
    };
    *meddling.left.lock().unwrap() = (2, Some(Box::new(grow)));
    assert_eq!(handle.cancel().await.unwrap(), State::Cancelled);
    assert_eq!(handle.status().await.unwrap().state, FlowState::Cancelled);
    assert!(meddling.left.lock().unwrap().1.is_none());
}
