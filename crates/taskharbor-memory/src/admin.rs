//! The operations of [`MemoryDriver`] for operators and tools.

use taskharbor_core::{
    Admin, DriverError, JobId, State, Timestamp,
    admin::{
        Configure, Counts, Cursor, Evict, Evicted, Inconsistency, LaneStatus, List, ListLanes,
        ListSettings, ListWorkers, Manage, Page, Prune, QueueCounts, Setting, WorkerRecord,
    },
    driver::Answers,
    error::Denied,
    export::{ExportUnit, ImportRefused, Imported},
    flow::{FlowRecord, ListFlows},
    job::{JobRecord, JobSummary},
};

use crate::MemoryDriver;

impl Admin for MemoryDriver {
    async fn migrate(&self) -> Result<(), DriverError> {
        // ADM-11
        self.lock().map(drop)
    }

    async fn inspect(&self, id: JobId, now: Timestamp) -> Result<Option<JobRecord>, DriverError> {
        let store = self.lock()?;
        Ok(store.slot(&id).map(|slot| store.inspect(slot, now)))
    }

    async fn list(&self, request: List) -> Result<Page<JobSummary>, DriverError> {
        let store = self.lock()?;
        request.check()?;
        Ok(store.list(&request)?)
    }

    async fn counts(&self, request: Counts) -> Result<Vec<QueueCounts>, DriverError> {
        let store = self.lock()?;
        request.check()?;
        Ok(store.counts(request.now))
    }

    async fn manage(&self, request: Manage) -> Answers<State, Denied> {
        self.act(|store| {
            request.check()?;
            Ok(store.manage(&request))
        })
        .inspect(|_| self.wake_jobs(&request.ids))
    }

    async fn configure(&self, request: Configure) -> Answers<(), Denied> {
        self.act(|store| {
            request.check()?;
            Ok(store.configure(request))
        })
    }

    async fn settings(&self, request: ListSettings) -> Result<Page<Setting>, DriverError> {
        let store = self.lock()?;
        request.check()?;
        Ok(store.settings(&request)?)
    }

    async fn lanes(&self, request: ListLanes) -> Result<Page<LaneStatus>, DriverError> {
        let store = self.lock()?;
        request.check()?;
        Ok(store.lanes(&request)?)
    }

    async fn workers(&self, request: ListWorkers) -> Result<Page<WorkerRecord>, DriverError> {
        let store = self.lock()?;
        request.check()?;
        Ok(store.list_workers(&request)?)
    }

    async fn evict(&self, request: Evict) -> Result<Evicted, DriverError> {
        self.act(|store| Ok(store.evict(&request)))
    }

    async fn prune(&self, request: Prune) -> Result<usize, DriverError> {
        self.act(|store| {
            request.check()?;
            Ok(store.prune(&request))
        })
    }

    async fn flow(&self, id: JobId, now: Timestamp) -> Result<Option<FlowRecord>, DriverError> {
        let store = self.lock()?;
        Ok(store.flow_ids.get(&id).map(|flow| store.flow_record(*flow, now)))
    }

    async fn list_flows(&self, request: ListFlows) -> Result<Page<FlowRecord>, DriverError> {
        let store = self.lock()?;
        request.check()?;
        Ok(store.list_flows(&request)?)
    }

    async fn export(
        &self,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<ExportUnit>, DriverError> {
        let store = self.lock()?;
        ExportUnit::check_limit(limit)?;
        Ok(store.export(after.as_ref(), limit)?)
    }

    async fn import(&self, units: Vec<ExportUnit>) -> Answers<Imported, ImportRefused> {
        // MOV-3
        self.act(|store| Ok(units.into_iter().map(|unit| store.import(unit)).collect()))
    }

    async fn check(&self) -> Result<Vec<Inconsistency>, DriverError> {
        Ok(self.lock()?.check())
    }
}
