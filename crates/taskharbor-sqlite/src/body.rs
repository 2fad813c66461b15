//! The immutable half of a job, read back.

use std::time::Duration;

use rusqlite::{Row, types::ValueRef};
use taskharbor_core::{
    Blob, JobType, NewJob, Text, Timestamp,
    job::{Headers, JobRecord, JobSummary, JobView},
    life::Life,
    name::IdempotencyKey,
};

use crate::{
    entry::{COLUMNS, Entry, name, number, optional_number, text, time},
    error::Fault,
};

/// Where the columns of a body stand in a row that starts with those of its job.
const TYPE: usize = COLUMNS;
/// Where what follows them does: the payload or its length.
pub(crate) const AFTER_BODY: usize = COLUMNS + 7;

/// A job as it was enqueued.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) new: NewJob,
    pub(crate) created_at: Timestamp,
    /// How many outputs the job reads.
    pub(crate) parents: usize,
}

/// The body that follows a job's columns in a row, with this payload.
pub(crate) fn read(row: &Row<'_>, entry: &Entry, payload: Blob) -> Result<Body, Fault> {
    let job_type = name(JobType::new(text(row, TYPE)?))?;
    let mut new = NewJob::new(entry.id.clone(), entry.queue.clone(), job_type, payload);
    new.kind = entry.kind;
    new.condition = entry.condition;
    new.key_hold = entry.key_hold;
    new.on_failure = entry.on_failure;
    new.lane.clone_from(&entry.lane);
    new.timeout = optional_number::<u64>(row, TYPE + 2)?.map(Duration::from_micros);
    new.max_attempts = optional_number(row, TYPE + 3)?;
    if entry.keyed {
        new.idempotency_key = Some(name(IdempotencyKey::new(text(row, TYPE + 5)?))?);
    }
    if row.get_ref(TYPE + 6)? != ValueRef::Null {
        new.headers = headers(text(row, TYPE + 6)?)?;
    }
    let created_at = time(row.get(TYPE + 1)?)?;
    Ok(Body { new, created_at, parents: number(row, TYPE + 4)? })
}

pub(crate) fn payload(row: &Row<'_>) -> Result<Blob, Fault> {
    let bytes = row.get_ref(AFTER_BODY)?.as_blob().map_err(|_| Fault::damaged("a payload"))?;
    Ok(Blob::from(bytes))
}

fn headers(json: &str) -> Result<Headers, Fault> {
    let damaged = || Fault::damaged("headers");
    let map: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(json).map_err(|_| damaged())?;
    let mut headers = Headers::new();
    for (name, value) in &map {
        let value = value.as_str().ok_or_else(damaged)?;
        headers = headers.with_any(name, value).map_err(|_| damaged())?;
    }
    Ok(headers)
}

impl Body {
    /// The job as its worker sees it, but for its flow and its last failure.
    pub(crate) fn job(&self, life: &Life) -> JobView {
        let mut job = JobView::assemble(&self.new, self.created_at, life);
        job.parent_count = self.parents;
        job
    }

    /// The line that stands for the job in a list, but for what other rows say.
    pub(crate) fn summary(
        &self,
        life: &Life,
        last_error: Option<Text>,
        payload_bytes: usize,
        now: Timestamp,
    ) -> JobSummary {
        let record = JobRecord::assemble(&self.new, self.created_at, life, Vec::new(), now);
        let mut summary = record.summary();
        summary.last_error = last_error;
        summary.payload_bytes = payload_bytes;
        summary
    }
}
