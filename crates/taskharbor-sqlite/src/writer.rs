//! [`Writer`]: the one thread that writes.
//!
//! It takes the calls that came while it was busy, applies them in one transaction, commits, and
//! answers all of them: under load many calls share the wait for the disk, and a call that comes
//! alone waits for no other. While a queue is watched it also looks whether another connection has
//! committed, which SQLite tells for the price of a look into shared memory.
//!
//! SQLite lets one transaction write at a time, and every call begins a writing transaction. So no two
//! calls run at the same time, in this process or in others: ENQ-7, KEY-6, RES-9, LIM-2, SET-10, FLO-8,
//! CAN-9, SCH-5.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc::Receiver},
    time::Duration,
};

use rusqlite::Connection;
use taskharbor_core::{DriverError, QueueName, driver::WakeHub};

use crate::{
    Config,
    call::{Call, Calls},
    error::Fault,
    file::{self, Opened},
    mailbox::Taken,
    migration,
    queue_memory::QueueMemories,
    store::{Effects, Recount, Store},
};

/// How often the writer looks whether others have committed, while a queue is watched.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(25);
/// How many jobs the calls of one transaction concern at most, so that none waits for long.
const MOST_JOBS: usize = 5_000;
/// How long to wait before trying for the lock again, at first and at most.
const FIRST_WAIT: Duration = Duration::from_micros(500);
const LONGEST_WAIT: Duration = Duration::from_millis(5);

pub(crate) struct Writer {
    config: Config,
    calls: Arc<Calls>,
    hub: WakeHub,
    memories: QueueMemories,
    opened: Option<Opened>,
    /// The threads that read: while they keep the file open, what SQLite remembers of it in this
    /// process stays as it was found.
    readers: Arc<Calls>,
    nudges: u64,
    /// What SQLite said when it was last asked whether others have committed.
    data_version: Option<i64>,
}

/// The answers to the calls of a transaction that is to be committed.
struct Applied {
    /// For each call, why it did not take part.
    errors: Vec<Option<DriverError>>,
    wakes: Vec<QueueName>,
}

impl Writer {
    pub(crate) fn new(
        config: Config,
        opened: Opened,
        [calls, readers]: [Arc<Calls>; 2],
        hub: WakeHub,
        memories: QueueMemories,
    ) -> Self {
        let opened = Some(opened);
        Self { config, calls, hub, memories, opened, readers, nudges: 0, data_version: None }
    }

    /// Serves until the mailbox is closed. Then it waits for the threads that read, whose end
    /// `reading` tells: only a connection that may write puts what is in the log into the file and removes it, and only
    /// if it is the last.
    pub(crate) fn run(mut self, reading: &Receiver<()>) {
        self.serve_all();
        // Nothing is ever sent; it fails when all of them have closed the file.
        let _ = reading.recv();
        if let Some(opened) = self.opened.take() {
            // For the case that another process closes the file in the same moment, and both take the
            // other for the last one.
            let _ = opened.conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        }
    }

    fn serve_all(&mut self) {
        loop {
            let look_every = self.hub.is_watched().then_some(LOOK_EVERY);
            match self.calls.take(MOST_JOBS, &mut self.nudges, look_every, |call| call.weight()) {
                Taken::Items(calls) => {
                    // Their callers are told; other calls must not suffer for them.
                    if catch_unwind(AssertUnwindSafe(|| self.serve(calls))).is_err() {
                        self.close_file();
                    }
                }
                Taken::Nothing => self.look(),
                Taken::Closed => return,
            }
        }
    }

    fn serve(&mut self, mut calls: Vec<Box<dyn Call>>) {
        calls.retain(|call| !call.is_abandoned());
        if calls.is_empty() {
            return;
        }
        match self.transact(&mut calls) {
            Ok(errors) => {
                for (call, error) in calls.into_iter().zip(errors) {
                    call.answer(error);
                }
            }
            Err(error) => calls.into_iter().for_each(|call| call.answer(Some(error.clone()))),
        }
    }

    /// Applies all calls in one transaction and commits; tells for each call why it did not take part.
    fn transact(
        &mut self,
        calls: &mut [Box<dyn Call>],
    ) -> Result<Vec<Option<DriverError>>, DriverError> {
        self.ensure_open()?;
        let Some(opened) = &self.opened else { return Err(DriverError::Closed) };
        let conn = &opened.conn;
        let outcome = begin(conn, self.config.busy_timeout).and_then(|()| {
            let news = data_version(conn)?;
            let applied = apply(conn, calls, &self.config)?;
            // A worker that is woken asks this thread, and so is answered after the commit; on its way
            // here it need not wait for the disk.
            self.memories.disturb(&applied.wakes);
            self.hub.wake(&applied.wakes);
            command(conn, "COMMIT")?;
            Ok((applied.errors, news))
        });
        match outcome {
            Ok((errors, news)) => {
                // A commit into a log that no other process can see is not acknowledged.
                opened.check_place()?;
                self.notice(news);
                Ok(errors)
            }
            Err(fault) => {
                if !conn.is_autocommit() {
                    // If this fails too, the connection is given up below.
                    let _ = conn.execute_batch("ROLLBACK");
                }
                if fault.is_full() {
                    // The log then begins anew in the room that it has.
                    let restart = "PRAGMA wal_checkpoint(RESTART)";
                    let _ = conn.query_row(restart, [], |_| Ok(()));
                }
                if fault.ends_connection() || !conn.is_autocommit() {
                    self.close_file();
                }
                Err(fault.into())
            }
        }
    }

    /// Opens the file if it is not open, and makes sure that it is the one at its path.
    fn ensure_open(&mut self) -> Result<(), DriverError> {
        if let Some(opened) = &self.opened {
            match opened.check_place() {
                Ok(()) => return Ok(()),
                Err(error) => {
                    self.close_file();
                    tracing::warn!(%error, "the file is not where it was");
                }
            }
        }
        self.data_version = None;
        let opened = file::again(&self.config)?;
        self.opened = Some(opened);
        Ok(())
    }

    /// Closes the file, here and where it is read: opening it again may repair the fault.
    fn close_file(&mut self) {
        if self.opened.take().is_some() {
            self.readers.nudge();
        }
    }

    /// Wakes all watches if other connections have committed since the last time.
    fn notice(&mut self, news: i64) {
        self.hub.set_reaching(true);
        if self.data_version.replace(news) != Some(news) {
            self.memories.disturb_all();
            self.hub.wake_all();
        }
    }

    fn look(&mut self) {
        let news = self.ensure_open().and_then(|()| match &self.opened {
            Some(opened) => data_version(&opened.conn).map_err(DriverError::from),
            None => Err(DriverError::Closed),
        });
        match news {
            Ok(news) => self.notice(news),
            // Workers have to look for themselves, and are told what is wrong when they do.
            Err(_) => {
                self.close_file();
                self.hub.set_reaching(false);
            }
        }
    }
}

/// Changes when another connection has committed, in this process or another one.
fn data_version(conn: &Connection) -> Result<i64, Fault> {
    Ok(conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?)
}

/// Takes the lock for writing, or fails as unavailable (REF-6). SQLite would wait in longer and
/// longer steps, in which connections that write all the time get ahead again and again.
fn begin(conn: &Connection, limit: Duration) -> Result<(), Fault> {
    conn.busy_timeout(Duration::ZERO)?;
    let (mut waited, mut wait) = (Duration::ZERO, FIRST_WAIT);
    loop {
        match command(conn, "BEGIN IMMEDIATE") {
            Err(fault) if fault.is_busy() && waited < limit => {
                std::thread::park_timeout(wait);
                waited += wait;
                wait = (wait * 2).min(LONGEST_WAIT);
            }
            outcome => return outcome,
        }
    }
}

/// Carries all calls out. What fails by itself spoils no other.
fn apply(
    conn: &Connection,
    calls: &mut [Box<dyn Call>],
    config: &Config,
) -> Result<Applied, Fault> {
    let (mut errors, mut wakes) = (Vec::with_capacity(calls.len()), Vec::new());
    let mut recount = Recount::default();
    let alone = calls.len() == 1;
    for call in calls {
        let outcome = if alone {
            run(conn, call.as_mut(), config)
        } else {
            command(conn, "SAVEPOINT th_call")?;
            run(conn, call.as_mut(), config)
        };
        match outcome {
            Ok(effects) => {
                wakes.extend(effects.wakes);
                recount.merge(effects.recount);
                errors.push(None);
            }
            // Then nothing of the transaction is left, or nothing that could be relied on.
            Err(fault) if alone || conn.is_autocommit() || fault.ends_connection() => {
                return Err(fault);
            }
            Err(fault) => {
                command(conn, "ROLLBACK TO th_call")?;
                errors.push(Some(fault.into()));
            }
        }
        if !alone {
            command(conn, "RELEASE th_call")?;
        }
    }
    Store::new(conn, config.limits).write_counts(recount)?;
    wakes.sort();
    wakes.dedup();
    Ok(Applied { errors, wakes })
}

fn run(conn: &Connection, call: &mut dyn Call, config: &Config) -> Result<Effects, Fault> {
    if call.needs_version() {
        migration::check_version(conn)?;
    }
    let mut store = Store::new(conn, config.limits);
    call.run(&mut store)?;
    store.finish_call()
}

/// A statement without parameters or rows, which is prepared once.
fn command(conn: &Connection, sql: &str) -> Result<(), Fault> {
    conn.prepare_cached(sql)?.execute([])?;
    Ok(())
}
