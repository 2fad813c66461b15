//! Export and import.

use rusqlite::{params, types::ValueRef};
use taskharbor_core::{
    Blob, JobId, QueueName,
    admin::{Cursor, Page},
    error::InvalidRequest,
    export::{
        EdgeState, ExportUnit, ExportedFlow, ExportedJob, ExportedKey, ImportRefused, Imported,
    },
    graph::Graph,
    life::{Life, Stage},
    name::{FlowName, IdempotencyKey},
};

use super::{
    Store,
    enqueue::{Inserter, place},
    graph::edge,
    list::number_in,
    read::flow_id,
};
use crate::{
    body::{self, AFTER_BODY},
    entry::{self, optional_text, text, time},
    error::Fault,
    statement as sql,
};

/// Where a page of an export begins.
enum Start {
    /// Behind the job with this number.
    Job(i64),
    /// Among the keys that outlived their jobs, behind this one.
    Key { queue: String, key: String },
}

impl Start {
    fn of(cursor: Option<&Cursor>) -> Result<Self, InvalidRequest> {
        let Some(cursor) = cursor else { return Ok(Self::Job(0)) };
        let job = number_in(cursor, "export-job").map(Self::Job);
        // ADM-13
        job.or_else(|| Self::key(cursor)).ok_or(InvalidRequest::Cursor)
    }

    fn key(cursor: &Cursor) -> Option<Self> {
        let (length, names) = cursor.as_str().strip_prefix("export-key")?.split_once(':')?;
        let (queue, key) = names.split_at_checked(length.parse().ok()?)?;
        Some(Self::Key { queue: queue.to_owned(), key: key.to_owned() })
    }

    /// A name may have any character in it, so the length of the first tells the two apart.
    fn cursor_behind(key: &ExportedKey) -> Cursor {
        let (queue, key) = (key.queue.as_str(), key.key.as_str());
        Cursor::new(format!("export-key{}:{queue}{key}", queue.len()))
    }
}

impl Store<'_> {
    /// The units after the cursor. A flow stands where the first of its members does, and keys that
    /// outlived their jobs come last.
    pub(crate) fn export(
        &self,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<ExportUnit>, Fault> {
        let mut units = Vec::new();
        let (queue, key) = match Start::of(cursor)? {
            Start::Key { queue, key } => (queue, key),
            Start::Job(after) => {
                let last = self.export_jobs(after, limit, &mut units)?;
                if units.len() == limit {
                    let next = Cursor::new(format!("export-job{last}"));
                    return Ok(Page::new(units, Some(next)));
                }
                // Names are never empty, so all of them come after this.
                (String::new(), String::new())
            }
        };
        let mut statement = self.statement(sql::ORPHAN_KEYS)?;
        let wanted = limit - units.len();
        let mut rows = statement.query(params![queue, key, place(wanted)])?;
        let mut next = None;
        while let Some(row) = rows.next()? {
            let queue = entry::name(QueueName::new(text(row, 0)?))?;
            let key = entry::name(IdempotencyKey::new(text(row, 1)?))?;
            let job = entry::name(JobId::new(text(row, 2)?))?;
            let key = ExportedKey::new(queue, key, job, time(row.get(3)?)?);
            next = Some(Start::cursor_behind(&key));
            units.push(ExportUnit::key(key));
        }
        let is_last = units.len() < limit;
        Ok(Page::new(units, next.filter(|_| !is_last)))
    }

    /// Adds the units behind a job; the number of the last job they stand at.
    fn export_jobs(
        &self,
        after: i64,
        limit: usize,
        units: &mut Vec<ExportUnit>,
    ) -> Result<i64, Fault> {
        let mut statement = self.statement(sql::UNITS)?;
        let mut rows = statement.query([after, place(limit)])?;
        let mut last = after;
        // MOV-1
        while let Some(row) = rows.next()? {
            last = row.get(0)?;
            units.push(match row.get::<_, Option<i64>>(1)? {
                None => ExportUnit::job(self.stored(last)?),
                Some(flow) => {
                    let members = self.find_all(sql::MEMBERS_IN_ORDER, [flow])?;
                    let members = members.into_iter().map(|seq| self.stored(seq));
                    ExportUnit::flow(self.stored_flow(flow)?, members.collect::<Result<_, _>>()?)
                }
            });
        }
        Ok(last)
    }

    fn stored_flow(&self, seq: i64) -> Result<ExportedFlow, Fault> {
        let mut statement = self.statement(sql::STORED_FLOW)?;
        let mut rows = statement.query([seq])?;
        let row = rows.next()?.ok_or_else(|| Fault::damaged("a number of a flow"))?;
        let name = match row.get_ref(1)? {
            ValueRef::Null => None,
            _ => Some(entry::name(FlowName::new(text(row, 1)?))?),
        };
        let (id, tail) = (JobId::new(text(row, 0)?), JobId::new(text(row, 3)?));
        Ok(ExportedFlow::new(entry::name(id)?, name, time(row.get(2)?)?, entry::name(tail)?))
    }

    fn stored(&self, seq: i64) -> Result<ExportedJob, Fault> {
        let mut statement = self.statement(sql::STORED_JOB)?;
        let mut rows = statement.query([seq])?;
        let row = rows.next()?.ok_or_else(|| Fault::damaged("a number of a job"))?;
        let mut entry = entry::read(row)?;
        let mut body = body::read(row, &entry, body::payload(row)?)?;
        entry.life.errors = self.errors(seq)?;
        let output = row.get_ref(AFTER_BODY + 1)?.as_blob_or_null();
        entry.life.output = output.map_err(|_| Fault::damaged("an output"))?.map(Blob::from);
        entry.life.flow = flow_id(row, AFTER_BODY + 2)?;
        body.new.parents = self.parents(seq)?;
        let holds_key = match &body.new.idempotency_key {
            Some(key) => self.stored_key(&entry.queue, key)?.is_some_and(|(_, of)| of == seq),
            None => false,
        };
        // MOV-2
        let edges = self.edges(seq)?;
        Ok(ExportedJob::new(body.new, body.created_at, entry.life, edges, holds_key))
    }

    /// The job that took a key, and its number, even if the key's time has ended.
    fn stored_key(
        &self,
        queue: &QueueName,
        key: &IdempotencyKey,
    ) -> Result<Option<(JobId, i64)>, Fault> {
        let mut statement = self.statement(sql::STORED_KEY)?;
        let mut rows = statement.query([queue.as_str(), key.as_str()])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        Ok(Some((entry::name(JobId::new(text(row, 0)?))?, row.get(1)?)))
    }

    fn edges(&self, dependant: i64) -> Result<Vec<EdgeState>, Fault> {
        let mut statement = self.statement(sql::EDGES)?;
        let mut rows = statement.query([dependant])?;
        let mut edges = Vec::new();
        while let Some(row) = rows.next()? {
            edges.push(match row.get::<_, i64>(0)? {
                edge::CLOSED => EdgeState::Closed,
                edge::SPENT => EdgeState::Spent {
                    state: entry::ended_as(row.get(1)?)?,
                    reason: optional_text(row, 2)?,
                },
                _ => EdgeState::Open,
            });
        }
        Ok(edges)
    }

    pub(crate) fn import(
        &mut self,
        units: &[ExportUnit],
    ) -> Result<Vec<Result<Imported, ImportRefused>>, Fault> {
        let mut inserter = self.inserter()?;
        // MOV-3
        units.iter().map(|unit| self.import_one(unit, &mut inserter)).collect()
    }

    fn import_one(
        &mut self,
        unit: &ExportUnit,
        inserter: &mut Inserter<'_>,
    ) -> Result<Result<Imported, ImportRefused>, Fault> {
        if let Err(damage) = unit.check(&self.limits) {
            return Ok(Err(damage.into()));
        }
        if let Some(key) = &unit.key {
            return self.import_key(key);
        }
        let mut stored = Vec::new();
        for job in &unit.jobs {
            if self.seq_of(&job.new.id)?.is_some() {
                stored.push(&job.new.id);
            }
        }
        match stored.first() {
            // MOV-4
            Some(_) if stored.len() == unit.jobs.len() => return Ok(Ok(Imported::Existing)),
            // MOV-5
            Some(&id) => return Ok(Err(ImportRefused::Overlap(id.clone()))),
            None => {}
        }
        for job in unit.jobs.iter().filter(|job| job.holds_key) {
            if let Some(key) = &job.new.idempotency_key
                && self.stored_key(&job.new.queue, key)?.is_some()
            {
                return Ok(Err(ImportRefused::KeyHeld(job.new.id.clone())));
            }
        }
        let flow = match &unit.flow {
            Some(flow) => {
                if self.flow_by_id(&flow.id)?.is_some() {
                    return Ok(Err(ImportRefused::Overlap(flow.id.clone())));
                }
                let seq = self.next_seq()?;
                // Its tail is numbered below, and known by its id.
                self.begin_flow(seq, &flow.id, flow.name.as_ref(), 0, flow.created_at)?;
                Some(seq)
            }
            None => None,
        };
        let mut numbered = Vec::with_capacity(unit.jobs.len());
        for job in &unit.jobs {
            numbered.push(self.insert_stored(job, flow, inserter)?);
        }
        self.insert_edges(&unit.jobs, &numbered)?;
        if let (Some(seq), Some(flow)) = (flow, &unit.flow) {
            let tail = unit.jobs.iter().position(|job| job.new.id == flow.tail);
            let tail = tail.map(|at| numbered[at]).ok_or_else(|| Fault::damaged("a tail"))?;
            self.set_tail(seq, tail)?;
            if unit.jobs.iter().any(|job| job.new.is_failure_job()) {
                self.execute(sql::WATCH_FLOW, [seq])?;
            }
            let live = unit.jobs.iter().filter(|job| job.life.finish().is_none()).count();
            self.count_live(seq, place(live));
        }
        Ok(Ok(Imported::Stored))
    }

    fn import_key(&mut self, key: &ExportedKey) -> Result<Result<Imported, ImportRefused>, Fault> {
        match self.stored_key(&key.queue, &key.key)? {
            Some((job, _)) if job == key.job => return Ok(Ok(Imported::Existing)),
            Some(_) => return Ok(Err(ImportRefused::KeyHeld(key.job.clone()))),
            None => {}
        }
        let (queue, name, job) = (key.queue.as_str(), key.key.as_str(), key.job.as_str());
        self.execute(sql::HOLD_KEY, params![queue, name, job, 0, key.held_until.as_micros()])?;
        Ok(Ok(Imported::Stored))
    }

    /// Stores a job as one that waits, then gives it the life it had.
    fn insert_stored(
        &mut self,
        job: &ExportedJob,
        flow: Option<i64>,
        inserter: &mut Inserter<'_>,
    ) -> Result<i64, Fault> {
        let mut new = Life::new(&job.new, 0, None, job.created_at);
        new.stage = Stage::Waiting;
        let inserted = self.insert(&job.new, &new, flow, inserter, job.created_at)?;
        let seq = inserted.ok_or_else(|| Fault::damaged("an id"))?;
        if job.holds_key {
            self.take_key(&job.new, seq, job.created_at)?;
        }
        let mut entry = self.member(seq)?;
        // MOV-7
        entry.life = job.life.clone();
        self.write(&mut entry)?;
        if entry.life.active_lease().is_some() {
            // LIM-7
            self.execute(sql::COUNT_LEASE, [seq])?;
        }
        self.wake_queue(&job.new.queue);
        Ok(seq)
    }

    fn insert_edges(&mut self, jobs: &[ExportedJob], numbered: &[i64]) -> Result<(), Fault> {
        for (job, &dependant) in jobs.iter().zip(numbered) {
            // A detached job may be imported before the flow that its parent is in.
            self.execute(sql::FIND_PARENT, params![job.new.id.as_str(), dependant])?;
            let state = edge::open(job.new.condition);
            for (order, (parent, edge)) in job.new.parents.iter().zip(&job.edges).enumerate() {
                // A job that is not stored has the number of none.
                let seq = self.seq_of(parent)?.unwrap_or(0);
                let row = params![dependant, place(order), seq, state, parent.as_str()];
                self.execute(sql::INSERT_EDGE, row)?;
                self.close_edge(dependant, order, edge.clone())?;
            }
            if let Some(id) = &job.life.expanded_into {
                let expanded = self.seq_of(id)?.unwrap_or(0);
                self.forget(dependant);
                self.execute(sql::SET_EXPANDED, [dependant, expanded])?;
            }
        }
        Ok(())
    }
}
