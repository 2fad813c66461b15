//! Storing sets.

use rusqlite::{CachedStatement, params};
use taskharbor_core::{
    NewJob, Timestamp,
    driver::{Enqueue, Enqueued},
    error::Rejected,
    flow::{CheckedSet, ResolvedEdges},
    graph,
    job::{Headers, JobSet, SetKind},
    life::Life,
    name::{FlowName, LaneName},
};

use super::{Store, flow::live, micros};
use crate::{
    entry::{key_hold_number, kind_number, policy_number, stage_number, state},
    error::Fault,
    statement as sql,
};

/// What stores jobs, one after the other.
pub(super) struct Inserter<'c> {
    state: CachedStatement<'c>,
    job: CachedStatement<'c>,
}

impl<'c> Store<'c> {
    pub(crate) fn enqueue(
        &mut self,
        request: &Enqueue,
    ) -> Result<Vec<Result<Vec<Enqueued>, Rejected>>, Fault> {
        let now = request.now;
        let mut inserter = self.inserter()?;
        let mut answers = Vec::with_capacity(request.sets.len());
        // ENQ-2, ENQ-3, ORD-4
        for set in &request.sets {
            answers.push(self.enqueue_set(set, &mut inserter, now)?);
        }
        Ok(answers)
    }

    pub(super) fn enqueue_set(
        &mut self,
        set: &JobSet,
        inserter: &mut Inserter<'_>,
        now: Timestamp,
    ) -> Result<Result<Vec<Enqueued>, Rejected>, Fault> {
        // JOB-2, JOB-5, FLO-3, FLO-9, FAI-4, KEY-11
        match (set.check(&self.limits), &set.kind) {
            (Err(rejected), _) => Ok(Err(rejected)),
            (Ok(CheckedSet::Flow(edges)), SetKind::Flow { name }) => {
                self.enqueue_flow(&set.jobs, &edges, name.as_ref(), inserter, now)
            }
            (Ok(CheckedSet::Plain | CheckedSet::Flow(_)), _) => {
                let store = |job| self.enqueue_job(job, inserter, now);
                set.jobs.iter().map(store).collect::<Result<_, _>>().map(Ok)
            }
        }
    }

    fn enqueue_job(
        &mut self,
        job: &NewJob,
        inserter: &mut Inserter<'_>,
        now: Timestamp,
    ) -> Result<Enqueued, Fault> {
        // Whether the id is stored already shows when the job is stored, unless a key has to be
        // looked at in between.
        if job.idempotency_key.is_some() {
            // KEY-1
            if self.seq_of(&job.id)?.is_some() {
                return Ok(Enqueued::Existing(job.id.clone()));
            }
            if let Some(holder) = self.key_holder(job, now)? {
                return Ok(Enqueued::Existing(holder));
            }
        }
        let life = Life::new(job, 0, None, now);
        // ENQ-4, ENQ-5
        let Some(seq) = self.insert(job, &life, None, inserter, now)? else {
            return Ok(Enqueued::Existing(job.id.clone()));
        };
        self.take_key(job, seq, now)?;
        self.wake_queue(&job.queue);
        Ok(Enqueued::Inserted(job.id.clone()))
    }

    fn enqueue_flow(
        &mut self,
        jobs: &[NewJob],
        edges: &ResolvedEdges,
        name: Option<&FlowName>,
        inserter: &mut Inserter<'_>,
        now: Timestamp,
    ) -> Result<Result<Vec<Enqueued>, Rejected>, Fault> {
        let mut stored = Vec::new();
        for job in jobs {
            if self.seq_of(&job.id)?.is_some() {
                stored.push(&job.id);
            }
        }
        // FLO-5
        if stored.len() == jobs.len() {
            return Ok(Ok(jobs.iter().map(|job| Enqueued::Existing(job.id.clone())).collect()));
        }
        if let Some(&job) = stored.first() {
            return Ok(Err(Rejected::Overlap { job: job.clone() }));
        }
        // FLO-4
        if let Some(holder) = self.key_holder(&jobs[edges.tail], now)? {
            return Ok(Ok(vec![Enqueued::Existing(holder); jobs.len()]));
        }
        let flow = self.next_seq()?;
        // Members are numbered one after the other, without gaps.
        let tail = flow + 1 + place(edges.tail);
        self.begin_flow(flow, &jobs[edges.tail].id, name, tail, now)?;
        let members = self.insert_members(jobs, edges, flow, inserter, now)?;
        self.count_live(flow, live(&members));
        // As `graph::started`, without reading what was just written.
        for (job, member) in jobs.iter().zip(&members) {
            if !member.is_terminal && job.parents.is_empty() {
                self.wake_queue(&job.queue);
            }
        }
        for member in members.iter().filter(|member| member.is_terminal) {
            graph::succeeded(self, member.seq, now)?;
        }
        Ok(Ok(jobs.iter().map(|job| Enqueued::Inserted(job.id.clone())).collect()))
    }

    pub(super) fn inserter(&self) -> Result<Inserter<'c>, Fault> {
        let (state, job) = (self.statement(sql::INSERT_STATE)?, self.statement(sql::INSERT_JOB)?);
        Ok(Inserter { state, job })
    }

    /// Stores a job, without its key; `None` if its id is stored already.
    pub(super) fn insert(
        &mut self,
        job: &NewJob,
        life: &Life,
        flow: Option<i64>,
        inserter: &mut Inserter<'_>,
        now: Timestamp,
    ) -> Result<Option<i64>, Fault> {
        let seq = self.next_seq()?;
        if self.insert_state(seq, job, life, flow, inserter, now)? {
            return self.insert_job(seq, job, inserter, now).map(|()| Some(seq));
        }
        let Some(removed) = self.find(sql::REMOVED_SEQ_OF, [job.id.as_str()])? else {
            return Ok(None);
        };
        // PRU-3: the id is free, although the record of the flow's member is not deleted yet.
        let removed = self.member(removed)?;
        self.delete_records(&removed)?;
        if !self.insert_state(seq, job, life, flow, inserter, now)? {
            return Err(Fault::damaged("an id"));
        }
        self.insert_job(seq, job, inserter, now).map(|()| Some(seq))
    }

    /// Stores the narrow row of a job; `false` if its id is stored already.
    fn insert_state(
        &mut self,
        seq: i64,
        job: &NewJob,
        life: &Life,
        flow: Option<i64>,
        inserter: &mut Inserter<'_>,
        now: Timestamp,
    ) -> Result<bool, Fault> {
        let (stage, (key_hold, key_us)) = (stage_number(life), key_hold_number(job.key_hold));
        let lane = job.lane.as_ref().map(LaneName::as_str);
        // LAN-3: a job that is due stands in line at once.
        let line = lane.filter(|_| life.grantable_at().is_some_and(|at| at <= now));
        // JOB-1
        let inserted = inserter.state.execute(params![
            seq,
            stage,
            micros(life.grantable_at()),
            life.due_at.as_micros(),
            life.priority,
            place(life.pending),
            kind_number(job.kind, job.condition),
            key_hold,
            policy_number(job.on_failure),
            job.idempotency_key.is_some(),
            flow,
            micros(life.run_at),
            micros(life.finish().map(|finish| finish.at)),
            micros(life.kept_until()),
            job.id.as_str(),
            job.queue.as_str(),
            key_us,
            lane,
            line,
        ])?;
        if inserted == 0 {
            return Ok(false);
        }
        self.recount.moved(&job.queue, state::WAITING, stage);
        Ok(true)
    }

    fn insert_job(
        &self,
        seq: i64,
        job: &NewJob,
        inserter: &mut Inserter<'_>,
        now: Timestamp,
    ) -> Result<(), Fault> {
        // The range was checked, so nothing is cut off.
        let timeout = job.timeout.map(|it| i64::try_from(it.as_micros()).unwrap_or(i64::MAX));
        inserter.job.execute(params![
            seq,
            job.job_type.as_str(),
            now.as_micros(),
            timeout,
            job.max_attempts,
            place(job.parents.len()),
            job.idempotency_key.as_ref().map(taskharbor_core::name::IdempotencyKey::as_str),
            json(&job.headers)?,
            &*job.payload,
        ])?;
        Ok(())
    }
}

/// A position or a count as the store keeps it.
pub(super) fn place(at: usize) -> i64 {
    i64::try_from(at).unwrap_or(i64::MAX)
}

fn json(headers: &Headers) -> Result<Option<String>, Fault> {
    if headers.is_empty() {
        return Ok(None);
    }
    let map: serde_json::Map<_, _> =
        headers.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    let text = serde_json::to_string(&map).map_err(taskharbor_core::DriverError::backend)?;
    Ok(Some(text))
}
