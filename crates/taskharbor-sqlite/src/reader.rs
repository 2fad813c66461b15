//! [`Reader`]: a thread that reads, with a connection of its own, so that it never waits for a
//! transaction that writes.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use rusqlite::Connection;
use taskharbor_core::DriverError;

use crate::{
    Config,
    call::{Call, Calls},
    error::Fault,
    file::{self, Opened},
    mailbox::Taken,
    migration,
    store::Store,
};

pub(crate) struct Reader {
    config: Config,
    calls: Arc<Calls>,
    opened: Option<Opened>,
    nudges: u64,
}

impl Reader {
    pub(crate) fn new(config: Config, calls: Arc<Calls>) -> Self {
        Self { config, calls, opened: None, nudges: 0 }
    }

    /// Serves until the mailbox is closed.
    pub(crate) fn run(mut self) {
        loop {
            match self.calls.take(1, &mut self.nudges, None, |_| 1) {
                Taken::Items(calls) => {
                    for mut call in calls.into_iter().filter(|call| !call.is_abandoned()) {
                        // If it panics, the caller is told, and the connection is dropped.
                        let serve = AssertUnwindSafe(|| self.serve(call.as_mut()).err());
                        if let Ok(error) = catch_unwind(serve) {
                            call.answer(error);
                        }
                    }
                }
                // Another thread found something wrong with the file.
                Taken::Nothing => self.opened = None,
                Taken::Closed => return,
            }
        }
    }

    fn serve(&mut self, call: &mut dyn Call) -> Result<(), DriverError> {
        let opened = match self.opened.take() {
            Some(opened) if opened.check_place().is_ok() => opened,
            _ => file::reader(&self.config)?,
        };
        let mut outcome = self.read(&opened.conn, call);
        // What SQLite makes of a file that was removed meanwhile says less.
        if outcome.is_err()
            && let Err(gone) = opened.check_place()
        {
            outcome = Err(gone.into());
        }
        if !opened.conn.is_autocommit() {
            let _ = opened.conn.execute_batch("ROLLBACK");
        }
        let keep = !outcome.as_ref().is_err_and(Fault::ends_connection);
        self.opened = Some(opened).filter(|it| keep && it.conn.is_autocommit());
        Ok(outcome?)
    }

    /// All that a call reads, it reads as of one moment.
    fn read(&self, conn: &Connection, call: &mut dyn Call) -> Result<(), Fault> {
        conn.execute_batch("BEGIN")?;
        if call.needs_version() {
            migration::check_version(conn)?;
        }
        call.run(&mut Store::new(conn, self.config.limits))
    }
}
