//! What people see of jobs, queues and flows.

use std::collections::HashMap;

use rusqlite::{Row, params};
use taskharbor_core::{
    Blob, JobId, JobType, QueueName, State, Timestamp,
    admin::{Cursor, List, Page, QueueCounts, StateCounts},
    error::InvalidRequest,
    flow::{FlowRecord, ListFlows},
    job::{FailedAttempt, JobRecord, JobSummary},
    name::FlowName,
};

use super::{Store, enqueue::place};
use crate::{
    body::{self, AFTER_BODY},
    entry::{self, number, number_of, optional_text, optional_time, state_of, text, time},
    error::Fault,
    statement as sql,
};

impl Store<'_> {
    pub(crate) fn inspect(&self, id: &JobId, now: Timestamp) -> Result<Option<JobRecord>, Fault> {
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
        Ok(Some(JobRecord::assemble(&body.new, body.created_at, &entry.life, parents, now)))
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

    pub(crate) fn list(&self, request: &List) -> Result<Page<JobSummary>, Fault> {
        let (filter, now) = (&request.filter, request.now.as_micros());
        let after = after(request.after.as_ref(), "job")?;
        // Ready and scheduled are told apart by time alone.
        let due = (filter.state == Some(State::Ready)).then_some(now);
        let ahead = (filter.state == Some(State::Scheduled)).then_some(now);
        let state = filter.state.map(number_of);
        let queue = filter.queue.as_ref().map(QueueName::as_str);
        let job_type = filter.job_type.as_ref().map(JobType::as_str);
        let limit = place(request.limit);
        let sql = match (&filter.flow, filter.state) {
            (Some(_), _) => sql::LIST_FLOW,
            (None, Some(State::Dlq | State::Cancelled)) => sql::LIST_DEAD,
            (None, _) => sql::LIST,
        };
        let mut statement = self.statement(sql)?;
        let mut rows = match &filter.flow {
            Some(flow) => statement.query(params![
                after,
                queue,
                state,
                job_type,
                due,
                ahead,
                limit,
                flow.as_str()
            ])?,
            None => statement.query(params![after, queue, state, job_type, due, ahead, limit])?,
        };
        let (mut items, mut last) = (Vec::new(), 0);
        while let Some(row) = rows.next()? {
            last = row.get(0)?;
            items.push(summary(row, request.now)?);
        }
        Ok(page(items, request.limit, "job", last))
    }

    pub(crate) fn counts(&self, now: Timestamp) -> Result<Vec<QueueCounts>, Fault> {
        let mut queues: HashMap<String, QueueCounts> = HashMap::new();
        let mut statement = self.statement(sql::COUNTS)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (counts, at) = (counts_of(&mut queues, text(row, 0)?)?, row.get(2)?);
            let state = state_of(row.get(1)?, at, now)?;
            *counts.states.get_mut(state) += 1;
            if let (State::Ready, Some(at)) = (state, at) {
                let oldest = counts.oldest_ready.map_or(i64::MAX, Timestamp::as_micros);
                counts.oldest_ready = Some(time(at.min(oldest))?);
            }
        }
        let mut statement = self.statement(sql::PAUSES)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            counts_of(&mut queues, text(row, 0)?)?.paused_since = optional_time(row, 1)?;
        }
        let mut all: Vec<_> = queues.into_values().collect();
        all.sort_by(|one, other| one.queue.cmp(&other.queue));
        Ok(all)
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

    pub(crate) fn list_flows(&self, request: &ListFlows) -> Result<Page<FlowRecord>, Fault> {
        let after = after(request.after.as_ref(), "flow")?;
        let name = request.name.as_ref().map(FlowName::as_str);
        let sql = if name.is_some() { sql::FLOW_HEADS_NAMED } else { sql::FLOW_HEADS };
        let mut statement = self.statement(sql)?;
        let mut rows = statement.query(params![after, name])?;
        let (mut items, mut last) = (Vec::new(), 0);
        while items.len() < request.limit
            && let Some(row) = rows.next()?
        {
            last = row.get(0)?;
            let flow = self.read_flow(row, request.now)?;
            items.extend(Some(flow).filter(|flow| request.matches(flow)));
        }
        Ok(page(items, request.limit, "flow", last))
    }

    fn read_flow(&self, row: &Row<'_>, now: Timestamp) -> Result<FlowRecord, Fault> {
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
        Ok(FlowRecord::new(id, created_at, (tail, tail_state), members, last_finish).named(name))
    }
}

fn summary(row: &Row<'_>, now: Timestamp) -> Result<JobSummary, Fault> {
    let mut entry = entry::read(row)?;
    entry.life.flow = flow_id(row, AFTER_BODY + 1)?;
    let body = body::read(row, &entry, Blob::from(&[]))?;
    let last_error = optional_text(row, AFTER_BODY + 2)?;
    Ok(body.summary(&entry.life, last_error, number(row, AFTER_BODY)?, now))
}

pub(super) fn flow_id(row: &Row<'_>, at: usize) -> Result<Option<JobId>, Fault> {
    match row.get_ref(at)? {
        rusqlite::types::ValueRef::Null => Ok(None),
        _ => Ok(Some(entry::name(JobId::new(text(row, at)?))?)),
    }
}

fn counts_of<'a>(
    queues: &'a mut HashMap<String, QueueCounts>,
    queue: &str,
) -> Result<&'a mut QueueCounts, Fault> {
    if !queues.contains_key(queue) {
        let counts = QueueCounts::new(entry::name(QueueName::new(queue))?);
        queues.insert(queue.to_owned(), counts);
    }
    queues.get_mut(queue).ok_or_else(|| Fault::damaged("a queue"))
}

/// Adds what a row tells: a state, how many there are, and how many of those that wait are due.
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

/// The number after which a page starts. Cursors say what they are a place in, so that one list
/// does not take another's.
pub(super) fn after(cursor: Option<&Cursor>, of: &str) -> Result<i64, InvalidRequest> {
    let Some(cursor) = cursor else { return Ok(0) };
    let digits =
        cursor.as_str().strip_prefix(of).filter(|it| it.bytes().all(|it| it.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).ok_or(InvalidRequest::Cursor)
}

pub(super) fn page<T>(items: Vec<T>, limit: usize, of: &str, last: i64) -> Page<T> {
    let next = (items.len() == limit).then(|| Cursor::new(format!("{of}{last}")));
    Page::new(items, next)
}
