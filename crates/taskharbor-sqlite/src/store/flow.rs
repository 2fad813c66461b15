//! What is known of a flow beside its members.

use rusqlite::params;
use taskharbor_core::{JobId, NewJob, Timestamp, flow::ResolvedEdges, life::Life, name::FlowName};

use super::{
    Store,
    enqueue::{Inserter, place},
};
use crate::{
    entry::{self, Entry, stage_number},
    error::Fault,
    statement as sql,
};

/// A flow's row.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) seq: i64,
    pub(super) id: JobId,
    /// The member whose output is the flow's.
    pub(super) tail: i64,
    /// How many members are not over.
    pub(super) live: i64,
}

impl Store<'_> {
    /// The flow of a member.
    pub(super) fn flow(&self, seq: i64) -> Result<Flow, Fault> {
        let found = self.find_flow(sql::FLOW_BY_SEQ, [seq])?;
        found.ok_or_else(|| Fault::damaged("a number of a flow"))
    }

    pub(super) fn flow_by_id(&self, id: &JobId) -> Result<Option<Flow>, Fault> {
        self.find_flow(sql::FLOW_BY_ID, [id.as_str()])
    }

    fn find_flow(&self, sql: &str, key: impl rusqlite::Params) -> Result<Option<Flow>, Fault> {
        let mut statement = self.statement(sql)?;
        let mut rows = statement.query(key)?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let id = entry::name(JobId::new(entry::text(row, 1)?))?;
        Ok(Some(Flow { seq: row.get(0)?, id, tail: row.get(2)?, live: row.get(3)? }))
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

    /// Stores the members of a flow or of a expansion, one after the other, and ties them. They have to
    /// be counted.
    pub(super) fn insert_members(
        &mut self,
        jobs: &[NewJob],
        shape: &ResolvedEdges,
        flow: i64,
        inserter: &mut Inserter<'_>,
        now: Timestamp,
    ) -> Result<Vec<Member>, Fault> {
        let mut members = Vec::with_capacity(jobs.len());
        for job in jobs {
            let life = Life::new(job, job.parents.len(), None, now);
            let is_over = life.finish().is_some();
            // Nobody has the id: that was looked at before.
            let seq = self.insert(job, &life, Some(flow), inserter, now)?;
            let seq = seq.ok_or_else(|| Fault::damaged("an id"))?;
            self.hold_key(job, seq)?;
            members.push(Member { seq, is_over });
            if life.pending == 0 {
                self.wake(&job.queue);
            }
        }
        let mut edge = self.statement(sql::INSERT_EDGE)?;
        for (child, parents) in shape.parents.iter().enumerate() {
            for (order, &parent) in parents.iter().enumerate() {
                let (child, id) = (members[child].seq, jobs[parent].id.as_str());
                edge.execute(params![child, place(order), members[parent].seq, id])?;
            }
        }
        Ok(members)
    }

    /// Counts a member that was written, if whether it is over has changed.
    pub(super) fn count_in_flow(&mut self, entry: &Entry, was_over: bool) -> Result<(), Fault> {
        match entry.flow {
            Some(flow) if was_over != entry.is_over() => {
                self.count_live(flow, if was_over { 1 } else { -1 })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn count_live(&mut self, flow: i64, more: i64) -> Result<(), Fault> {
        let live: Option<i64> = self.find(sql::COUNT_LIVE, [flow, more])?;
        match live {
            Some(0) => self.retire_flow(flow),
            // It may have been over before.
            Some(live) if live == more => {
                self.execute(sql::RETIRE_FLOW, params![flow, None::<i64>, None::<i64>]).map(drop)
            }
            Some(_) => Ok(()),
            None => Err(Fault::damaged("a number of a flow")),
        }
    }

    /// Puts a flow whose members are all over among those that are.
    pub(super) fn retire_flow(&mut self, flow: i64) -> Result<(), Fault> {
        let tail = self.member(self.flow(flow)?.tail)?;
        let kept: Option<Option<i64>> = self.find(sql::FLOW_KEPT, [flow])?;
        let row = params![flow, stage_number(&tail.life), kept.flatten()];
        self.execute(sql::RETIRE_FLOW, row).map(drop)
    }

    /// Takes an ended job out of its flow. Nobody waits for anybody across the border; what is left
    /// is that the job can read what it could read before.
    pub(super) fn detach(&mut self, entry: &mut Entry, now: Timestamp) -> Result<(), Fault> {
        self.release_dependants(entry, now)?;
        self.execute(sql::CLOSE_INPUTS, [entry.seq])?;
        entry.life.detach();
        let flow = entry.flow.take();
        self.write(entry)?;
        if let Some(flow) = flow
            && self.flow(flow)?.live == 0
        {
            self.retire_flow(flow)?;
        }
        Ok(())
    }

    /// Removes a flow and all its members; answers how many there were.
    pub(super) fn remove_flow(&mut self, flow: i64) -> Result<usize, Fault> {
        let members = self.find_all(sql::MEMBERS, [flow])?;
        for &seq in &members {
            let entry = self.member(seq)?;
            self.remove(&entry)?;
        }
        self.execute(sql::DELETE_FLOW, [flow])?;
        Ok(members.len())
    }
}

/// A member that was just stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) seq: i64,
    pub(super) is_over: bool,
}

/// How many of these are not over.
pub(super) fn live(members: &[Member]) -> i64 {
    place(members.iter().filter(|member| !member.is_over).count())
}
