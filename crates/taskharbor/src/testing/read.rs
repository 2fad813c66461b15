//! Reading jobs from a [`Harbor`], and assertions about them.

use taskharbor_core::{
    Admin, Blob, JobId, JobType, State,
    admin::Filter,
    driver::{OpenTransaction, Transaction},
    job::{Headers, JobRecord, JobSummary},
};

use super::Harbor;
use crate::{Job, codec::Format};

/// A job as it is stored, with its data.
#[derive(Debug)]
#[non_exhaustive]
pub struct StoredJob<J> {
    /// The job's data, as it was enqueued.
    pub job: J,
    /// The job's record in the store.
    pub record: JobRecord,
}

#[expect(clippy::panic, reason = "a test that cannot go on fails, as an assertion does")]
impl Harbor {
    /// Returns the record of a job.
    ///
    /// # Panics
    ///
    /// If no such job is stored.
    pub async fn record(&self, id: &JobId) -> JobRecord {
        let record = self.driver().inspect(id.clone(), self.now().await).await;
        match record {
            Ok(Some(record)) => record,
            Ok(None) => panic!("no job {id} is stored"),
            Err(error) => panic!("job {id} cannot be read: {error}"),
        }
    }

    /// Returns the state of a job.
    ///
    /// # Panics
    ///
    /// If no such job is stored.
    pub async fn state(&self, id: &JobId) -> State {
        self.record(id).await.state
    }

    /// Returns all jobs of a type, in the order in which they were enqueued.
    ///
    /// # Panics
    ///
    /// If one cannot be read as that type.
    pub async fn jobs<J: Job>(&self) -> Vec<StoredJob<J>> {
        let mut jobs = Vec::new();
        for record in self.records().await {
            if record.job.job_type.as_str() != J::TYPE {
                continue;
            }
            let job = decoded(&record.job.id, &record.job.headers, &record.job.payload);
            jobs.push(StoredJob { job, record });
        }
        jobs
    }

    /// Returns the records of all stored jobs, in the order in which they were enqueued.
    pub async fn records(&self) -> Vec<JobRecord> {
        let mut records = Vec::new();
        for summary in self.list(Filter::all()).await {
            records.push(self.record(&summary.id).await);
        }
        records
    }

    pub(super) async fn list(&self, filter: Filter) -> Vec<JobSummary> {
        let listed = self.client().jobs(filter).list(usize::MAX).await;
        listed.unwrap_or_else(|error| panic!("the jobs cannot be listed: {error}"))
    }

    /// Does the same as [`Harbor::assert_enqueued`] inside an open transaction, and also finds jobs
    /// that were enqueued in it and are not committed. Returns the id of the job.
    ///
    /// # Panics
    ///
    /// If no such job is found, or the transaction belongs to another store.
    pub async fn assert_enqueued_in<J: Job, M>(
        &self,
        transaction: impl OpenTransaction<M>,
        looks_right: impl Fn(&J) -> bool,
    ) -> JobId {
        let Some(mut transaction) = transaction.on(self.driver()) else {
            panic!("the transaction belongs to another store than the harbor's");
        };
        let job_type = JobType::new(J::TYPE).unwrap_or_else(|error| panic!("{error}"));
        let seen = transaction.stored(job_type).await;
        let seen = seen.unwrap_or_else(|error| panic!("the jobs cannot be read: {error}"));
        let count = seen.len();
        let found =
            seen.into_iter().find(|it| looks_right(&decoded(&it.id, &it.headers, &it.payload)));
        match found {
            Some(job) => job.id,
            None => panic!("none of the {count} jobs of type {:?} looks as expected", J::TYPE),
        }
    }

    /// Asserts that a job of this type was enqueued for which `looks_right` is true, and returns
    /// its record.
    ///
    /// # Panics
    ///
    /// If no such job was enqueued.
    pub async fn assert_enqueued<J: Job>(&self, looks_right: impl Fn(&J) -> bool) -> JobRecord {
        let jobs = self.jobs::<J>().await;
        let count = jobs.len();
        let found = jobs.into_iter().find(|stored| looks_right(&stored.job));
        match found {
            Some(stored) => stored.record,
            None => panic!("none of the {count} jobs of type {:?} looks as expected", J::TYPE),
        }
    }
}

/// The data of a job.
#[expect(clippy::panic, reason = "a test that cannot go on fails, as an assertion does")]
fn decoded<J: Job>(id: &JobId, headers: &Headers, payload: &Blob) -> J {
    let name = Format::named_in(headers);
    let format = Format::known().into_iter().find(|format| format.name() == name);
    let format = format.unwrap_or_else(|| panic!("no codec {name:?} is known"));
    format.decode(payload).unwrap_or_else(|error| panic!("job {id} cannot be read: {error}"))
}
