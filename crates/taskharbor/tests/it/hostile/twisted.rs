//! What happens before a call is up to the test, on top of the unkind driver.

use super::*;

pub(crate) type Twists<T> = Arc<Mutex<Option<Box<dyn FnMut(&T) -> Twist + Send>>>>;

pub(crate) enum Twist {
    None,
    Fail(DriverError),
    Late(Duration),
    Panic,
}

#[derive(Clone, Default)]
pub(crate) struct Twisted {
    pub(crate) settle: Twists<Settle>,
    pub(crate) extend: Twists<ExtendLeases>,
    pub(crate) outputs: Twists<Outputs>,
    pub(crate) reserve: Twists<Reserve>,
    /// Every answer to reserve says that something is due now, so many times.
    pub(crate) due_now: Arc<AtomicUsize>,
}

impl Twisted {
    fn says_due_now(&self) -> bool {
        let left = self.due_now.load(Ordering::SeqCst);
        self.due_now.store(left.saturating_sub(1), Ordering::SeqCst);
        left > 0
    }
}

pub(crate) fn set<T>(hook: &Twists<T>, it: impl FnMut(&T) -> Twist + Send + 'static) {
    *hook.lock().unwrap() = Some(Box::new(it));
}

pub(crate) async fn twist<T>(hook: &Twists<T>, request: &T) -> Result<(), DriverError> {
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

impl Hook<Intercept<MemoryDriver, Unkind>> for Twisted {
    async fn around(
        &self,
        call: Call,
        next: Next<'_, Intercept<MemoryDriver, Unkind>>,
    ) -> Result<Answer, DriverError> {
        match &call {
            Call::Reserve { request } => {
                twist(&self.reserve, request).await?;
                let now = request.now;
                let mut answer = next.make(call).await?;
                if let Answer::Reserve(reserved) = &mut answer
                    && self.says_due_now()
                {
                    reserved.next_due = Some(now);
                }
                return Ok(answer);
            }
            Call::ExtendLeases { request } => twist(&self.extend, request).await?,
            Call::Settle { request } => twist(&self.settle, request).await?,
            Call::Outputs { request } => twist(&self.outputs, request).await?,
            _ => {}
        }
        next.make(call).await
    }
}

pub(crate) fn twisted() -> (Port, Twisted) {
    let mut port = Port::new();
    let twisted = Twisted::default();
    let driver = AnyDriver::new(Intercept::new(port.store.driver(), twisted.clone()));
    port.driver = driver.with_clock(Arc::new(port.clock));
    port.client = Client::new(&port.driver);
    (port, twisted)
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
