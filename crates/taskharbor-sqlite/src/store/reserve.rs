//! Granting leases.

use std::collections::HashMap;

use rusqlite::params;
use taskharbor_core::{
    Blob, QueueName, State, Timestamp,
    driver::{Demand, Lease, LeaseToken, Leased, Limits, Reserve, Reserved, Turn},
    graph,
    job::JobView,
    life::Consequence,
};

use super::{
    Store, earlier, micros, number_list,
    turn::{Turns, soon},
};
use crate::{
    body::{self, Body},
    entry::{self, Entry, state},
    error::Fault,
    queue_memory::QueueMemory,
    statement as sql,
    token::Secret,
};

/// A job that may be granted.
pub(super) struct Due {
    pub(super) entry: Entry,
    body: Body,
}

/// A position among the jobs of one priority.
#[derive(Clone, Copy)]
pub(super) struct Position {
    pub(super) available_at: i64,
    pub(super) seq: i64,
}

/// How far a queue was walked.
pub(super) enum Walked {
    /// The demand is met.
    Met,
    /// There is no more.
    Dry,
    /// The answer is as large as one may be.
    Full,
    /// As many lanes were looked at as may be.
    Stopped,
    /// A job was cancelled on the way, and others may be available because of it.
    Again,
}

pub(super) struct Walk<'r> {
    pub(super) request: &'r Reserve,
    expires_at: Timestamp,
    /// Whether the leases count under limits of the queue.
    counts: bool,
    /// The waiting jobs that are granted and not written yet, by their secret.
    unwritten: [(Secret, Vec<i64>); 2],
    pub(super) granted: Vec<Leased>,
    pub(super) bytes: usize,
}

impl Store<'_> {
    pub(crate) fn reserve(
        &mut self,
        request: &Reserve,
        expires_at: Timestamp,
        memories: &mut HashMap<QueueName, QueueMemory>,
    ) -> Result<Reserved, Fault> {
        let mut walk = Walk::new(request, expires_at)?;
        let mut next_due = None;
        for (at, demand) in request.demands.iter().enumerate() {
            // RES-8. Each queue has its own: what is acked together is of one queue.
            if at > 0 {
                walk.renew_secrets()?;
            }
            let (walked, next) = self.grant_queue(demand, &mut walk, memories)?;
            // RES-5
            if matches!(walked, Walked::Full) {
                return Ok(Reserved::new(walk.granted, next));
            }
            next_due = earlier(next_due, next);
        }
        // RES-2
        Ok(Reserved::new(walk.granted, next_due))
    }

    /// Grants what one queue has to give; when the next job may be granted, if the demand is not met.
    fn grant_queue(
        &mut self,
        demand: &Demand,
        walk: &mut Walk<'_>,
        memories: &mut HashMap<QueueName, QueueMemory>,
    ) -> Result<(Walked, Option<Timestamp>), Fault> {
        let (first, now) = (walk.granted.len(), walk.request.now);
        let wanted = first + demand.limit;
        let memory = memories.entry(demand.queue.clone()).or_default();
        let gate = self.gate(&demand.queue, now, &mut memory.limits)?;
        // PAU-1
        if gate.is_paused {
            return Ok((Walked::Met, None));
        }
        walk.counts = gate.counts();
        if !gate.is_open() {
            return self.grant_by_turns(Turns::new(demand, wanted, gate, memory), walk);
        }
        let walked = loop {
            match self.walk(demand, wanted, walk)? {
                Walked::Again => {}
                walked => break walked,
            }
        };
        if walk.granted.len() > first {
            // LAN-2: jobs without a lane have had their turn.
            memory.turn = Turn::of(None, 1);
        }
        let next_due = match walked {
            // RES-7
            Walked::Dry => {
                memory.is_starved = false;
                self.first_at(demand, now)?
            }
            // RES-5
            Walked::Full => soon(now),
            Walked::Met | Walked::Stopped | Walked::Again => None,
        };
        Ok((walked, next_due))
    }

    /// Grants what is due in one queue, priority by priority.
    fn walk(
        &mut self,
        demand: &Demand,
        wanted: usize,
        walk: &mut Walk<'_>,
    ) -> Result<Walked, Fault> {
        let mut below = i64::from(i16::MAX) + 1;
        // ORD-1
        while let Some(priority) = self.next_priority(demand, below)? {
            below = priority;
            let mut from = Position { available_at: -1, seq: -1 };
            loop {
                let left = wanted - walk.granted.len();
                if left == 0 {
                    return Ok(Walked::Met);
                }
                let limit = left.min(Self::CHUNK);
                let (due, seen) = self.due(demand, priority, walk, &mut from, limit)?;
                for due in due {
                    if !self.grant(due, walk)? {
                        return Ok(Walked::Again);
                    }
                    if walk.bytes > Limits::MAX_CALL_BYTES {
                        self.write_grants(walk)?;
                        return Ok(Walked::Full);
                    }
                }
                self.write_grants(walk)?;
                if seen < limit {
                    break;
                }
            }
        }
        Ok(if walk.granted.len() == wanted { Walked::Met } else { Walked::Dry })
    }

    /// How many jobs are read before they are granted: few enough to be held twice in memory.
    const CHUNK: usize = 1_000;

    fn next_priority(&self, demand: &Demand, below: i64) -> Result<Option<i64>, Fault> {
        self.find(sql::NEXT_PRIORITY, params![demand.queue.as_str(), below])
    }

    /// The next jobs of one priority that are due, and how many rows were seen.
    fn due(
        &self,
        demand: &Demand,
        priority: i64,
        walk: &Walk<'_>,
        from: &mut Position,
        limit: usize,
    ) -> Result<(Vec<Due>, usize), Fault> {
        let (mut found, mut seen, mut bytes) = (Vec::with_capacity(limit.min(128)), 0, walk.bytes);
        let (queue, now) = (demand.queue.as_str(), walk.request.now.as_micros());
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut statement = self.statement(sql::DUE)?;
        let mut rows =
            statement.query(params![queue, priority, now, from.available_at, from.seq, limit])?;
        while let Some(row) = rows.next()? {
            seen += 1;
            *from = Position { available_at: row.get(2)?, seq: row.get(0)? };
            if let Some(due) = valid(read(row, demand))? {
                bytes += due.body.new.payload.len();
                found.push(due);
            }
            if bytes > Limits::MAX_CALL_BYTES {
                break;
            }
        }
        Ok((found, seen))
    }

    /// A job of a queue, by its number; `None` if it is not a valid one.
    pub(super) fn due_job(&self, seq: i64, demand: &Demand) -> Result<Option<Due>, Fault> {
        let mut statement = self.statement(sql::DUE_JOB)?;
        let mut rows = statement.query([seq])?;
        match rows.next()? {
            Some(row) => valid(read(row, demand)),
            None => Ok(None),
        }
    }

    /// Leases a job, reclaimed from a holder whose lease has ended if need be; `false` if the reclaim
    /// cancels it. The grant of a job that was waiting is left to [`Store::write_grants`].
    pub(super) fn grant(&mut self, due: Due, walk: &mut Walk<'_>) -> Result<bool, Fault> {
        let Due { mut entry, body } = due;
        let now = walk.request.now;
        let is_reclaimed = entry.stored_state != state::WAITING;
        // LEA-3, LEA-5
        if entry.life.reclaim(now) == Consequence::Failed {
            self.write_grants(walk)?;
            self.write(&mut entry)?;
            self.count_in_flow(&entry, false);
            let seq = entry.seq;
            self.keep(entry);
            graph::failed(self, seq, now)?;
            return Ok(false);
        }
        let frees_key = entry.keyed && entry.key_hold.is_freed_by(State::Done);
        let is_other = entry.flow.is_some() || frees_key;
        let (secret, unwritten) = &mut walk.unwritten[usize::from(is_other)];
        let lease = Lease::new(secret.token(&entry.id, entry.seq), walk.expires_at);
        // RES-3
        entry.life.grant(lease, walk.request.holder.clone(), now);
        if is_reclaimed {
            self.write_reclaimed(&entry, *secret, walk)?;
        } else {
            unwritten.push(entry.seq);
        }
        self.forget(entry.seq);
        self.recount.moved(&entry.queue, entry.stored_state, state::INFLIGHT);
        walk.bytes += body.new.payload.len();
        let mut job = body.job(&entry.life);
        self.complete(&mut job, &entry)?;
        walk.granted.push(Leased::new(job, lease));
        Ok(true)
    }

    /// Writes the grant of a job whose lease had ended.
    fn write_reclaimed(&self, entry: &Entry, secret: Secret, walk: &Walk<'_>) -> Result<(), Fault> {
        let life = &entry.life;
        // LEA-4, SET-13: the stored record loses its `run_at` and its note, too.
        let row = params![
            entry.seq,
            walk.expires_at.as_micros(),
            life.due_at.as_micros(),
            life.deliveries,
            life.expirations,
            micros(life.run_at),
            micros(life.started_at),
            walk.request.holder.as_str(),
            secret.to_bytes(),
            walk.counts,
        ];
        self.execute(sql::GRANT, row).map(drop)
    }

    /// Writes the grants of jobs that were waiting, all of them in the same way.
    pub(super) fn write_grants(&self, walk: &mut Walk<'_>) -> Result<(), Fault> {
        let (at, now) = (walk.expires_at.as_micros(), walk.request.now.as_micros());
        let (holder, counts) = (walk.request.holder.as_str(), walk.counts);
        for (secret, seqs) in &mut walk.unwritten {
            let secret = secret.to_bytes();
            let written = match seqs.as_slice() {
                [] => continue,
                [seq] => {
                    self.execute(sql::GRANT_ONE, params![seq, at, now, holder, secret, counts])?
                }
                many => {
                    let many = number_list(many);
                    self.execute(sql::GRANT_MANY, params![many, at, now, holder, secret, counts])?
                }
            };
            if written != seqs.len() {
                return Err(Fault::damaged("a number of a job"));
            }
            seqs.clear();
        }
        Ok(())
    }

    /// What other rows say about a job: its flow and its last failure.
    fn complete(&self, job: &mut JobView, entry: &Entry) -> Result<(), Fault> {
        if let Some(flow) = entry.flow {
            job.flow = Some(self.flow(flow)?.id);
        }
        if entry.failures > 0 {
            let mut statement = self.statement(sql::LAST_ERROR)?;
            let mut rows = statement.query([entry.seq, entry.failures])?;
            if let Some(row) = rows.next()? {
                job.failed_at = entry::optional_time(row, 1)?;
                job.last_error = entry::optional_text(row, 2)?;
            }
        }
        Ok(())
    }

    /// When the next job of a queue may be granted.
    fn first_at(&self, demand: &Demand, now: Timestamp) -> Result<Option<Timestamp>, Fault> {
        let (mut below, mut first) = (i64::from(i16::MAX) + 1, None);
        while let Some(priority) = self.next_priority(demand, below)? {
            below = priority;
            let at: Option<i64> =
                self.find(sql::FIRST_AT, params![demand.queue.as_str(), priority])?;
            // A job that is due and still there was skipped.
            let at = at.map(|at| entry::time(at.max(now.as_micros() + 1))).transpose()?;
            first = earlier(first, at);
        }
        Ok(first)
    }
}

impl<'r> Walk<'r> {
    fn new(request: &'r Reserve, expires_at: Timestamp) -> Result<Self, Fault> {
        let unwritten = Secret::pair(LeaseToken::random()?).map(|secret| (secret, Vec::new()));
        let granted = Vec::new();
        Ok(Self { request, expires_at, counts: false, unwritten, granted, bytes: 0 })
    }

    /// Goes on with other secrets; everything that was granted is written.
    fn renew_secrets(&mut self) -> Result<(), Fault> {
        let secrets = Secret::pair(LeaseToken::random()?);
        self.unwritten = secrets.map(|secret| (secret, Vec::new()));
        Ok(())
    }
}

fn read(row: &rusqlite::Row<'_>, demand: &Demand) -> Result<Due, Fault> {
    let id = entry::name(taskharbor_core::JobId::new(entry::text(row, 23)?))?;
    let entry = entry::read_known(row, id, demand.queue.clone())?;
    let payload: Blob = body::payload(row)?;
    let body = body::read(row, &entry, payload)?;
    Ok(Due { entry, body })
}

/// A row that the driver did not write must not keep other jobs from being granted.
fn valid(read: Result<Due, Fault>) -> Result<Option<Due>, Fault> {
    match read {
        Err(Fault::Driver(error)) => {
            tracing::error!(%error, "a row in the store is not a valid job and is skipped");
            Ok(None)
        }
        read => read.map(Some),
    }
}
