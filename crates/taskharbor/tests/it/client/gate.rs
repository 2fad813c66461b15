//! A hook at whose enqueues a test can look: how many jobs each carried, which of them wait at
//! the gate, and which fail. Underneath is the memory driver.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
};

use taskharbor::{Admin, AnyDriver, Client, DriverError, Timestamp};
use taskharbor_core::{
    admin::{Filter, List},
    driver::{Enqueue, Limits},
};
use taskharbor_memory::MemoryDriver;
use taskharbor_testkit::{Answer, Call, Hook, Intercept, Next};
use tokio::sync::{Semaphore, watch};

/// Says which calls fail.
type Verdict = Box<dyn FnMut(&Enqueue) -> Option<DriverError> + Send>;

#[derive(Clone)]
pub(crate) struct Gate {
    store: MemoryDriver,
    shared: Arc<Shared>,
}

struct Shared {
    plan: Mutex<Plan>,
    passes: Semaphore,
    /// How many jobs each call carried, in the order in which the calls came.
    calls: watch::Sender<Vec<usize>>,
}

#[derive(Default)]
struct Plan {
    hold: usize,
    verdict: Option<Verdict>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        let (plan, passes) = (Mutex::default(), Semaphore::new(0));
        let shared = Shared { plan, passes, calls: watch::Sender::default() };
        Self { store: MemoryDriver::new(), shared: Arc::new(shared) }
    }

    /// A gate at which the next call waits, and a client behind it.
    pub(crate) fn holding_one() -> (Self, Client) {
        let gate = Self::new();
        gate.hold(1);
        let client = gate.client();
        (gate, client)
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.driver())
    }

    pub(crate) fn driver(&self) -> AnyDriver {
        AnyDriver::new(Intercept::new(self.store.clone(), self.clone()))
    }

    fn plan<T>(&self, change: impl FnOnce(&mut Plan) -> T) -> T {
        change(&mut self.shared.plan.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The next calls wait at the gate, each until [`Gate::release`].
    pub(crate) fn hold(&self, calls: usize) {
        self.plan(|plan| plan.hold += calls);
    }

    /// Lets one call go that waits.
    pub(crate) fn release(&self) {
        self.shared.passes.add_permits(1);
    }

    /// Calls for which this answers an error fail with it and store nothing.
    pub(crate) fn fail(
        &self,
        verdict: impl FnMut(&Enqueue) -> Option<DriverError> + Send + 'static,
    ) {
        self.plan(|plan| plan.verdict = Some(Box::new(verdict)));
    }

    /// How many jobs each call has carried.
    pub(crate) fn calls(&self) -> Vec<usize> {
        self.shared.calls.borrow().clone()
    }

    /// Waits until this many calls have come.
    pub(crate) async fn arrived(&self, calls: usize) {
        // The sender lives as long as this does.
        let _ = self.shared.calls.subscribe().wait_for(|seen| seen.len() >= calls).await;
    }

    /// How many jobs are stored.
    pub(crate) async fn stored(&self) -> Result<usize, DriverError> {
        let all = List::new(Filter::all(), Limits::MAX_PAGE, Timestamp::MAX);
        Ok(self.store.list(all).await?.items.len())
    }

    async fn pass(&self, request: &Enqueue) -> Result<(), DriverError> {
        let held = self.plan(|plan| {
            let held = plan.hold > 0;
            plan.hold = plan.hold.saturating_sub(1);
            held
        });
        let jobs = request.sets.iter().map(|set| set.jobs.len()).sum();
        self.shared.calls.send_modify(|calls| calls.push(jobs));
        if held && let Ok(permit) = self.shared.passes.acquire().await {
            permit.forget();
        }
        let failure = self.plan(|plan| plan.verdict.as_mut().and_then(|fails| fails(request)));
        failure.map_or(Ok(()), Err)
    }
}

/// Polls a future once; whether it still waits.
pub(crate) async fn waits<F: Future + Unpin>(future: &mut F) -> bool {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx).is_pending())).await
}

/// Awaits a future, but not for ever: `None` if it is not ready after the runtime has had ample
/// opportunity to run everything else.
pub(crate) async fn soon<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    for _ in 0..1_000 {
        match poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await {
            Poll::Ready(output) => return Some(output),
            Poll::Pending => tokio::task::yield_now().await,
        }
    }
    None
}

impl Hook<MemoryDriver> for Gate {
    async fn around(
        &self,
        call: Call,
        next: Next<'_, MemoryDriver>,
    ) -> Result<Answer, DriverError> {
        if let Call::Enqueue { request } = &call {
            self.pass(request).await?;
        }
        next.make(call).await
    }
}
