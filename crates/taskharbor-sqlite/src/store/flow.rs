//! The stored data of a flow, apart from its members.

use rusqlite::params;
use taskharbor_core::{
    JobId, NewJob, QueueName, Timestamp, flow::ResolvedEdges, life::Life, name::FlowName,
};

use super::{
    Store,
    enqueue::{Inserter, place},
    graph::edge,
};
use crate::{
    entry::{self, Entry, stage_number},
    error::Fault,
    statement as sql,
};

/// How many members of a flow are deleted in one transaction. A flow with more is large: it is removed
/// in a step that hides it and steps that delete its members, between which other calls are served.
pub(crate) const REMOVAL_STEP: usize = 500;

/// A flow's row.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) id: JobId,
    /// The member whose output is the flow's.
    pub(super) tail: i64,
    /// Whether it has had failure jobs.
    pub(super) watched: bool,
}

impl Store<'_> {
    /// The flow of a member.
    pub(super) fn flow(&self, seq: i64) -> Result<Flow, Fault> {
        let mut statement = self.statement(sql::FLOW_BY_SEQ)?;
        let mut rows = statement.query([seq])?;
        let row = rows.next()?.ok_or_else(|| Fault::damaged("a number of a flow"))?;
        let id = entry::name(JobId::new(entry::text(row, 1)?))?;
        Ok(Flow { id, tail: row.get(2)?, watched: row.get::<_, i64>(3)? != 0 })
    }

    pub(super) fn flow_by_id(&self, id: &JobId) -> Result<Option<i64>, Fault> {
        self.find(sql::FLOW_BY_ID, [id.as_str()])
    }

    /// A flow without members.
    pub(super) fn begin_flow(
        &self,
        seq: i64,
        id: &JobId,
        name: Option<&FlowName>,
        tail: i64,
        now: Timestamp,
    ) -> Result<(), Fault> {
        let name = name.map(FlowName::as_str);
        let row = params![seq, id.as_str(), name, now.as_micros(), tail];
        self.execute(sql::INSERT_FLOW, row).map(drop)
    }

    /// Stores the members of a flow or of an expansion with their edges, one after the other. The
    /// caller counts them.
    pub(super) fn insert_members(
        &mut self,
        jobs: &[NewJob],
        edges: &ResolvedEdges,
        flow: i64,
        inserter: &mut Inserter<'_>,
        now: Timestamp,
    ) -> Result<Vec<Member>, Fault> {
        let mut members = Vec::with_capacity(jobs.len());
        for job in jobs {
            let life = Life::new(job, job.parents.len(), None, now);
            // The caller has made sure that the id is not stored.
            let seq = self.insert(job, &life, Some(flow), inserter, now)?;
            let seq = seq.ok_or_else(|| Fault::damaged("an id"))?;
            self.take_key(job, seq, now)?;
            members.push(Member { seq, is_terminal: life.finish().is_some() });
        }
        let mut insert = self.statement(sql::INSERT_EDGE)?;
        for (dependant, parents) in edges.parents.iter().enumerate() {
            let state = edge::open(jobs[dependant].condition);
            for (order, &parent) in parents.iter().enumerate() {
                let (dependant, id) = (members[dependant].seq, jobs[parent].id.as_str());
                insert.execute(params![dependant, place(order), members[parent].seq, state, id])?;
            }
        }
        if jobs.iter().any(NewJob::is_failure_job) {
            self.execute(sql::WATCH_FLOW, [flow])?;
        }
        Ok(members)
    }

    /// Counts a member that was written, if whether it is terminal has changed.
    pub(super) fn count_in_flow(&mut self, entry: &Entry, was_terminal: bool) {
        match entry.flow {
            Some(flow) if was_terminal != entry.is_terminal() => {
                self.count_live(flow, if was_terminal { 1 } else { -1 });
            }
            // A requeued join that is done at once ends its flow in another way.
            Some(flow) if was_terminal => self.count_live(flow, 0),
            _ => {}
        }
    }

    /// A flow has this many members more that are not terminal, or other members or another tail.
    pub(super) fn count_live(&mut self, flow: i64, more: i64) {
        *self.live.entry(flow).or_default() += more;
    }

    /// Writes how many members of the flows are not terminal, and which flows have ended by that.
    pub(super) fn write_flows(&mut self) -> Result<(), Fault> {
        for (flow, more) in std::mem::take(&mut self.live) {
            match self.find::<i64>(sql::COUNT_LIVE, [flow, more])? {
                Some(0) => self.end_flow(flow)?,
                // It may have ended before.
                Some(live) if live == more => {
                    self.execute(sql::END_FLOW, params![flow, None::<i64>, None::<i64>])?;
                }
                Some(_) => {}
                None => return Err(Fault::damaged("a number of a flow")),
            }
        }
        Ok(())
    }

    /// Puts a flow whose members are all terminal among those that prune looks at.
    fn end_flow(&self, flow: i64) -> Result<(), Fault> {
        let tail = self.member(self.flow(flow)?.tail)?;
        let mut statement = self.statement(sql::FLOW_KEPT)?;
        let (kept, members) = statement
            .query_row([flow], |row| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, i64>(1)?)))?;
        self.execute(sql::FORGET_MEMBERS, [flow])?;
        if members > place(REMOVAL_STEP) {
            self.execute(sql::COUNT_MEMBERS, [flow])?;
        }
        self.execute(sql::END_FLOW, params![flow, stage_number(&tail.life), kept]).map(drop)
    }

    /// Removes a flow and all its members; returns how many there were. Of a large flow the records
    /// are left to [`Store::delete_removed`].
    pub(super) fn remove_flow(&mut self, flow: i64) -> Result<usize, Fault> {
        self.live.remove(&flow);
        let removed = self.hide_large_flow(flow)?;
        if removed > 0 {
            return Ok(removed);
        }
        let members = self.find_all(sql::MEMBERS, [flow])?;
        for &seq in &members {
            let entry = self.member(seq)?;
            self.remove_job(&entry)?;
        }
        self.execute(sql::DELETE_FLOW, [flow])?;
        Ok(members.len())
    }

    /// Takes a large flow away from all callers in one short step; returns how many members it had,
    /// none if it is not large. What is left of it costs space alone.
    fn hide_large_flow(&mut self, flow: i64) -> Result<usize, Fault> {
        let mut removed = 0;
        let mut statement = self.statement(sql::MEMBER_COUNTS)?;
        let mut rows = statement.query([flow])?;
        while let Some(row) = rows.next()? {
            let queue = entry::name(QueueName::new(entry::text(row, 0)?))?;
            let jobs: i64 = row.get(2)?;
            self.recount.add(&queue, row.get(1)?, -jobs);
            removed += entry::number::<usize>(row, 2)?;
        }
        if removed == 0 {
            return Ok(0);
        }
        // PRU-3
        for seq in self.find_all(sql::KEYED_MEMBERS, [flow])? {
            let entry = self.member(seq)?;
            self.leave_key(&entry)?;
        }
        self.last.take();
        for sql in [sql::FORGET_MEMBERS, sql::DELETE_FLOW, sql::BEGIN_REMOVAL] {
            self.execute(sql, [flow])?;
        }
        Ok(removed)
    }

    /// Whether members of removed flows are left to be deleted.
    pub(crate) fn has_removed(&self) -> Result<bool, Fault> {
        Ok(self.find::<i64>(sql::NEXT_REMOVAL, [])?.is_some())
    }

    /// Deletes up to this many members of a removed flow; whether more are left.
    pub(crate) fn delete_removed(&mut self, limit: usize) -> Result<bool, Fault> {
        let Some(flow) = self.find::<i64>(sql::NEXT_REMOVAL, [])? else { return Ok(false) };
        let members = self.find_all(sql::SOME_MEMBERS, [flow, place(limit)])?;
        for &seq in &members {
            let entry = self.member(seq)?;
            self.delete_records(&entry)?;
        }
        if members.len() < limit {
            self.execute(sql::END_REMOVAL, [flow])?;
        }
        self.has_removed()
    }
}

/// A member that was just stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) seq: i64,
    pub(super) is_terminal: bool,
}

/// How many of these are not terminal.
pub(super) fn live(members: &[Member]) -> i64 {
    place(members.iter().filter(|member| !member.is_terminal).count())
}
