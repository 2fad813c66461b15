//! The store as a client sees it: every call is bounded in time.

use std::{fmt, sync::Arc, time::Duration};

use taskharbor_core::{
    Admin, AnyDriver, Driver, DriverError, JobId, State, Timestamp,
    admin::{
        Configure, Counts, Evict, Evicted, LaneStatus, List, ListLanes, ListSettings, ListWorkers,
        Manage, Page, QueueCounts, Setting, WorkerRecord,
    },
    driver::{Answers, Due, DueSchedules, Enqueue, Enqueued, Limits, OutputPage, Outputs, Watch},
    error::{Denied, Refusal, Rejected},
    flow::FlowRecord,
    job::{JobRecord, JobSummary},
};

use super::within::Within;
use crate::{
    Operation,
    deadline::in_time,
    flow::{graph::Records, read::Source},
    observe::Observers,
};

#[derive(Clone)]
pub(super) struct Store {
    driver: AnyDriver,
    pub(super) call_timeout: Duration,
    pub(super) observers: Observers,
}

impl Store {
    pub(super) fn new(driver: &AnyDriver) -> Self {
        let (driver, observers) = (driver.clone(), Observers::new(Vec::new()));
        Self { driver, call_timeout: Duration::from_secs(30), observers }
    }

    pub(super) async fn now(&self) -> Result<Timestamp, DriverError> {
        self.call(Operation::StoreTime, 0, self.driver.now()).await
    }

    pub(super) async fn enqueue(&self, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        let jobs = job_count(&request);
        self.call(Operation::Enqueue, jobs, self.driver.enqueue(request)).await
    }

    pub(super) fn driver(&self) -> &AnyDriver {
        &self.driver
    }

    pub(super) async fn enqueue_within(
        &self,
        within: &mut Within<'_>,
        request: Enqueue,
    ) -> Answers<Vec<Enqueued>, Rejected> {
        let jobs = job_count(&request);
        self.call(Operation::Enqueue, jobs, within.enqueue(request)).await
    }

    pub(super) async fn outputs(&self, request: Outputs) -> Answers<OutputPage, Refusal> {
        let queries = request.items.len();
        self.call(Operation::Outputs, queries, self.driver.outputs(request)).await
    }

    /// A watch of this job that never wakes, if the store has none to give: the look that follows tells
    /// why.
    pub(super) async fn watch_job(&self, id: JobId) -> Watch {
        let watch = in_time(self.call_timeout, self.driver.watch_job(id)).await;
        watch.unwrap_or_else(|_| Watch::never())
    }

    pub(super) async fn manage(&self, request: Manage) -> Answers<State, Denied> {
        let jobs = request.ids.len();
        self.call(Operation::Manage, jobs, self.driver.manage(request)).await
    }

    pub(super) async fn counts(&self, request: Counts) -> Result<Vec<QueueCounts>, DriverError> {
        self.call(Operation::Counts, 0, self.driver.counts(request)).await
    }

    pub(super) async fn configure(&self, request: Configure) -> Answers<(), Denied> {
        let changes = request.changes.len();
        self.call(Operation::Configure, changes, self.driver.configure(request)).await
    }

    pub(super) async fn settings(
        &self,
        request: ListSettings,
    ) -> Result<Page<Setting>, DriverError> {
        self.call(Operation::Settings, 0, self.driver.settings(request)).await
    }

    pub(super) async fn lanes(&self, request: ListLanes) -> Result<Page<LaneStatus>, DriverError> {
        self.call(Operation::Lanes, 0, self.driver.lanes(request)).await
    }

    pub(super) async fn workers(
        &self,
        request: ListWorkers,
    ) -> Result<Page<WorkerRecord>, DriverError> {
        self.call(Operation::Workers, 0, self.driver.workers(request)).await
    }

    pub(super) async fn evict(&self, request: Evict) -> Result<Evicted, DriverError> {
        self.call(Operation::Evict, 1, self.driver.evict(request)).await
    }

    pub(super) async fn due_schedules(&self, request: DueSchedules) -> Result<Due, DriverError> {
        self.call(Operation::DueSchedules, 0, self.driver.due_schedules(request)).await
    }

    pub(super) fn limits(&self) -> Limits {
        self.driver.limits()
    }

    /// This store as a source of outputs.
    pub(super) fn source(&self) -> Source {
        let store = self.clone();
        Arc::new(move |request| {
            let store = store.clone();
            Box::pin(async move { store.outputs(request).await })
        })
    }

    /// Waits for a call, bounds the time it takes and tells observers of it.
    async fn call<T>(
        &self,
        operation: Operation,
        items: usize,
        call: impl Future<Output = Result<T, DriverError>>,
    ) -> Result<T, DriverError> {
        self.observers.call(operation, items, in_time(self.call_timeout, call)).await
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.driver).finish()
    }
}

/// Reading records, for the state of a job and the tree of a flow.
impl Records for Store {
    async fn flow(&self, id: JobId, now: Timestamp) -> Result<Option<FlowRecord>, DriverError> {
        self.call(Operation::InspectFlow, 1, Admin::flow(&self.driver, id, now)).await
    }

    async fn inspect(&self, id: JobId, now: Timestamp) -> Result<Option<JobRecord>, DriverError> {
        self.call(Operation::Inspect, 1, Admin::inspect(&self.driver, id, now)).await
    }

    async fn list(&self, request: List) -> Result<Page<JobSummary>, DriverError> {
        self.call(Operation::List, 0, Admin::list(&self.driver, request)).await
    }
}

fn job_count(request: &Enqueue) -> usize {
    request.sets.iter().map(|set| set.jobs.len()).sum()
}
