//! [`SqliteDriver`] for people.

use taskharbor_core::{
    Admin, DriverError, JobId, QueueName, State, Timestamp,
    admin::{Cursor, Inconsistency, List, Manage, Page, Prune, QueueCounts},
    driver::Answers,
    error::Denied,
    export::{ExportUnit, Imported},
    flow::{FlowRecord, ListFlows},
    job::{JobRecord, JobSummary},
};

use crate::{SqliteDriver, call::Ask};

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

    async fn counts(&self, now: Timestamp) -> Result<Vec<QueueCounts>, DriverError> {
        self.check_open()?;
        self.read(move |store| store.counts(now)).await
    }

    async fn manage(&self, request: Manage) -> Answers<State, Denied> {
        self.check_open()?;
        request.check()?;
        self.write(Ask::about(request.ids.len()), move |store| store.manage(&request)).await
    }

    async fn pause(&self, queue: QueueName, now: Timestamp) -> Result<(), DriverError> {
        self.check_open()?;
        self.write(Ask::about(1), move |store| store.pause(&queue, now)).await
    }

    async fn resume(&self, queue: QueueName) -> Result<(), DriverError> {
        self.check_open()?;
        self.write(Ask::about(1), move |store| store.resume(&queue)).await
    }

    async fn prune(&self, request: Prune) -> Result<usize, DriverError> {
        self.check_open()?;
        request.check()?;
        self.write(Ask::about(request.limit), move |store| store.prune(&request)).await
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
        self.read(move |store| store.export(after.as_ref(), limit)).await
    }

    async fn import(&self, parcels: Vec<ExportUnit>) -> Result<Vec<Imported>, DriverError> {
        self.check_open()?;
        let jobs = parcels.iter().map(|parcel| parcel.jobs.len()).sum();
        self.write(Ask::about(jobs), move |store| store.import(&parcels)).await
    }

    async fn check(&self) -> Result<Vec<Inconsistency>, DriverError> {
        self.check_open()?;
        self.read(|store| store.check()).await
    }
}
