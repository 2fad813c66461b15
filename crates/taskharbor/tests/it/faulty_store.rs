//! A hook that injects faults on request: calls that fail, replies that are lost, calls that hang, tokens
//! that change. Calls that get through go to the memory driver.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use taskharbor::{DriverError, JobId, QueueName};
use taskharbor_core::driver::{DriverId, Extended, LeaseToken, WakeHub, Watch};
use taskharbor_memory::MemoryDriver;
use taskharbor_testkit::{Answer, Call, Hook, Intercept, Next};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    Enqueue,
    Reserve,
    Extend,
    Settle,
    Outputs,
    Watch,
    Time,
    Prune,
    Due,
    Fire,
    /// These go wrong only where a test says so, and not at random.
    Configure,
    Announce,
    /// As configuring.
    Evict,
    /// In a transaction of the test's.
    Transaction,
}

impl Op {
    /// `None` for operations that never go wrong.
    fn of(op: taskharbor_testkit::Op) -> Option<Self> {
        use taskharbor_testkit::Op as Called;
        match op {
            Called::Enqueue => Some(Self::Enqueue),
            Called::Reserve => Some(Self::Reserve),
            Called::ExtendLeases => Some(Self::Extend),
            Called::Settle => Some(Self::Settle),
            Called::Outputs => Some(Self::Outputs),
            Called::Watch => Some(Self::Watch),
            Called::StoreTime => Some(Self::Time),
            Called::Prune => Some(Self::Prune),
            Called::DueSchedules => Some(Self::Due),
            Called::Fire => Some(Self::Fire),
            Called::Configure => Some(Self::Configure),
            Called::Announce => Some(Self::Announce),
            Called::Evict => Some(Self::Evict),
            _ => None,
        }
    }

    /// Those that go wrong at random.
    pub(crate) const ALL: [Self; 11] = [
        Self::Enqueue,
        Self::Reserve,
        Self::Extend,
        Self::Settle,
        Self::Outputs,
        Self::Watch,
        Self::Time,
        Self::Prune,
        Self::Due,
        Self::Fire,
        Self::Transaction,
    ];
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The call fails and nothing is done.
    Refuse,
    /// The caller may not do this.
    Deny,
    /// It is done, and the answer gets lost.
    LoseReply,
    /// No answer ever comes, and nothing is done.
    Hang,
    /// It is done, and the answer takes this long.
    Late(Duration),
}

#[derive(Clone)]
pub(crate) struct FaultyStore {
    pub(crate) store: MemoryDriver,
    pub(crate) id: DriverId,
    plan: Arc<Mutex<Plan>>,
}

/// Where wake-ups come from.
#[derive(Clone, Default)]
pub(crate) enum WakeUpSource {
    #[default]
    Store,
    Hub(WakeHub),
    Nowhere,
}

#[derive(Default)]
struct Plan {
    next: HashMap<Op, VecDeque<Fault>>,
    down: HashSet<Op>,
    calls: HashMap<Op, usize>,
    chaos: Option<(fastrand::Rng, f64)>,
    rotates: bool,
    wake_ups: WakeUpSource,
    /// How long each call takes.
    takes: Duration,
    /// The queues that each reserve has asked, and the number of jobs.
    demands: Vec<Vec<(QueueName, usize)>>,
    /// For each job the token that its worker was given last, and the one the store knows.
    tokens: HashMap<JobId, (LeaseToken, LeaseToken)>,
}

impl FaultyStore {
    pub(crate) fn new(store: MemoryDriver) -> Self {
        Self { store, id: DriverId::new(), plan: Arc::default() }
    }

    fn plan<T>(&self, change: impl FnOnce(&mut Plan) -> T) -> T {
        change(&mut self.plan.lock().unwrap())
    }

    /// The next calls of this kind go wrong like this.
    pub(crate) fn next(&self, op: Op, faults: impl IntoIterator<Item = Fault>) {
        self.plan(|plan| plan.next.entry(op).or_default().extend(faults));
    }

    /// All calls of these kinds fail until [`FaultyStore::up`].
    pub(crate) fn down(&self, ops: &[Op]) {
        self.plan(|plan| plan.down.extend(ops));
    }

    pub(crate) fn up(&self) {
        self.plan(|plan| plan.down.clear());
    }

    /// Calls go wrong at random, with this probability.
    pub(crate) fn chaos(&self, seed: u64, probability: f64) {
        let random = fastrand::Rng::with_seed(seed);
        self.plan(|plan| plan.chaos = Some((random, probability)));
    }

    pub(crate) fn calm(&self) {
        self.plan(|plan| plan.chaos = None);
    }

    /// Every extension answers another token, and the old one is worth nothing.
    pub(crate) fn rotate_tokens(&self) {
        self.plan(|plan| plan.rotates = true);
    }

    /// Wake-ups come from here, from now on.
    pub(crate) fn wake_ups_from(&self, wake_ups: WakeUpSource) {
        self.plan(|plan| plan.wake_ups = wake_ups);
    }

    /// Every call takes this long, from now on.
    pub(crate) fn takes(&self, takes: Duration) {
        self.plan(|plan| plan.takes = takes);
    }

    /// What each reserve has asked of which queues, since the last time.
    pub(crate) fn demands(&self) -> Vec<Vec<(QueueName, usize)>> {
        self.plan(|plan| std::mem::take(&mut plan.demands))
    }

    pub(crate) fn calls(&self, op: Op) -> usize {
        self.plan(|plan| plan.calls.get(&op).copied().unwrap_or_default())
    }

    fn fault(&self, op: Op) -> Option<Fault> {
        self.plan(|plan| {
            *plan.calls.entry(op).or_default() += 1;
            if plan.down.contains(&op) {
                return Some(Fault::Refuse);
            }
            if let Some(fault) = plan.next.get_mut(&op).and_then(VecDeque::pop_front) {
                return Some(fault);
            }
            if [Op::Configure, Op::Announce, Op::Evict].contains(&op) {
                return None;
            }
            let (random, probability) = plan.chaos.as_mut()?;
            let late = Fault::Late(Duration::from_millis(random.u64(..8_000)));
            let faults = [Fault::Refuse, Fault::LoseReply, Fault::Hang, late];
            (random.f64() < *probability).then(|| faults[random.usize(..faults.len())])
        })
    }

    pub(crate) async fn call<T>(
        &self,
        op: Op,
        call: impl Future<Output = Result<T, DriverError>>,
    ) -> Result<T, DriverError> {
        let takes = self.plan(|plan| plan.takes);
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        match self.fault(op) {
            None => call.await,
            Some(Fault::Refuse) => Err(away()),
            Some(Fault::Deny) => Err(DriverError::not_allowed("this requires the role admin")),
            Some(Fault::LoseReply) => call.await.and_then(|_| Err(away())),
            Some(Fault::Hang) => pending().await,
            Some(Fault::Late(delay)) => {
                let answer = call.await;
                tokio::time::sleep(delay).await;
                answer
            }
        }
    }

    /// The memory driver behind this hook.
    pub(crate) fn driver(&self) -> Intercept<MemoryDriver, Self> {
        Intercept::new(self.store.clone(), self.clone())
    }

    fn translate_tokens(&self, call: &mut Call) {
        match call {
            Call::ExtendLeases { request } => {
                for item in &mut request.items {
                    item.token = self.inner(&item.id, item.token);
                }
            }
            Call::Settle { request } => {
                for item in &mut request.items {
                    item.token = self.inner(&item.id, item.token);
                }
            }
            _ => {}
        }
    }

    fn change(&self, answer: Answer, seen: Seen) -> Answer {
        match (answer, seen) {
            (Answer::ExtendLeases(answers), Seen::Extended(ids)) => {
                let answers = answers.into_iter().zip(ids);
                let rotated =
                    |(answer, id): (Result<_, _>, _)| answer.map(|it| self.rotated(&id, it));
                Answer::ExtendLeases(answers.map(rotated).collect())
            }
            (Answer::Watch(watch), Seen::Watched(queues)) => {
                Answer::Watch(match self.plan(|plan| plan.wake_ups.clone()) {
                    WakeUpSource::Store => watch,
                    WakeUpSource::Hub(hub) => hub.watch(queues),
                    WakeUpSource::Nowhere => Watch::never(),
                })
            }
            (answer, _) => answer,
        }
    }

    /// The token that the store knows for the one that a worker has.
    pub(crate) fn inner(&self, id: &JobId, token: LeaseToken) -> LeaseToken {
        self.plan(|plan| match plan.tokens.get(id) {
            Some((outer, inner)) if *outer == token => *inner,
            Some((_, inner)) if *inner == token => LeaseToken::from_bits(!token.to_bits()),
            _ => token,
        })
    }

    fn rotated(&self, id: &JobId, extended: Extended) -> Extended {
        self.plan(|plan| {
            if !plan.rotates {
                return extended;
            }
            let mut lease = extended.lease;
            lease.token = LeaseToken::random().unwrap();
            plan.tokens.insert(id.clone(), (lease.token, extended.lease.token));
            Extended::new(lease, extended.cancel_requested)
        })
    }
}

fn away() -> DriverError {
    DriverError::unavailable("the store is away")
}

impl Hook<MemoryDriver> for FaultyStore {
    async fn around(
        &self,
        mut call: Call,
        next: Next<'_, MemoryDriver>,
    ) -> Result<Answer, DriverError> {
        let Some(op) = Op::of(call.op()) else { return next.make(call).await };
        self.translate_tokens(&mut call);
        if let Call::Reserve { request } = &call {
            let demands = request.demands.iter().map(|it| (it.queue.clone(), it.limit)).collect();
            self.plan(|plan| plan.demands.push(demands));
        }
        let seen = Seen::of(&call);
        self.call(op, async { Ok(self.change(next.make(call).await?, seen)) }).await
    }

    fn driver_id(&self, _: Option<DriverId>) -> Option<DriverId> {
        Some(self.id)
    }
}

/// What is needed of a call when its answer is there.
enum Seen {
    Extended(Vec<JobId>),
    Watched(Vec<QueueName>),
    Nothing,
}

impl Seen {
    fn of(call: &Call) -> Self {
        match call {
            Call::ExtendLeases { request } => {
                Self::Extended(request.items.iter().map(|item| item.id.clone()).collect())
            }
            Call::Watch { queues } => Self::Watched(queues.clone()),
            _ => Self::Nothing,
        }
    }
}
