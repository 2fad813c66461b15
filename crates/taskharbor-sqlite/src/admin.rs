//! The operations of [`SqliteDriver`] for operators and tools.

use taskharbor_core::{
    Admin, DriverError, JobId, State, Timestamp,
    admin::{
        Action, Configure, Counts, Cursor, Diagnosis, Evict, Evicted, Inconsistency, LaneStatus,
        List, ListLanes, ListSettings, ListWorkers, Manage, Page, Prune, QueueCounts, Setting,
        WorkerRecord,
    },
    driver::Answers,
    error::Denied,
    export::{ExportUnit, ImportRefused, Imported},
    flow::{FlowRecord, ListFlows},
    job::{JobRecord, JobSummary},
};

use crate::{
    SqliteDriver,
    call::Ask,
    room,
    store::{Store, flow::REMOVAL_STEP},
};

impl SqliteDriver {
    /// Deletes what is left of large flows that were removed, also by a call that was interrupted, in
    /// steps between which others write. The flows are gone for every caller already, so a step that
    /// fails fails no call: the next one that removes goes on with it.
    async fn delete_removed(&self) {
        let mut left = self.read(|store| store.has_removed()).await;
        while let Ok(true) = left {
            let step = Ask::about(REMOVAL_STEP);
            left = self.write(step, |store| store.delete_removed(REMOVAL_STEP)).await;
        }
        if let Err(error) = left {
            tracing::debug!(%error, "members of removed flows are left for the next call");
        }
    }
}

impl Admin for SqliteDriver {
    async fn migrate(&self) -> Result<(), DriverError> {
        self.check_open()?;
        let asked = Ask { weight: 1, needs_version: false };
        self.write(asked, |store| store.migrate()).await
    }

    async fn inspect(&self, id: JobId, now: Timestamp) -> Result<Option<JobRecord>, DriverError> {
        self.check_open()?;
        self.read(move |store| store.inspect(&id, now)).await
    }

    async fn list(&self, request: List) -> Result<Page<JobSummary>, DriverError> {
        self.check_open()?;
        request.check()?;
        self.read(move |store| store.list(&request)).await
    }

    async fn counts(&self, request: Counts) -> Result<Vec<QueueCounts>, DriverError> {
        self.check_open()?;
        request.check()?;
        self.read(move |store| store.counts(&request)).await
    }

    async fn manage(&self, request: Manage) -> Answers<State, Denied> {
        self.check_open()?;
        request.check()?;
        let asked = Ask::about(request.ids.len());
        let purges = matches!(request.action, Action::PurgeFlow);
        let ids = request.ids.clone();
        let answers = self.write(asked, move |store| store.manage(&request)).await?;
        self.wake_jobs(&ids);
        if purges {
            self.delete_removed().await;
        }
        Ok(answers)
    }

    async fn configure(&self, request: Configure) -> Answers<(), Denied> {
        self.check_open()?;
        request.check()?;
        self.write(Ask::about(request.changes.len()), move |store| store.configure(&request)).await
    }

    async fn settings(&self, request: ListSettings) -> Result<Page<Setting>, DriverError> {
        self.check_open()?;
        request.check()?;
        self.read(move |store| store.settings(&request)).await
    }

    async fn lanes(&self, request: ListLanes) -> Result<Page<LaneStatus>, DriverError> {
        self.check_open()?;
        request.check()?;
        self.read(move |store| store.lanes(&request)).await
    }

    async fn workers(&self, request: ListWorkers) -> Result<Page<WorkerRecord>, DriverError> {
        self.check_open()?;
        request.check()?;
        self.read(move |store| store.workers(&request)).await
    }

    async fn evict(&self, request: Evict) -> Result<Evicted, DriverError> {
        self.check_open()?;
        self.write(Ask::about(1), move |store| store.evict(&request)).await
    }

    async fn prune(&self, request: Prune) -> Result<usize, DriverError> {
        self.check_open()?;
        request.check()?;
        let removed =
            self.write(Ask::about(request.limit), move |store| store.prune(&request)).await?;
        self.delete_removed().await;
        Ok(removed)
    }

    async fn flow(&self, id: JobId, now: Timestamp) -> Result<Option<FlowRecord>, DriverError> {
        self.check_open()?;
        self.read(move |store| store.flow_record(&id, now)).await
    }

    async fn list_flows(&self, request: ListFlows) -> Result<Page<FlowRecord>, DriverError> {
        self.check_open()?;
        request.check()?;
        self.read(move |store| store.list_flows(&request)).await
    }

    async fn export(
        &self,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<ExportUnit>, DriverError> {
        self.check_open()?;
        ExportUnit::check_limit(limit)?;
        self.read(move |store| store.export(after.as_ref(), limit)).await
    }

    async fn import(&self, units: Vec<ExportUnit>) -> Answers<Imported, ImportRefused> {
        self.check_open()?;
        let jobs = units.iter().map(|unit| unit.jobs.len().max(1)).sum();
        let config = self.config().clone();
        let work = move |store: &mut Store<'_>| {
            room::check(store.conn(), &config)?;
            store.import(&units)
        };
        self.write(Ask::about(jobs), work).await
    }

    async fn diagnose(&self) -> Result<Vec<Diagnosis>, DriverError> {
        self.check_open()?;
        Ok(self.diagnose_file())
    }

    async fn check(&self) -> Result<Vec<Inconsistency>, DriverError> {
        self.check_open()?;
        self.read(|store| store.check()).await
    }
}
