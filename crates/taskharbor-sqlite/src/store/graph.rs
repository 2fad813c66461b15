//! The store as the [`Graph`] over which core's rules about several jobs walk.

use rusqlite::params;
use taskharbor_core::{
    JobId, NewJob, Text, Timestamp,
    export::EdgeState,
    flow::ResolvedEdges,
    graph::{Facts, Graph},
    job::Condition,
    life::Life,
};

use super::{Store, flow::live};
use crate::{entry::number_of, error::Fault, statement as sql};

/// The states of edges as the store keeps them.
pub(super) mod edge {
    use taskharbor_core::job::Condition;

    pub(crate) const CLOSED: i64 = 1;
    pub(crate) const SPENT: i64 = 2;

    /// An open edge of a job with this condition.
    pub(crate) const fn open(condition: Condition) -> i64 {
        match condition {
            Condition::ParentsDone => 0,
            Condition::ParentsFailed => 3,
        }
    }
}

impl Graph for Store<'_> {
    type Job = i64;
    type Flow = i64;
    type Error = Fault;

    fn facts(&self, job: i64) -> Result<Facts<i64>, Fault> {
        self.look_at(job, |entry| {
            let key = entry.keyed.then_some(entry.key_hold);
            Facts::new(entry.kind, entry.condition, entry.on_failure, key, entry.flow)
        })
    }

    fn id(&self, job: i64) -> Result<JobId, Fault> {
        self.look_at(job, |entry| entry.id.clone())
    }

    fn read<T>(&self, job: i64, read: impl FnOnce(&Life) -> T) -> Result<T, Fault> {
        self.look_at(job, |entry| read(&entry.life))
    }

    fn change<T>(&mut self, job: i64, change: impl FnOnce(&mut Life) -> T) -> Result<T, Fault> {
        let mut entry = self.take(job)?;
        let answer = self.change_entry(&mut entry, change)?;
        self.keep(entry);
        Ok(answer)
    }

    fn dependants(&self, job: i64) -> Result<Vec<(i64, usize)>, Fault> {
        let mut found = Vec::new();
        for sql in [sql::DEPENDANTS, sql::FAILURE_DEPENDANTS] {
            let mut statement = self.statement(sql)?;
            let mut rows = statement.query([job])?;
            while let Some(row) = rows.next()? {
                found.push((row.get(0)?, crate::entry::number(row, 1)?));
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    fn close_edge(&mut self, job: i64, edge: usize, state: EdgeState) -> Result<(), Fault> {
        let order = super::enqueue::place(edge);
        let (state, spent_state, reason) = match &state {
            EdgeState::Open => return Ok(()),
            EdgeState::Closed => (edge::CLOSED, None, None),
            EdgeState::Spent { state, reason } => {
                (edge::SPENT, Some(number_of(*state)), reason.as_ref().map(Text::as_str))
            }
        };
        self.execute(sql::CLOSE_EDGE, params![job, order, state, spent_state, reason]).map(drop)
    }

    fn not_started(&self, flow: i64) -> Result<Vec<i64>, Fault> {
        let mut found = self.find_all(sql::NOT_STARTED, [flow])?;
        found.sort_unstable();
        Ok(found)
    }

    fn not_terminal(&self, flow: i64) -> Result<Vec<i64>, Fault> {
        let mut found = self.find_all(sql::NOT_TERMINAL, [flow])?;
        found.sort_unstable();
        Ok(found)
    }

    fn tail(&self, flow: i64) -> Result<i64, Fault> {
        self.find(sql::TAIL, [flow])?.ok_or_else(|| Fault::damaged("a number of a flow"))
    }

    fn first_tail(&self, flow: i64) -> Result<Option<i64>, Fault> {
        self.find(sql::FIRST_TAIL, [flow])
    }

    fn free_key(&mut self, job: i64) -> Result<(), Fault> {
        self.look_at(job, |entry| self.drop_key(entry))?
    }

    fn key_taken_by(&self, job: i64, now: Timestamp) -> Result<Option<JobId>, Fault> {
        self.look_at(job, |entry| self.key_rival(entry, now))?
    }

    fn hold_key(&mut self, job: i64) -> Result<(), Fault> {
        self.look_at(job, |entry| self.retake_key(entry))?
    }

    fn leave_flow(&mut self, job: i64) -> Result<(), Fault> {
        let mut entry = self.take(job)?;
        // REQ-6
        self.execute(sql::CLOSE_INPUTS, [job])?;
        entry.life.detach();
        let flow = entry.flow.take();
        self.write(&mut entry)?;
        self.keep(entry);
        if let Some(flow) = flow {
            self.count_live(flow, 0);
        }
        Ok(())
    }

    fn is_not_needed(&self, job: i64) -> Result<bool, Fault> {
        Ok(self.find::<i64>(sql::NOT_NEEDED, [job])?.is_some())
    }

    fn own_flow(&mut self, job: i64, now: Timestamp) -> Result<i64, Fault> {
        let mut entry = self.take(job)?;
        let flow = match entry.flow {
            Some(flow) => flow,
            None => {
                let flow = self.next_seq()?;
                self.begin_flow(flow, &entry.id, None, job, now)?;
                if entry.condition == Condition::ParentsFailed {
                    // FAI-7: a failure job that was detached.
                    self.execute(sql::WATCH_FLOW, [flow])?;
                }
                self.execute(sql::SET_FLOW, [job, flow])?;
                entry.flow = Some(flow);
                self.count_live(flow, i64::from(!entry.is_terminal()));
                flow
            }
        };
        self.keep(entry);
        Ok(flow)
    }

    fn add_members(
        &mut self,
        flow: i64,
        jobs: Vec<NewJob>,
        edges: &ResolvedEdges,
        now: Timestamp,
    ) -> Result<Vec<i64>, Fault> {
        let mut inserter = self.inserter()?;
        let members = self.insert_members(&jobs, edges, flow, &mut inserter, now)?;
        self.count_live(flow, live(&members));
        Ok(members.into_iter().map(|member| member.seq).collect())
    }

    fn replace(&mut self, job: i64, tail: i64) -> Result<(), Fault> {
        let id = self.look_at(tail, |tail| tail.id.clone())?;
        // EXP-2, FAI-5
        for sql in [sql::MOVE_EDGES, sql::MOVE_FAILURE_EDGES] {
            self.execute(sql, params![job, tail, id.as_str()])?;
        }
        let mut entry = self.take(job)?;
        entry.expanded = Some(tail);
        entry.life.expanded_into = Some(id);
        self.write(&mut entry)?;
        self.keep(entry);
        Ok(())
    }

    fn set_tail(&mut self, flow: i64, tail: i64) -> Result<(), Fault> {
        self.execute(sql::SET_TAIL, [flow, tail])?;
        self.count_live(flow, 0);
        Ok(())
    }

    fn wake(&mut self, job: i64) -> Result<(), Fault> {
        let queue = self.look_at(job, |entry| entry.queue.clone())?;
        self.wake_queue(&queue);
        Ok(())
    }
}
