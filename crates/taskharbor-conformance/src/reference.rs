//! The model as a driver, whose behaviour can be bent.
//!
//! Unbent it must pass the suite like any other driver. Bent in one place it must not: that is how
//! the suite itself is tested.

use std::sync::{Mutex, MutexGuard};

use taskharbor_core::{
    Admin, Driver, DriverError, JobId, QueueName, State, Timestamp,
    admin::{
        Configure, Counts, Cursor, Evict, Evicted, Inconsistency, LaneStatus, List, ListLanes,
        ListSettings, ListWorkers, Manage, Page, Prune, QueueCounts, Setting, WorkerRecord,
    },
    clock::StoreClock,
    driver::{
        Announce, Answers, Due, DueSchedules, Enqueue, Enqueued, ExtendLeases, Extended, Fire,
        Limits, OutputPage, Outputs, Reserve, Reserved, Settle, Settled, WakeHub, Watch,
    },
    error::{Denied, FireRefused, Refusal, Rejected},
    export::{ExportUnit, ImportRefused, Imported},
    flow::{FlowRecord, ListFlows},
    job::{JobRecord, JobSummary},
};

use crate::model::Model;

/// What a driver does with the model; by default what the contract says.
pub(crate) trait Behaviour: Send + Sync + 'static {
    fn enqueue(&self, model: &mut Model, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        model.enqueue(request)
    }

    /// Whether enqueue looks at the store first and writes a moment later.
    fn looks_first(&self) -> bool {
        false
    }

    /// Enqueues by what the store looked like a moment ago.
    fn enqueue_after_look(
        &self,
        _then: Model,
        model: &mut Model,
        request: Enqueue,
    ) -> Answers<Vec<Enqueued>, Rejected> {
        model.enqueue(request)
    }

    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        model.reserve(&request)
    }

    /// Whether reserve looks at the store first and grants a moment later.
    fn reserve_looks_first(&self) -> bool {
        false
    }

    /// Reserves by what the store looked like a moment ago.
    fn reserve_after_look(
        &self,
        _then: Model,
        model: &mut Model,
        request: Reserve,
    ) -> Result<Reserved, DriverError> {
        model.reserve(&request)
    }

    /// Whether the driver has wake-ups.
    fn has_wakes(&self) -> bool {
        false
    }

    /// The queues whose watches are woken after a change.
    fn wakes(&self, _before: &Model, _after: &Model) -> Vec<QueueName> {
        Vec::new()
    }

    fn extend(&self, model: &mut Model, request: ExtendLeases) -> Answers<Extended, Refusal> {
        model.extend(request)
    }

    fn settle(&self, model: &mut Model, request: Settle) -> Answers<Settled, Refusal> {
        model.settle(request)
    }

    /// Something to be done a moment after a settlement.
    fn after_settle(&self, _model: &mut Model, _settled: &[JobId], _now: Timestamp) {}

    fn fire(&self, model: &mut Model, request: Fire) -> Answers<Vec<Enqueued>, FireRefused> {
        model.fire(request)
    }

    fn due_schedules(&self, model: &Model, request: DueSchedules) -> Result<Due, DriverError> {
        model.due_schedules(&request)
    }

    fn configure(&self, model: &mut Model, request: Configure) -> Answers<(), Denied> {
        model.configure(request)
    }

    fn manage(&self, model: &mut Model, request: Manage) -> Answers<State, Denied> {
        model.manage(&request)
    }

    fn prune(&self, model: &mut Model, request: Prune) -> Result<usize, DriverError> {
        model.prune(&request)
    }

    fn list(&self, model: &Model, request: List) -> Result<Page<JobSummary>, DriverError> {
        model.list(&request)
    }

    fn outputs(&self, model: &Model, request: Outputs) -> Answers<OutputPage, Refusal> {
        model.outputs(&request)
    }

    fn counts(&self, model: &Model, request: Counts) -> Result<Vec<QueueCounts>, DriverError> {
        model.counts(request)
    }

    fn announce(&self, model: &mut Model, request: Announce) -> Result<(), DriverError> {
        model.announce(request)
    }

    fn workers(
        &self,
        model: &Model,
        request: ListWorkers,
    ) -> Result<Page<WorkerRecord>, DriverError> {
        model.list_workers(&request)
    }

    fn evict(&self, model: &mut Model, request: Evict) -> Evicted {
        model.evict(&request)
    }

    fn import(
        &self,
        model: &mut Model,
        units: Vec<ExportUnit>,
    ) -> Answers<Imported, ImportRefused> {
        model.import(units)
    }

    /// The bounds that the driver declares.
    fn limits(&self) -> Limits {
        Limits::default()
    }
}

/// As the contract says.
pub(crate) struct Honest;

impl Behaviour for Honest {}

/// The model behind a lock.
pub(crate) struct ModelDriver {
    model: Mutex<Option<Model>>,
    behaviour: Box<dyn Behaviour>,
    hub: WakeHub,
}

impl ModelDriver {
    pub(crate) fn new(behaviour: Box<dyn Behaviour>) -> Self {
        let model = Model { limits: behaviour.limits(), ..Model::default() };
        Self { model: Mutex::new(Some(model)), behaviour, hub: WakeHub::new() }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Model) -> T) -> Result<T, DriverError> {
        let mut guard = self.lock();
        let model = guard.as_mut().ok_or(DriverError::Closed)?;
        if !self.behaviour.has_wakes() {
            return Ok(act(model));
        }
        let before = model.clone();
        let answer = act(model);
        self.hub.wake(&self.behaviour.wakes(&before, model));
        Ok(answer)
    }

    /// `None` once the driver is closed.
    fn lock(&self) -> MutexGuard<'_, Option<Model>> {
        self.model.lock().expect("no panic while it is locked")
    }
}

impl Driver for ModelDriver {
    fn limits(&self) -> Limits {
        self.behaviour.limits()
    }

    async fn enqueue(&self, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        if !self.behaviour.looks_first() {
            return self.with(|model| self.behaviour.enqueue(model, request))?;
        }
        let then = self.with(|model| model.clone())?;
        tokio::task::yield_now().await;
        self.with(|model| self.behaviour.enqueue_after_look(then, model, request))?
    }

    async fn reserve(&self, request: Reserve) -> Result<Reserved, DriverError> {
        if !self.behaviour.reserve_looks_first() {
            return self.with(|model| self.behaviour.reserve(model, request))?;
        }
        let then = self.with(|model| model.clone())?;
        tokio::task::yield_now().await;
        self.with(|model| self.behaviour.reserve_after_look(then, model, request))?
    }

    async fn extend_leases(&self, request: ExtendLeases) -> Answers<Extended, Refusal> {
        self.with(|model| self.behaviour.extend(model, request))?
    }

    async fn settle(&self, request: Settle) -> Answers<Settled, Refusal> {
        let now = request.now;
        let ids: Vec<JobId> = request.items.iter().map(|item| item.id.clone()).collect();
        let answers = self.with(|model| self.behaviour.settle(model, request))??;
        tokio::task::yield_now().await;
        self.with(|model| self.behaviour.after_settle(model, &ids, now))?;
        Ok(answers)
    }

    async fn outputs(&self, request: Outputs) -> Answers<OutputPage, Refusal> {
        self.with(|model| self.behaviour.outputs(model, request))?
    }

    async fn due_schedules(&self, request: DueSchedules) -> Result<Due, DriverError> {
        self.with(|model| self.behaviour.due_schedules(model, request))?
    }

    async fn fire(&self, request: Fire) -> Answers<Vec<Enqueued>, FireRefused> {
        self.with(|model| self.behaviour.fire(model, request))?
    }

    async fn announce(&self, request: Announce) -> Result<(), DriverError> {
        self.with(|model| self.behaviour.announce(model, request))?
    }

    async fn watch(&self, queues: Vec<QueueName>) -> Result<Watch, DriverError> {
        let has_wakes = self.behaviour.has_wakes();
        self.with(|_| if has_wakes { self.hub.watch(queues) } else { Watch::never() })
    }

    async fn store_time(&self) -> Result<Timestamp, DriverError> {
        self.with(|_| StoreClock::wall_time())
    }

    async fn close(&self) -> Result<(), DriverError> {
        *self.lock() = None;
        self.hub.close();
        Ok(())
    }
}

impl Admin for ModelDriver {
    async fn migrate(&self) -> Result<(), DriverError> {
        self.with(|_| ())
    }

    async fn inspect(&self, id: JobId, now: Timestamp) -> Result<Option<JobRecord>, DriverError> {
        self.with(|model| model.find(&id).map(|at| model.record(at, now)))
    }

    async fn list(&self, request: List) -> Result<Page<JobSummary>, DriverError> {
        self.with(|model| self.behaviour.list(model, request))?
    }

    async fn counts(&self, request: Counts) -> Result<Vec<QueueCounts>, DriverError> {
        self.with(|model| self.behaviour.counts(model, request))?
    }

    async fn manage(&self, request: Manage) -> Answers<State, Denied> {
        self.with(|model| self.behaviour.manage(model, request))?
    }

    async fn configure(&self, request: Configure) -> Answers<(), Denied> {
        self.with(|model| self.behaviour.configure(model, request))?
    }

    async fn settings(&self, request: ListSettings) -> Result<Page<Setting>, DriverError> {
        self.with(|model| model.settings(&request))?
    }

    async fn lanes(&self, request: ListLanes) -> Result<Page<LaneStatus>, DriverError> {
        self.with(|model| model.lanes(&request))?
    }

    async fn workers(&self, request: ListWorkers) -> Result<Page<WorkerRecord>, DriverError> {
        self.with(|model| self.behaviour.workers(model, request))?
    }

    async fn evict(&self, request: Evict) -> Result<Evicted, DriverError> {
        self.with(|model| self.behaviour.evict(model, request))
    }

    async fn prune(&self, request: Prune) -> Result<usize, DriverError> {
        self.with(|model| self.behaviour.prune(model, request))?
    }

    async fn flow(&self, id: JobId, now: Timestamp) -> Result<Option<FlowRecord>, DriverError> {
        self.with(|model| model.flow(&id).map(|flow| model.flow_record(flow, now)))
    }

    async fn list_flows(&self, request: ListFlows) -> Result<Page<FlowRecord>, DriverError> {
        self.with(|model| model.list_flows(&request))?
    }

    async fn export(
        &self,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<ExportUnit>, DriverError> {
        self.with(|model| model.export(after.as_ref(), limit))?
    }

    async fn import(&self, units: Vec<ExportUnit>) -> Answers<Imported, ImportRefused> {
        self.with(|model| self.behaviour.import(model, units))?
    }

    async fn check(&self) -> Result<Vec<Inconsistency>, DriverError> {
        self.with(|_| Vec::new())
    }
}
