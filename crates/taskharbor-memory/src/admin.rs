//! [`MemoryDriver`] for people.

use taskharbor_core::{
    Admin, DriverError, JobId, QueueName, State, Timestamp,
    admin::{Cursor, Inconsistency, List, Manage, Page, Prune, QueueCounts},
    driver::Answers,
    error::Denied,
    export::{ExportUnit, Imported},
    flow::{FlowRecord, ListFlows},
    job::{JobRecord, JobSummary},
};

use crate::MemoryDriver;

impl Admin for MemoryDriver {
    async fn migrate(&self) -> Result<(), DriverError> {
        self.lock().map(drop)
    }

    async fn inspect(&self, id: JobId, now: Timestamp) -> Result<Option<JobRecord>, DriverError> {
        let store = self.lock()?;
        Ok(store.slot(&id).map(|slot| store.record(slot, now)))
    }

    async fn list(&self, request: List) -> Result<Page<JobSummary>, DriverError> {
        let store = self.lock()?;
        request.check()?;
        Ok(store.list(&request)?)
    }

    async fn counts(&self, now: Timestamp) -> Result<Vec<QueueCounts>, DriverError> {
        Ok(self.lock()?.counts(now))
    }

    async fn manage(&self, request: Manage) -> Answers<State, Denied> {
        self.act(|store, wakes| {
            request.check()?;
            Ok(store.manage(&request, wakes))
        })
    }

    async fn pause(&self, queue: QueueName, now: Timestamp) -> Result<(), DriverError> {
        self.act(|store, _| {
            let queue = store.queue(&queue);
            store.queues[queue].paused_since.get_or_insert(now);
            Ok(())
        })
    }

    async fn resume(&self, queue: QueueName) -> Result<(), DriverError> {
        self.act(|store, wakes| {
            if let Some(at) = store.queue_ids.get(&queue).copied() {
                store.queues[at].paused_since = None;
                store.forget_if_idle(at);
                wakes.push(queue);
            }
            Ok(())
        })
    }

    async fn prune(&self, request: Prune) -> Result<usize, DriverError> {
        self.act(|store, _| {
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
        Ok(self.lock()?.export(after.as_ref(), limit)?)
    }

    async fn import(&self, parcels: Vec<ExportUnit>) -> Result<Vec<Imported>, DriverError> {
        self.act(|store, wakes| {
            Ok(parcels.into_iter().map(|parcel| store.import(parcel, wakes)).collect())
        })
    }

    async fn check(&self) -> Result<Vec<Inconsistency>, DriverError> {
        Ok(self.lock()?.check())
    }
}
