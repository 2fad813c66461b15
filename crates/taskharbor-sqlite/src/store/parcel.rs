//! Jobs on their way from or to another store.

use rusqlite::{params, types::ValueRef};
use taskharbor_core::{
    Blob, JobId,
    admin::{Cursor, Page},
    export::{EdgeState, ExportUnit, ExportedFlow, ExportedJob, Imported},
    life::{Life, Stage},
    name::FlowName,
};

use super::{
    Store,
    enqueue::{Inserter, place},
    read::{after, flow_id, page},
};
use crate::{
    body::{self, AFTER_BODY},
    entry::{self, number_of, optional_text, text, time},
    error::Fault,
    statement as sql,
};

impl Store<'_> {
    /// The parcels after the cursor. A flow stands where the first of its members does.
    pub(crate) fn export(
        &self,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<ExportUnit>, Fault> {
        let mut statement = self.statement(sql::PARCELS)?;
        let mut rows = statement.query([after(cursor, "parcel")?, place(limit)])?;
        let (mut parcels, mut last) = (Vec::new(), 0);
        while let Some(row) = rows.next()? {
            last = row.get(0)?;
            parcels.push(match row.get::<_, Option<i64>>(1)? {
                None => ExportUnit::job(self.stored(last)?),
                Some(flow) => {
                    let members = self.find_all(sql::MEMBERS_IN_ORDER, [flow])?;
                    let members = members.into_iter().map(|seq| self.stored(seq));
                    ExportUnit::new(
                        Some(self.stored_flow(flow)?),
                        members.collect::<Result<_, _>>()?,
                    )
                }
            });
        }
        Ok(page(parcels, limit, "parcel", last))
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
            Some(key) => {
                let holder: Option<i64> =
                    self.find(sql::KEY_HELD_BY, [entry.queue.as_str(), key.as_str()])?;
                holder == Some(seq)
            }
            None => false,
        };
        Ok(ExportedJob::new(body.new, body.created_at, entry.life, self.ties(seq)?, holds_key))
    }

    fn ties(&self, child: i64) -> Result<Vec<EdgeState>, Fault> {
        let mut statement = self.statement(sql::TIES)?;
        let mut rows = statement.query([child])?;
        let mut ties = Vec::new();
        while let Some(row) = rows.next()? {
            ties.push(match row.get::<_, i64>(0)? {
                0 => EdgeState::Open,
                1 => EdgeState::Closed,
                _ => EdgeState::Spent {
                    state: entry::ended_as(row.get(1)?)?,
                    reason: optional_text(row, 2)?,
                },
            });
        }
        Ok(ties)
    }

    pub(crate) fn import(&mut self, parcels: &[ExportUnit]) -> Result<Vec<Imported>, Fault> {
        let mut inserter = self.inserter()?;
        parcels.iter().map(|parcel| self.import_one(parcel, &mut inserter)).collect()
    }

    fn import_one(
        &mut self,
        parcel: &ExportUnit,
        inserter: &mut Inserter<'_>,
    ) -> Result<Imported, Fault> {
        let mut stored = Vec::new();
        for job in &parcel.jobs {
            if self.is_stored(&job.new.id)? {
                stored.push(&job.new.id);
            }
        }
        match stored.first() {
            Some(_) if stored.len() == parcel.jobs.len() => return Ok(Imported::Existing),
            Some(id) => return Ok(Imported::Overlap((*id).clone())),
            None => {}
        }
        for job in parcel.jobs.iter().filter(|job| job.holds_key) {
            if self.key_holder(&job.new)?.is_some() {
                return Ok(Imported::KeyHeld(job.new.id.clone()));
            }
        }
        let flow = match &parcel.flow {
            Some(flow) => {
                let seq = self.next_seq()?;
                // Its tail is numbered below, and known by its id.
                self.begin_flow(seq, &flow.id, flow.name.as_ref(), 0, flow.created_at)?;
                Some(seq)
            }
            None => None,
        };
        let mut numbered = Vec::with_capacity(parcel.jobs.len());
        for job in &parcel.jobs {
            numbered.push(self.insert_stored(job, flow, inserter)?);
        }
        self.tie_stored(&parcel.jobs, &numbered)?;
        if let (Some(seq), Some(flow)) = (flow, &parcel.flow) {
            let tail = parcel.jobs.iter().position(|job| job.new.id == flow.tail);
            let tail = tail.map(|at| numbered[at]).ok_or_else(|| Fault::damaged("a tail"))?;
            self.execute(sql::SET_TAIL, [seq, tail])?;
            let live = parcel.jobs.iter().filter(|job| job.life.finish().is_none()).count();
            self.count_live(seq, place(live))?;
        }
        Ok(Imported::Stored)
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
            self.hold_key(&job.new, seq)?;
        }
        let mut entry = self.member(seq)?;
        entry.life = job.life.clone();
        self.write(&mut entry)?;
        self.wake(&job.new.queue);
        Ok(seq)
    }

    fn tie_stored(&mut self, jobs: &[ExportedJob], numbered: &[i64]) -> Result<(), Fault> {
        for (job, &child) in jobs.iter().zip(numbered) {
            for (order, (parent, tie)) in job.new.parents.iter().zip(&job.ties).enumerate() {
                // One that is gone is nowhere.
                let seq: i64 = self.find(sql::SEQ_OF, [parent.as_str()])?.unwrap_or(0);
                self.execute(sql::INSERT_EDGE, params![child, place(order), seq, parent.as_str()])?;
                let (tie, state, reason) = match tie {
                    EdgeState::Open => continue,
                    EdgeState::Closed => (1, None, None),
                    EdgeState::Spent { state, reason } => {
                        (2, Some(number_of(*state)), reason.as_ref())
                    }
                };
                let reason = reason.map(taskharbor_core::Text::as_str);
                self.execute(sql::CLOSE_EDGE, params![child, place(order), tie, state, reason])?;
            }
            if let Some(id) = &job.life.expanded_into {
                let grown: i64 = self.find(sql::SEQ_OF, [id.as_str()])?.unwrap_or(0);
                self.execute(sql::SET_GROWN, [child, grown])?;
            }
        }
        Ok(())
    }
}
