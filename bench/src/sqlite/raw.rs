//! Raw SQLite: the inserts and updates that the driver makes, without checks for existing rows, without
//! permissions, and without wake-ups.

use rusqlite::{Connection, params};
use taskharbor_core::{clock::StoreClock, driver::Enqueue};
use taskharbor_sqlite::{Config, SqliteDriver};

use super::{
    Outcome,
    store::{LEASE, QUEUE, TempDir},
};

/// A connection to a file with the driver's tables that the driver does not have open.
pub(crate) struct Raw {
    conn: Connection,
    last: i64,
    _temp: TempDir,
}

const STATE: &str = "INSERT INTO th_state (seq, state, available_at, due_at, priority, pending, kind, key_hold, \
     on_failure, keyed, id, queue) VALUES (?1, 0, ?2, ?2, 0, 0, 0, 0, 0, 0, ?3, ?4)";
const JOB: &str =
    "INSERT INTO th_job (seq, type, created_at, waits_for, payload) VALUES (?1, ?2, ?3, 0, ?4)";
const SEQ: &str = "UPDATE th_meta SET seq = ?1";
const DUE: &str = "SELECT s.seq, j.payload FROM th_state s JOIN th_job j ON j.seq = s.seq \
     WHERE s.queue = ?1 AND s.lane IS NULL AND s.priority = 0 AND s.available_at <= ?2 ORDER BY s.available_at, s.seq LIMIT ?3";
const GRANT: &str = "UPDATE th_state SET state = 2, available_at = ?2, started_at = ?3, lease_expires_at = ?2, \
     deliveries = deliveries + 1, holder = 'bench', lease_token = ?4 WHERE seq = ?1";
const ACK: &str = "UPDATE th_state SET state = 3, available_at = NULL, finished_at = ?2, kept_until = ?3, \
     holder = NULL WHERE seq = ?1 AND lease_token = ?4";

impl Raw {
    pub(crate) async fn new() -> Outcome<Self> {
        let temp = TempDir::new()?;
        let driver = SqliteDriver::open_with(Config::new(temp.file()).create(true)).await?;
        taskharbor_core::Driver::close(&driver).await?;
        let conn = Connection::open(temp.file())?;
        conn.execute_batch(
            "PRAGMA synchronous = FULL; PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY; \
             PRAGMA wal_autocheckpoint = 2000;",
        )?;
        Ok(Self { conn, last: 0, _temp: temp })
    }

    /// One transaction for each call.
    pub(crate) fn enqueue(&mut self, calls: &[Enqueue]) -> Outcome {
        for call in calls {
            let tx = self.conn.transaction()?;
            {
                let (mut state, mut job) = (tx.prepare_cached(STATE)?, tx.prepare_cached(JOB)?);
                let at = call.now.as_micros();
                for new in call.sets.iter().flat_map(|set| &set.jobs) {
                    self.last += 1;
                    state.execute(params![self.last, at, new.id.as_str(), new.queue.as_str()])?;
                    job.execute(params![self.last, new.job_type.as_str(), at, &*new.payload])?;
                }
                tx.prepare_cached(SEQ)?.execute([self.last])?;
            }
            tx.commit()?;
        }
        Ok(())
    }

    /// Two transactions for each batch: one that grants and one that acks. Answers how many jobs
    /// that were.
    pub(crate) fn drain(&mut self, batch: usize) -> Outcome<usize> {
        let mut done = 0;
        loop {
            match self.step(batch)? {
                0 => return Ok(done),
                count => done += count,
            }
        }
    }

    fn step(&mut self, batch: usize) -> Outcome<usize> {
        let now = StoreClock::wall_time();
        let (at, until) = (now.as_micros(), now.saturating_add(LEASE).as_micros());
        let tx = self.conn.transaction()?;
        let jobs = {
            let mut due = tx.prepare_cached(DUE)?;
            let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
            let found = due.query_map(params![QUEUE, at, i64::try_from(batch)?], row)?;
            let jobs = found.collect::<Result<Vec<(i64, Vec<u8>)>, _>>()?;
            let mut grant = tx.prepare_cached(GRANT)?;
            for (seq, _) in &jobs {
                grant.execute(params![seq, until, at, token(*seq)])?;
            }
            jobs
        };
        tx.commit()?;
        if jobs.is_empty() {
            return Ok(0);
        }
        let at = StoreClock::wall_time().as_micros();
        let tx = self.conn.transaction()?;
        {
            let mut ack = tx.prepare_cached(ACK)?;
            for (seq, _) in &jobs {
                if ack.execute(params![seq, at, until, token(*seq)])? != 1 {
                    return Err("a raw ack found no job".into());
                }
            }
        }
        tx.commit()?;
        Ok(jobs.len())
    }
}

fn token(seq: i64) -> [u8; 16] {
    u128::from(seq.unsigned_abs()).to_be_bytes()
}
