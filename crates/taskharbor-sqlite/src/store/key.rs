//! Idempotency keys.

use rusqlite::params;
use taskharbor_core::{JobId, NewJob, Timestamp, job::KeyHold, name::IdempotencyKey};

use super::{Store, micros};
use crate::{
    entry::{self, Entry, optional_time, text},
    error::Fault,
    statement as sql,
};

impl Store<'_> {
    /// The job that holds this job's key at `now`.
    pub(super) fn key_holder(&self, job: &NewJob, now: Timestamp) -> Result<Option<JobId>, Fault> {
        match &job.idempotency_key {
            Some(key) => self.holder_of(job.queue.as_str(), key.as_str(), now),
            None => Ok(None),
        }
    }

    fn holder_of(&self, queue: &str, key: &str, now: Timestamp) -> Result<Option<JobId>, Fault> {
        // KEY-1, KEY-10
        let row = params![queue, key, now.as_micros()];
        let holder: Option<String> = self.find(sql::KEY_HOLDER, row)?;
        holder.map(|id| entry::name(JobId::new(id))).transpose()
    }

    /// Lets a job that is stored hold its key, if it has one.
    pub(super) fn take_key(
        &self,
        job: &NewJob,
        seq: i64,
        created_at: Timestamp,
    ) -> Result<(), Fault> {
        let Some(key) = &job.idempotency_key else { return Ok(()) };
        let until = micros(job.key_hold.held_until(created_at));
        let row = params![job.queue.as_str(), key.as_str(), job.id.as_str(), seq, until];
        self.execute(sql::HOLD_KEY, row).map(drop)
    }

    /// Lets a job hold the key it was enqueued with, which is free.
    pub(super) fn retake_key(&self, entry: &Entry) -> Result<(), Fault> {
        let Some((key, created_at)) = self.key_of(entry)? else { return Ok(()) };
        let until = micros(entry.key_hold.held_until(created_at));
        let row = params![entry.queue.as_str(), key.as_str(), entry.id.as_str(), entry.seq, until];
        self.execute(sql::HOLD_KEY, row).map(drop)
    }

    /// The other job that holds the key of this one at `now`.
    pub(super) fn key_rival(&self, entry: &Entry, now: Timestamp) -> Result<Option<JobId>, Fault> {
        let Some((key, _)) = self.key_of(entry)? else { return Ok(None) };
        let holder = self.holder_of(entry.queue.as_str(), key.as_str(), now)?;
        Ok(holder.filter(|holder| *holder != entry.id))
    }

    /// Frees the key that a job holds, if it does.
    pub(super) fn drop_key(&self, entry: &Entry) -> Result<(), Fault> {
        let Some((key, _)) = self.key_of(entry)? else { return Ok(()) };
        self.execute(sql::FREE_KEY, params![entry.queue.as_str(), key.as_str(), entry.seq])?;
        Ok(())
    }

    /// Frees the key of a job whose record is removed, unless it is held for a time.
    pub(super) fn leave_key(&self, entry: &Entry) -> Result<(), Fault> {
        let Some((key, _)) = self.key_of(entry)? else { return Ok(()) };
        let sql = match entry.key_hold {
            // KEY-9
            KeyHold::For(_) => sql::ORPHAN_KEY,
            // KEY-3, PRU-3
            KeyHold::UntilPruned | KeyHold::UntilDone | KeyHold::UntilTerminal => sql::FREE_KEY,
        };
        self.execute(sql, params![entry.queue.as_str(), key.as_str(), entry.seq]).map(drop)
    }

    /// The key that a job was enqueued with, and when.
    fn key_of(&self, entry: &Entry) -> Result<Option<(IdempotencyKey, Timestamp)>, Fault> {
        if !entry.keyed {
            return Ok(None);
        }
        let mut statement = self.statement(sql::KEY_OF)?;
        let mut rows = statement.query([entry.seq])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let key = entry::name(IdempotencyKey::new(text(row, 0)?))?;
        Ok(optional_time(row, 1)?.map(|created_at| (key, created_at)))
    }
}
