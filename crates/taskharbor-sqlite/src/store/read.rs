//! Reads of a job and of a flow for operators.

use rusqlite::{Row, params};
use taskharbor_core::{
    Blob, JobId, State, Timestamp,
    admin::StateCounts,
    flow::FlowRecord,
    job::{FailedAttempt, JobRecord},
    name::FlowName,
};

use super::Store;
use crate::{
    body::{self, AFTER_BODY},
    entry::{self, number, optional_time, state_of, text, time},
    error::Fault,
    statement as sql,
};

impl Store<'_> {
    pub(crate) fn inspect(&self, id: &JobId, now: Timestamp) -> Result<Option<JobRecord>, Fault> {
        // ADM-1
        let mut statement = self.statement(sql::RECORD)?;
        let mut rows = statement.query([id.as_str()])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let mut entry = entry::read(row)?;
        let mut body = body::read(row, &entry, body::payload(row)?)?;
        entry.life.errors = self.errors(entry.seq)?;
        let output = row.get_ref(AFTER_BODY + 1)?.as_blob_or_null();
        entry.life.output = output.map_err(|_| Fault::damaged("an output"))?.map(Blob::from);
        entry.life.flow = flow_id(row, AFTER_BODY + 2)?;
        let parents = self.parents(entry.seq)?;
        body.new.parents.clone_from(&parents);
        let record = JobRecord::assemble(&body.new, body.created_at, &entry.life, parents, now);
        if record.state != State::Ready {
            return Ok(Some(record));
        }
        let mut gate = self.gate(&entry.queue, now, &mut None)?;
        let held_back = self.held_back(&mut gate, &entry.lane)?;
        Ok(Some(record.held_back(held_back)))
    }

    pub(super) fn errors(&self, seq: i64) -> Result<Vec<FailedAttempt>, Fault> {
        let mut statement = self.statement(sql::ERRORS)?;
        let mut rows = statement.query([seq])?;
        let mut errors = Vec::new();
        while let Some(row) = rows.next()? {
            errors.push(FailedAttempt::new(number(row, 0)?, text(row, 2)?, time(row.get(1)?)?));
        }
        Ok(errors)
    }

    pub(super) fn parents(&self, seq: i64) -> Result<Vec<JobId>, Fault> {
        let mut statement = self.statement(sql::PARENTS)?;
        let mut rows = statement.query([seq])?;
        let mut parents = Vec::new();
        while let Some(row) = rows.next()? {
            parents.push(entry::name(JobId::new(text(row, 0)?))?);
        }
        Ok(parents)
    }

    pub(crate) fn flow_record(
        &self,
        id: &JobId,
        now: Timestamp,
    ) -> Result<Option<FlowRecord>, Fault> {
        let mut statement = self.statement(sql::FLOW_HEAD)?;
        let mut rows = statement.query([id.as_str()])?;
        rows.next()?.map(|row| self.read_flow(row, now)).transpose()
    }

    pub(super) fn read_flow(&self, row: &Row<'_>, now: Timestamp) -> Result<FlowRecord, Fault> {
        let (mut members, mut last_finish) = (StateCounts::default(), None);
        let mut statement = self.statement(sql::FLOW_COUNTS)?;
        let mut rows = statement.query(params![row.get::<_, i64>(0)?, now.as_micros()])?;
        while let Some(row) = rows.next()? {
            count(&mut members, row)?;
            last_finish = last_finish.max(optional_time(row, 3)?);
        }
        let tail = entry::name(JobId::new(text(row, 4)?))?;
        let tail_state = state_of(row.get(5)?, row.get(6)?, now)?;
        let name = match row.get_ref(2)? {
            rusqlite::types::ValueRef::Null => None,
            _ => Some(entry::name(FlowName::new(text(row, 2)?))?),
        };
        let id = entry::name(JobId::new(text(row, 1)?))?;
        let created_at = time(row.get(3)?)?;
        // FLO-7
        Ok(FlowRecord::new(id, created_at, (tail, tail_state), members, last_finish).named(name))
    }
}

pub(super) fn flow_id(row: &Row<'_>, at: usize) -> Result<Option<JobId>, Fault> {
    match row.get_ref(at)? {
        rusqlite::types::ValueRef::Null => Ok(None),
        _ => Ok(Some(entry::name(JobId::new(text(row, at)?))?)),
    }
}

/// Adds what a row says: a state, how many jobs are in it, and how many of those that wait are due.
fn count(counts: &mut StateCounts, row: &Row<'_>) -> Result<(), Fault> {
    let (all, due): (usize, usize) = (number(row, 1)?, number(row, 2)?);
    match state_of(row.get(0)?, None, Timestamp::EPOCH)? {
        State::Scheduled => {
            counts.ready += due;
            counts.scheduled += all - due;
        }
        state => *counts.get_mut(state) += all,
    }
    Ok(())
}
