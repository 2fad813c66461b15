//! [`Store`]: one call's view of the file, inside a transaction that somebody else begins and ends.
//!
//! One rule keeps the store true: whoever changes a job does it through [`Store::change`], which
//! writes the row and tells the job's flow what changed. Rules about a single job are core's.

mod check;
mod enqueue;
mod flow;
mod manage;
mod members;
mod output;
mod parcel;
mod prune;
mod read;
mod reserve;
mod settle;
mod spread;

use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, params};
use taskharbor_core::{JobId, QueueName, Timestamp, driver::Limits, job::KeyHold, life::Life};

use crate::{
    entry::{self, Entry, stage_number},
    error::Fault,
    statement as sql,
};

/// One call's view of the file.
#[derive(Debug)]
pub(crate) struct Store<'c> {
    conn: &'c Connection,
    limits: Limits,
    /// Queues in which somebody should look for work once the transaction has committed.
    wakes: Vec<QueueName>,
    /// The last number given to a job or a flow, once it was read; and whether it has to be written.
    last_seq: Option<i64>,
    numbered: bool,
}

impl<'c> Store<'c> {
    pub(crate) fn new(conn: &'c Connection, limits: Limits) -> Self {
        Self { conn, limits, wakes: Vec::new(), last_seq: None, numbered: false }
    }

    /// Writes what is kept back until the end of the call; the queues to wake when all is committed.
    pub(crate) fn finish(mut self) -> Result<Vec<QueueName>, Fault> {
        if let (true, Some(last)) = (self.numbered, self.last_seq) {
            self.statement(sql::SET_SEQ)?.execute([last])?;
        }
        self.wakes.dedup();
        Ok(std::mem::take(&mut self.wakes))
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

    fn wake(&mut self, queue: &QueueName) {
        if self.wakes.last() != Some(queue) {
            self.wakes.push(queue.clone());
        }
    }

    fn by_id(&self, id: &JobId) -> Result<Option<Entry>, Fault> {
        let mut statement = self.statement(sql::JOB_BY_ID)?;
        let mut rows = statement.query([id.as_str()])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let queue = entry::name(QueueName::new(entry::text(row, 24)?))?;
        entry::read_known(row, id.clone(), queue).map(Some)
    }

    fn by_seq(&self, seq: i64) -> Result<Option<Entry>, Fault> {
        let mut statement = self.statement(sql::JOB_BY_SEQ)?;
        let mut rows = statement.query([seq])?;
        rows.next()?.map(entry::read).transpose()
    }

    /// A job that another row says is there.
    fn member(&self, seq: i64) -> Result<Entry, Fault> {
        self.by_seq(seq)?.ok_or_else(|| Fault::damaged("a number of a job"))
    }

    fn is_stored(&self, id: &JobId) -> Result<bool, Fault> {
        Ok(self.find::<i64>(sql::SEQ_OF, [id.as_str()])?.is_some())
    }

    /// Changes a job's life and writes it, unless it stays as it was because the change was refused.
    fn change<T, E>(
        &mut self,
        entry: &mut Entry,
        change: impl FnOnce(&mut Life) -> Result<T, E>,
    ) -> Result<Result<T, E>, Fault> {
        let was_over = entry.is_over();
        let answer = change(&mut entry.life);
        if answer.is_ok() {
            self.write(entry)?;
            self.count_in_flow(entry, was_over)?;
        }
        Ok(answer)
    }

    /// Writes a job's row.
    fn write(&mut self, entry: &mut Entry) -> Result<(), Fault> {
        self.write_errors(entry)?;
        let life = &entry.life;
        let (hold, finish) = (life.active_lease(), life.finish());
        let lease = hold.map(|hold| hold.lease).or_else(|| finish.and_then(|finish| finish.by));
        self.execute(
            sql::WRITE_JOB,
            params![
                entry.seq,
                stage_number(life),
                micros(life.available_at()),
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
                entry.grown,
                hold.map(|hold| hold.holder.as_str()),
                life.expanded_into.as_ref().map(JobId::as_str),
                lease.map(|lease| lease.token.to_bits().to_be_bytes()),
                life.progress.as_ref().map(taskharbor_core::Text::as_str),
                life.reason.as_ref().map(taskharbor_core::Text::as_str),
            ],
        )?;
        if let Some(output) = &life.output {
            self.execute(sql::WRITE_OUTPUT, params![entry.seq, &**output])?;
        }
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

    /// Gives up the key that a job holds, if it does.
    fn release_key(&self, entry: &Entry) -> Result<(), Fault> {
        if !entry.keyed {
            return Ok(());
        }
        if let Some(Some(key)) = self.find::<Option<String>>(sql::KEY_OF, [entry.seq])? {
            self.execute(sql::RELEASE_KEY, params![entry.queue.as_str(), key, entry.seq])?;
        }
        Ok(())
    }

    /// Gives up the keys that were held until this job is done: its own, and that of the job whose
    /// output it has produced in the end.
    fn release_key_when_done(&self, entry: &Entry) -> Result<(), Fault> {
        if entry.key_hold == KeyHold::UntilDone {
            self.release_key(entry)?;
        }
        let Some(flow) = entry.flow.map(|flow| self.flow(flow)).transpose()? else { return Ok(()) };
        if flow.tail == entry.seq
            && flow.id != entry.id
            && let Some(begun_as) = self.by_id(&flow.id)?
            && begun_as.key_hold == KeyHold::UntilDone
        {
            self.release_key(&begun_as)?;
        }
        Ok(())
    }

    /// Removes a job that is in no flow, or whose whole flow is being removed.
    fn remove(&self, entry: &Entry) -> Result<(), Fault> {
        self.release_key(entry)?;
        if entry.failures > 0 {
            self.execute(sql::DELETE_ERRORS, [entry.seq])?;
        }
        self.execute(sql::DELETE_EDGES, [entry.seq])?;
        self.execute(sql::DELETE_BODY, [entry.seq])?;
        self.execute(sql::DELETE_JOB, [entry.seq])?;
        Ok(())
    }

    pub(crate) fn version(&self) -> Result<i64, Fault> {
        self.find(sql::VERSION, [])?.ok_or_else(|| Fault::damaged("a version"))
    }

    pub(crate) fn migrate(&self) -> Result<(), Fault> {
        crate::migration::bring_up(self.conn)
    }

    pub(crate) fn pause(&mut self, queue: &QueueName, now: Timestamp) -> Result<(), Fault> {
        self.execute(sql::PAUSE, params![queue.as_str(), now.as_micros()]).map(drop)
    }

    pub(crate) fn resume(&mut self, queue: &QueueName) -> Result<(), Fault> {
        if self.execute(sql::RESUME, [queue.as_str()])? > 0 {
            self.wake(queue);
        }
        Ok(())
    }
}

fn micros(time: Option<Timestamp>) -> Option<i64> {
    time.map(Timestamp::as_micros)
}
