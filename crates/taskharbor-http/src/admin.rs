//! The operations of [`Admin`], for people and tools.

use taskharbor_core::{
    Admin, DriverError, JobId, State, Timestamp,
    admin::{
        Configure, Counts, Cursor, Diagnosis, Evict, Evicted, Inconsistency, LaneStatus, List,
        ListLanes, ListSettings, ListWorkers, Manage, Page, Prune, QueueCounts, Setting,
        WorkerRecord,
    },
    driver::Answers,
    error::Denied,
    export::{ExportUnit, ImportRefused, Imported},
    flow::{FlowRecord, ListFlows},
    job::{JobRecord, JobSummary},
    wire::{Export, Import, Nothing, One, operation},
};

use crate::HttpDriver;

impl Admin for HttpDriver {
    async fn migrate(&self) -> Result<(), DriverError> {
        self.call::<operation::Migrate>(Nothing {}).await
    }

    async fn inspect(&self, id: JobId, now: Timestamp) -> Result<Option<JobRecord>, DriverError> {
        self.call::<operation::Inspect>(One { id, now }).await
    }

    async fn list(&self, request: List) -> Result<Page<JobSummary>, DriverError> {
        self.call::<operation::ListJobs>(request).await
    }

    async fn counts(&self, request: Counts) -> Result<Vec<QueueCounts>, DriverError> {
        self.call::<operation::CountJobs>(request).await
    }

    async fn manage(&self, request: Manage) -> Answers<State, Denied> {
        Ok(self.call::<operation::ManageJobs>(request).await?.into())
    }

    async fn configure(&self, request: Configure) -> Answers<(), Denied> {
        self.check_open()?;
        // An invalid name of a lane has no form in JSON: the server would not see it. LIM-9
        request.check()?;
        Ok(self.call::<operation::ConfigureStore>(request).await?.into())
    }

    async fn settings(&self, request: ListSettings) -> Result<Page<Setting>, DriverError> {
        self.call::<operation::ReadSettings>(request).await
    }

    async fn lanes(&self, request: ListLanes) -> Result<Page<LaneStatus>, DriverError> {
        self.call::<operation::ReadLanes>(request).await
    }

    async fn workers(&self, request: ListWorkers) -> Result<Page<WorkerRecord>, DriverError> {
        self.call::<operation::ReadWorkers>(request).await
    }

    async fn evict(&self, request: Evict) -> Result<Evicted, DriverError> {
        self.call::<operation::EvictWorker>(request).await
    }

    async fn prune(&self, request: Prune) -> Result<usize, DriverError> {
        self.call::<operation::PruneJobs>(request).await
    }

    async fn flow(&self, id: JobId, now: Timestamp) -> Result<Option<FlowRecord>, DriverError> {
        self.call::<operation::ReadFlow>(One { id, now }).await
    }

    async fn list_flows(&self, request: ListFlows) -> Result<Page<FlowRecord>, DriverError> {
        self.call::<operation::ReadFlows>(request).await
    }

    async fn export(
        &self,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<ExportUnit>, DriverError> {
        self.call::<operation::ExportUnits>(Export { after, limit }).await
    }

    async fn import(&self, units: Vec<ExportUnit>) -> Answers<Imported, ImportRefused> {
        Ok(self.call::<operation::ImportUnits>(Import { units }).await?.into())
    }

    async fn diagnose(&self) -> Result<Vec<Diagnosis>, DriverError> {
        self.call::<operation::Diagnose>(Nothing {}).await
    }

    async fn check(&self) -> Result<Vec<Inconsistency>, DriverError> {
        self.call::<operation::CheckStore>(Nothing {}).await
    }
}
