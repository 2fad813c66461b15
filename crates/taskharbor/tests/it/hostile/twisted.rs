//! A driver with a hook before each call, on top of the unkind one.

use super::*;

pub(crate) type Hook<T> = Arc<Mutex<Option<Box<dyn FnMut(&T) -> Twist + Send>>>>;

pub(crate) enum Twist {
    None,
    Fail(DriverError),
    Late(Duration),
    Panic,
}

#[derive(Clone)]
pub(crate) struct Twisted {
    pub(crate) inner: Unkind,
    pub(crate) settle: Hook<Settle>,
    pub(crate) extend: Hook<ExtendLeases>,
    pub(crate) outputs: Hook<Outputs>,
    pub(crate) reserve: Hook<Reserve>,
    /// Every answer to reserve says that something is due now, so many times.
    pub(crate) due_now: Arc<AtomicUsize>,
}

impl Twisted {
    fn new(inner: Unkind) -> Self {
        Self {
            inner,
            settle: Hook::default(),
            extend: Hook::default(),
            outputs: Hook::default(),
            reserve: Hook::default(),
            due_now: Arc::default(),
        }
    }
}

pub(crate) fn set<T>(hook: &Hook<T>, it: impl FnMut(&T) -> Twist + Send + 'static) {
    *hook.lock().unwrap() = Some(Box::new(it));
}

pub(crate) async fn twist<T>(hook: &Hook<T>, request: &T) -> Result<(), DriverError> {
    let twist = hook.lock().unwrap().as_mut().map_or(Twist::None, |hook| hook(request));
    match twist {
        Twist::None => Ok(()),
        Twist::Fail(error) => Err(error),
        Twist::Late(delay) => {
            tokio::time::sleep(delay).await;
            Ok(())
        }
        Twist::Panic => panic!("the driver panics"),
    }
}

impl Driver for Twisted {
    async fn enqueue(&self, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        self.inner.enqueue(request).await
    }
    async fn reserve(&self, request: Reserve) -> Result<Reserved, DriverError> {
        twist(&self.reserve, &request).await?;
        let now = request.now;
        let mut reserved = self.inner.reserve(request).await?;
        let left = self.due_now.load(Ordering::SeqCst);
        if left > 0 {
            self.due_now.store(left - 1, Ordering::SeqCst);
            reserved.next_due = Some(now);
        }
        Ok(reserved)
    }
    async fn extend_leases(&self, request: ExtendLeases) -> Answers<Extended, Refusal> {
        twist(&self.extend, &request).await?;
        self.inner.extend_leases(request).await
    }
    async fn settle(&self, request: Settle) -> Answers<Settled, Refusal> {
        twist(&self.settle, &request).await?;
        self.inner.settle(request).await
    }
    async fn outputs(&self, request: Outputs) -> Answers<OutputPage, Refusal> {
        twist(&self.outputs, &request).await?;
        self.inner.outputs(request).await
    }
    async fn watch(&self, queues: Vec<QueueName>) -> Result<Watch, DriverError> {
        self.inner.watch(queues).await
    }
    async fn store_time(&self) -> Result<Timestamp, DriverError> {
        self.inner.store_time().await
    }
    async fn close(&self) -> Result<(), DriverError> {
        self.inner.close().await
    }
}

delegate_admin!(Twisted, inner);

pub(crate) fn twisted() -> (Port, Twisted) {
    let mut port = Port::new();
    let driver = Twisted::new(port.store.clone());
    port.driver = AnyDriver::new(driver.clone()).with_clock(Arc::new(port.clock));
    port.client = Client::new(&port.driver);
    (port, driver)
}

/// As `Port::finished`, but gives up.
pub(crate) async fn finished_within(
    port: &Port,
    id: &JobId,
    within: Duration,
) -> Option<JobRecord> {
    let end = port.now().saturating_add(within);
    while port.now() < end {
        let record = port.record(id).await;
        if matches!(record.state, State::Done | State::Dlq | State::Cancelled) {
            return Some(record);
        }
        tokio::time::sleep(SECOND / 10).await;
    }
    None
}
