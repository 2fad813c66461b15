//! A driver that misbehaves on request: calls that fail, replies that are lost, calls that hang,
//! tokens that change. Underneath is the memory driver, so what does get through is right.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use taskharbor::{Admin, Driver, DriverError, JobId, Prune, QueueName, Timestamp};
use taskharbor_core::{
    driver::{
        Answers, DriverId, Enqueue, Enqueued, ExtendLeases, Extended, LeaseToken, OutputPage,
        Outputs, Reserve, Reserved, Settle, Settled, WakeHub, Watch,
    },
    error::{Refusal, Rejected},
};
use taskharbor_memory::MemoryDriver;

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
    /// In a transaction of the test's.
    Transaction,
}

impl Op {
    pub(crate) const ALL: [Self; 9] = [
        Self::Enqueue,
        Self::Reserve,
        Self::Extend,
        Self::Settle,
        Self::Outputs,
        Self::Watch,
        Self::Time,
        Self::Prune,
        Self::Transaction,
    ];
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The call fails and nothing is done.
    Refuse,
    /// It is done, and the answer gets lost.
    LoseReply,
    /// No answer ever comes, and nothing is done.
    Hang,
    /// It is done, and the answer takes this long.
    Late(Duration),
}

#[derive(Clone)]
pub(crate) struct Unkind {
    pub(crate) store: MemoryDriver,
    id: DriverId,
    plan: Arc<Mutex<Plan>>,
}

/// Where hints come from.
#[derive(Clone, Default)]
pub(crate) enum Hints {
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
    hints: Hints,
    /// For each job the token that its worker was given last, and the one the store knows.
    tokens: HashMap<JobId, (LeaseToken, LeaseToken)>,
}

impl Unkind {
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

    /// All calls of these kinds fail until [`Unkind::up`].
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

    /// Hints come from here, from now on.
    pub(crate) fn hints_from(&self, hints: Hints) {
        self.plan(|plan| plan.hints = hints);
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
        match self.fault(op) {
            None => call.await,
            Some(Fault::Refuse) => Err(away()),
            Some(Fault::LoseReply) => call.await.and_then(|_| Err(away())),
            Some(Fault::Hang) => pending().await,
            Some(Fault::Late(delay)) => {
                let answer = call.await;
                tokio::time::sleep(delay).await;
                answer
            }
        }
    }

    async fn remove_old(&self, request: Prune) -> Result<usize, DriverError> {
        self.call(Op::Prune, self.store.prune(request)).await
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

impl Driver for Unkind {
    fn driver_id(&self) -> Option<DriverId> {
        Some(self.id)
    }

    async fn enqueue(&self, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        self.call(Op::Enqueue, self.store.enqueue(request)).await
    }

    async fn reserve(&self, request: Reserve) -> Result<Reserved, DriverError> {
        self.call(Op::Reserve, self.store.reserve(request)).await
    }

    async fn extend_leases(&self, mut request: ExtendLeases) -> Answers<Extended, Refusal> {
        let ids: Vec<_> = request.items.iter().map(|item| item.id.clone()).collect();
        for item in &mut request.items {
            item.token = self.inner(&item.id, item.token);
        }
        let call = async {
            let answers = self.store.extend_leases(request).await?.into_iter().zip(ids);
            Ok(answers.map(|(answer, id)| answer.map(|it| self.rotated(&id, it))).collect())
        };
        self.call(Op::Extend, call).await
    }

    async fn settle(&self, mut request: Settle) -> Answers<Settled, Refusal> {
        for item in &mut request.items {
            item.token = self.inner(&item.id, item.token);
        }
        self.call(Op::Settle, self.store.settle(request)).await
    }

    async fn outputs(&self, request: Outputs) -> Answers<OutputPage, Refusal> {
        self.call(Op::Outputs, self.store.outputs(request)).await
    }

    async fn watch(&self, queues: Vec<QueueName>) -> Result<Watch, DriverError> {
        let hints = self.plan(|plan| plan.hints.clone());
        let watch = async {
            match hints {
                Hints::Store => self.store.watch(queues).await,
                Hints::Hub(hub) => Ok(hub.watch(queues)),
                Hints::Nowhere => Ok(Watch::never()),
            }
        };
        self.call(Op::Watch, watch).await
    }

    async fn store_time(&self) -> Result<Timestamp, DriverError> {
        self.call(Op::Time, self.store.store_time()).await
    }

    async fn close(&self) -> Result<(), DriverError> {
        self.store.close().await
    }
}

delegate_admin!(Unkind, store, prune: remove_old);
