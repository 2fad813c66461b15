//! [`Store`]: one call's view of the file, inside a transaction that the caller begins and ends.
//!
//! Every operation goes by the `now` it is given (TIM-1).
//!
//! One rule keeps the store consistent: every change to a job goes through [`Store::write`] or a
//! statement that stands for it, and is told to the job's flow and to the counts of its queue. Rules
//! about a single job are in core's [`Life`], rules about several in core's
//! [`graph`](taskharbor_core::graph), which the store serves as a [`Graph`](taskharbor_core::graph::Graph).

mod ack;
mod check;
mod count;
mod enqueue;
mod export;
pub(crate) mod flow;
mod gate;
mod graph;
mod key;
mod lane;
mod limit;
mod list;
mod manage;
mod members;
mod output;
mod prune;
mod read;
mod reserve;
mod schedule;
mod setting;
mod settle;
mod turn;
mod worker;

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
};

use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, params};
use taskharbor_core::{
    JobId, QueueName, Timestamp,
    driver::{LeaseToken, Limits},
    life::Life,
};

use crate::{
    entry::{self, Entry, stage_number, state},
    error::Fault,
    queue_memory::QueueMemory,
    statement as sql,
    token::{seq_in, to_stored},
};
pub(crate) use count::Recount;

/// What a call has left to be done.
#[derive(Debug)]
pub(crate) struct Effects {
    /// Queues whose watches are woken once the transaction has committed.
    pub(crate) wakes: Vec<QueueName>,
    /// By how much the counts of jobs have changed.
    pub(crate) recount: Recount,
}

/// One call's view of the file.
#[derive(Debug)]
pub(crate) struct Store<'c> {
    conn: &'c Connection,
    limits: Limits,
    /// Queues whose watches are woken once the transaction has committed.
    wakes: Vec<QueueName>,
    /// The last number given to a job or a flow, once it was read; and whether it has to be written.
    last_seq: Option<i64>,
    numbered: bool,
    /// The row that a rule over several jobs looked at last: it mostly asks several things about one
    /// job. It is as the file has it.
    last: RefCell<Option<Entry>>,
    /// By flow: by how much the number of its members that are not terminal has changed.
    live: BTreeMap<i64, i64>,
    recount: Recount,
}

impl<'c> Store<'c> {
    pub(crate) const fn conn(&self) -> &'c Connection {
        self.conn
    }

    pub(crate) fn new(conn: &'c Connection, limits: Limits) -> Self {
        Self {
            conn,
            limits,
            wakes: Vec::new(),
            last_seq: None,
            numbered: false,
            last: RefCell::new(None),
            live: BTreeMap::new(),
            recount: Recount::default(),
        }
    }

    /// Writes what is kept back until the end of the call; the queues to wake when all is committed.
    pub(crate) fn finish(self) -> Result<Vec<QueueName>, Fault> {
        let conn = self.conn;
        let limits = self.limits;
        let Effects { wakes, recount } = self.finish_call()?;
        Store::new(conn, limits).write_counts(recount)?;
        Ok(wakes)
    }

    /// As [`Store::finish`], but the counts are left to the end of the transaction.
    pub(crate) fn finish_call(mut self) -> Result<Effects, Fault> {
        if let (true, Some(last)) = (self.numbered, self.last_seq) {
            self.statement(sql::SET_SEQ)?.execute([last])?;
        }
        self.write_flows()?;
        self.wakes.dedup();
        Ok(Effects { wakes: self.wakes, recount: self.recount })
    }

    fn statement(&self, sql: &str) -> Result<CachedStatement<'c>, Fault> {
        Ok(self.conn.prepare_cached(sql)?)
    }

    fn execute(&self, sql: &str, params: impl Params) -> Result<usize, Fault> {
        Ok(self.statement(sql)?.execute(params)?)
    }

    /// The one value that a statement finds, if it finds a row.
    fn find<T: rusqlite::types::FromSql>(
        &self,
        sql: &str,
        params: impl Params,
    ) -> Result<Option<T>, Fault> {
        Ok(self.statement(sql)?.query_row(params, |row| row.get(0)).optional()?)
    }

    /// The values that a statement finds.
    fn find_all(&self, sql: &str, params: impl Params) -> Result<Vec<i64>, Fault> {
        let mut statement = self.statement(sql)?;
        let found = statement.query_map(params, |row| row.get(0))?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    /// The last number given to a job or a flow.
    fn last_seq(&mut self) -> Result<i64, Fault> {
        if let Some(last) = self.last_seq {
            return Ok(last);
        }
        let last = self.find(sql::LAST_SEQ, [])?.ok_or_else(|| Fault::damaged("a last number"))?;
        self.last_seq = Some(last);
        Ok(last)
    }

    fn next_seq(&mut self) -> Result<i64, Fault> {
        let next =
            self.last_seq()?.checked_add(1).ok_or_else(|| Fault::damaged("a last number"))?;
        self.last_seq = Some(next);
        self.numbered = true;
        Ok(next)
    }

    fn wake_queue(&mut self, queue: &QueueName) {
        // WAK-1
        if self.wakes.last() != Some(queue) {
            self.wakes.push(queue.clone());
        }
    }

    /// Wakes the queues in which a place was freed for a job that was held back.
    pub(crate) fn wake_starved(&mut self, memories: &HashMap<QueueName, QueueMemory>) {
        // WAK-3
        let is_starved = |queue: &QueueName| memories.get(queue).is_some_and(|it| it.is_starved);
        let freed = self.recount.freed().filter(|queue| is_starved(queue)).cloned();
        let freed: Vec<_> = freed.collect();
        freed.iter().for_each(|queue| self.wake_queue(queue));
    }

    fn by_id(&self, id: &JobId) -> Result<Option<Entry>, Fault> {
        let mut statement = self.statement(sql::JOB_BY_ID)?;
        let mut rows = statement.query([id.as_str()])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let queue = entry::name(QueueName::new(entry::text(row, 24)?))?;
        entry::read_known(row, id.clone(), queue).map(Some)
    }

    /// A job as the holder of its lease names it. The token says where the row is; one that another
    /// store has given leads nowhere, or to another job.
    fn by_lease(&self, id: &JobId, token: LeaseToken) -> Result<Option<Entry>, Fault> {
        let mut statement = self.statement(sql::JOB_BY_SEQ)?;
        let mut rows = statement.query([seq_in(token)])?;
        match rows.next()? {
            Some(row)
                if row.get::<_, i64>(1)? == state::INFLIGHT
                    && entry::text(row, 23)? == id.as_str() =>
            {
                let queue = entry::name(QueueName::new(entry::text(row, 24)?))?;
                entry::read_known(row, id.clone(), queue).map(Some)
            }
            _ => self.by_id(id),
        }
    }

    /// A job that another row says is there.
    fn member(&self, seq: i64) -> Result<Entry, Fault> {
        let mut statement = self.statement(sql::JOB_BY_SEQ)?;
        let mut rows = statement.query([seq])?;
        match rows.next()? {
            Some(row) => entry::read(row),
            None => Err(Fault::damaged("a number of a job")),
        }
    }

    fn seq_of(&self, id: &JobId) -> Result<Option<i64>, Fault> {
        self.find(sql::SEQ_OF, [id.as_str()])
    }

    /// Reads something of a job that another row says is there.
    fn look_at<T>(&self, seq: i64, read: impl FnOnce(&Entry) -> T) -> Result<T, Fault> {
        let mut last = self.last.borrow_mut();
        if let Some(entry) = last.as_ref()
            && entry.seq == seq
        {
            return Ok(read(entry));
        }
        Ok(read(last.insert(self.member(seq)?)))
    }

    /// A job to be changed, which [`Store::keep`] takes back.
    fn take(&self, seq: i64) -> Result<Entry, Fault> {
        match self.last.take() {
            Some(entry) if entry.seq == seq => Ok(entry),
            _ => self.member(seq),
        }
    }

    /// Keeps the row of a job at hand, as the file has it.
    fn keep(&mut self, entry: Entry) {
        *self.last.get_mut() = Some(entry);
    }

    /// Forgets the row at hand, if it is the one of this job.
    fn forget(&mut self, seq: i64) {
        let last = self.last.get_mut();
        if last.as_ref().is_some_and(|entry| entry.seq == seq) {
            *last = None;
        }
    }

    /// Changes a job's life, and writes it if it is another then.
    fn change_entry<T>(
        &mut self,
        entry: &mut Entry,
        change: impl FnOnce(&mut Life) -> T,
    ) -> Result<T, Fault> {
        let before = entry.life.clone();
        let answer = change(&mut entry.life);
        // REF-2
        if entry.life != before {
            self.write(entry)?;
            self.count_in_flow(entry, before.finish().is_some());
        }
        Ok(answer)
    }

    /// Writes a job's row.
    fn write(&mut self, entry: &mut Entry) -> Result<(), Fault> {
        self.forget(entry.seq);
        self.write_errors(entry)?;
        let life = &entry.life;
        let (hold, finish) = (life.active_lease(), life.finish());
        // SET-8, REQ-8: a job that waits has no token.
        let lease = hold.map(|hold| hold.lease).or_else(|| finish.and_then(|finish| finish.by));
        let stage = stage_number(life);
        self.execute(
            sql::WRITE_STATE,
            params![
                entry.seq,
                stage,
                micros(life.grantable_at()),
                life.due_at.as_micros(),
                life.priority,
                i64::try_from(life.pending).unwrap_or(i64::MAX),
                life.attempts,
                life.deliveries,
                life.expirations,
                life.epoch,
                entry.failures,
                hold.is_some_and(|hold| hold.cancel_requested),
                entry.flow,
                micros(life.run_at),
                micros(life.started_at),
                micros(lease.map(|lease| lease.expires_at)),
                micros(finish.map(|finish| finish.at)),
                micros(life.kept_until()),
                life.attempt_limit,
                entry.expanded,
                hold.map(|hold| hold.holder.as_str()),
                life.expanded_into.as_ref().map(JobId::as_str),
                lease.map(|lease| to_stored(lease.token, &entry.id, entry.seq)),
                life.progress.as_ref().map(taskharbor_core::Text::as_str),
                life.reason.as_ref().map(taskharbor_core::Text::as_str),
                entry::mark_number(hold.and_then(|hold| hold.mark)),
                life.released.as_ref().map(ToString::to_string),
            ],
        )?;
        if let Some(output) = entry.life.output.take() {
            self.execute(sql::WRITE_OUTPUT, params![entry.seq, &*output])?;
        }
        self.recount.moved(&entry.queue, entry.stored_state, stage);
        entry.stored_state = stage;
        Ok(())
    }

    /// Records the failures that the life has gained since it was read.
    fn write_errors(&mut self, entry: &mut Entry) -> Result<(), Fault> {
        for failure in std::mem::take(&mut entry.life.errors) {
            entry.failures += 1;
            let (at, text) = (failure.failed_at.as_micros(), failure.error.as_str());
            let row = params![entry.seq, entry.failures, failure.attempts, at, text];
            self.execute(sql::ADD_ERROR, row)?;
        }
        let kept = i64::try_from(Limits::ERRORS_KEPT).unwrap_or(i64::MAX);
        if entry.failures > kept {
            self.execute(sql::DROP_ERRORS, [entry.seq, entry.failures - kept])?;
        }
        Ok(())
    }

    /// Removes a job that is in no flow, or whose whole flow is being removed.
    fn remove_job(&mut self, entry: &Entry) -> Result<(), Fault> {
        self.leave_key(entry)?;
        self.delete_records(entry)?;
        self.recount.moved(&entry.queue, entry.stored_state, state::WAITING);
        Ok(())
    }

    /// Deletes everything that is stored of a job but its key.
    fn delete_records(&mut self, entry: &Entry) -> Result<(), Fault> {
        self.forget(entry.seq);
        if entry.failures > 0 {
            self.execute(sql::DELETE_ERRORS, [entry.seq])?;
        }
        self.execute(sql::DELETE_EDGES, [entry.seq])?;
        self.execute(sql::DELETE_JOB, [entry.seq])?;
        self.execute(sql::DELETE_STATE, [entry.seq])?;
        Ok(())
    }

    pub(crate) fn version(&self) -> Result<i64, Fault> {
        self.find(sql::VERSION, [])?.ok_or_else(|| Fault::damaged("a version"))
    }

    pub(crate) fn migrate(&self) -> Result<(), Fault> {
        // ADM-11
        crate::migration::bring_up(self.conn)
    }
}

/// Numbers as a statement reads many of them: in JSON.
fn number_list(numbers: &[i64]) -> String {
    let mut list = String::with_capacity(numbers.len() * 8 + 2);
    for number in numbers {
        list.push(if list.is_empty() { '[' } else { ',' });
        list += &number.to_string();
    }
    list + "]"
}

fn earlier(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    [a, b].into_iter().flatten().min()
}

fn micros(time: Option<Timestamp>) -> Option<i64> {
    time.map(Timestamp::as_micros)
}
