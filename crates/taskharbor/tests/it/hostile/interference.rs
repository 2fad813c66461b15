//! A hook on top of the faulty driver: a test decides what happens before a call.

use super::*;

pub(crate) type Actions<T> = Arc<Mutex<Option<Box<dyn FnMut(&T) -> Action + Send>>>>;

pub(crate) enum Action {
    None,
    Fail(DriverError),
    Late(Duration),
    Panic,
}

#[derive(Clone, Default)]
pub(crate) struct Interference {
    pub(crate) settle: Actions<Settle>,
    pub(crate) extend: Actions<ExtendLeases>,
    pub(crate) outputs: Actions<Outputs>,
    pub(crate) reserve: Actions<Reserve>,
    /// Every answer to reserve says that something is due now, this many times.
    pub(crate) due_now: Arc<AtomicUsize>,
}

impl Interference {
    fn says_due_now(&self) -> bool {
        let left = self.due_now.load(Ordering::SeqCst);
        self.due_now.store(left.saturating_sub(1), Ordering::SeqCst);
        left > 0
    }
}

pub(crate) fn set<T>(hook: &Actions<T>, it: impl FnMut(&T) -> Action + Send + 'static) {
    *hook.lock().unwrap() = Some(Box::new(it));
}

pub(crate) async fn interfere<T>(hook: &Actions<T>, request: &T) -> Result<(), DriverError> {
    let action = hook.lock().unwrap().as_mut().map_or(Action::None, |hook| hook(request));
    match action {
        Action::None => Ok(()),
        Action::Fail(error) => Err(error),
        Action::Late(delay) => {
            tokio::time::sleep(delay).await;
            Ok(())
        }
        Action::Panic => panic!("the driver panics"),
    }
}

impl Hook<Intercept<MemoryDriver, FaultyStore>> for Interference {
    async fn around(
        &self,
        call: Call,
        next: Next<'_, Intercept<MemoryDriver, FaultyStore>>,
    ) -> Result<Answer, DriverError> {
        match &call {
            Call::Reserve { request } => {
                interfere(&self.reserve, request).await?;
                let now = request.now;
                let mut answer = next.make(call).await?;
                if let Answer::Reserve(reserved) = &mut answer
                    && self.says_due_now()
                {
                    reserved.next_due = Some(now);
                }
                return Ok(answer);
            }
            Call::ExtendLeases { request } => interfere(&self.extend, request).await?,
            Call::Settle { request } => interfere(&self.settle, request).await?,
            Call::Outputs { request } => interfere(&self.outputs, request).await?,
            _ => {}
        }
        next.make(call).await
    }
}

pub(crate) fn rig_with_interference() -> (WorkerRig, Interference) {
    let mut rig = WorkerRig::new();
    let interference = Interference::default();
    let driver = AnyDriver::new(Intercept::new(rig.store.driver(), interference.clone()));
    rig.driver = driver.with_clock(Arc::new(rig.clock));
    rig.client = Client::new(&rig.driver);
    (rig, interference)
}

/// As `WorkerRig::finished`, but gives up.
pub(crate) async fn finished_within(
    rig: &WorkerRig,
    id: &JobId,
    within: Duration,
) -> Option<JobRecord> {
    let end = rig.now().saturating_add(within);
    while rig.now() < end {
        let record = rig.record(id).await;
        if matches!(record.state, State::Done | State::Dlq | State::Cancelled) {
            return Some(record);
        }
        tokio::time::sleep(SECOND / 10).await;
    }
    None
}
