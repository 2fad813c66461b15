//! [`Tx`] and [`Within`]: the application's own transaction, for jobs that are stored and completed
//! in it.
//!
//! A transaction of rusqlite borrows its connection in a way that binds it to one thread, and a
//! future may run on any. So there are two ways. [`Tx`] has the connection itself for as long as the
//! transaction lasts. [`Within`] forwards each request to the thread that owns the transaction, which
//! also drives the future that uses it.

use std::{
    fmt,
    future::Future,
    ops::Deref,
    path::Path,
    pin::pin,
    sync::{Arc, mpsc},
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use rusqlite::{Connection, Transaction as Borrowed};
use taskharbor_core::{
    DriverError, JobType, Timestamp,
    admin::{Filter, List},
    driver::{Answers, DriverId, Enqueue, Enqueued, Limits, SeenJob, Settle, Settled, Transaction},
    error::{Refusal, Rejected},
};
use tokio::sync::oneshot;

use crate::{SqliteDriver, error::Fault, file, migration, store::Store};

/// The connection is not one to the driver's file.
#[derive(Debug, thiserror::Error)]
#[error("the connection is to another file than the driver's: open one to {0:?}")]
struct OtherFile(std::path::PathBuf);

/// The application's own transaction on its own connection, as [`SqliteDriver::begin`] makes it.
///
/// It is used as the connection that it is: `tx.execute(…)`. What is done through it happens if and
/// only if it is committed; dropped without that, it is rolled back.
#[derive(Debug)]
pub struct Tx<'c> {
    driver: SqliteDriver,
    conn: &'c mut Connection,
}

impl Tx<'_> {
    /// Makes all of it happen.
    ///
    /// # Errors
    ///
    /// As [`DriverError`] is for calls of the driver: then none of it has happened.
    pub fn commit(self) -> Result<(), DriverError> {
        Ok(self.conn.execute_batch("COMMIT").map_err(Fault::from)?)
    }

    /// Makes none of it happen.
    ///
    /// # Errors
    ///
    /// As [`DriverError`] is for calls of the driver.
    pub fn rollback(self) -> Result<(), DriverError> {
        Ok(self.conn.execute_batch("ROLLBACK").map_err(Fault::from)?)
    }
}

impl Deref for Tx<'_> {
    type Target = Connection;
    fn deref(&self) -> &Connection {
        self.conn
    }
}

impl Drop for Tx<'_> {
    fn drop(&mut self) {
        if !self.conn.is_autocommit() {
            // A connection on which even this fails cannot be used, and says so next time.
            let _ = self.conn.execute_batch("ROLLBACK");
        }
    }
}

impl Transaction for Tx<'_> {
    fn driver(&self) -> DriverId {
        self.driver.identity()
    }

    async fn enqueue(&mut self, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        enqueue(&self.driver, self.conn, &request)
    }

    async fn settle(&mut self, request: Settle) -> Answers<Settled, Refusal> {
        settle(&self.driver, self.conn, &request)
    }

    async fn stored(&mut self, job_type: JobType) -> Result<Vec<SeenJob>, DriverError> {
        stored(&self.driver, self.conn, &job_type)
    }
}

/// Stands for a transaction that another thread has, in [`SqliteDriver::within`].
#[derive(Debug)]
pub struct Within {
    driver: SqliteDriver,
    requests: mpsc::Sender<Request>,
    thread: Thread,
}

/// What is asked for through a [`Within`].
enum Request {
    Enqueue(Enqueue, oneshot::Sender<Answers<Vec<Enqueued>, Rejected>>),
    Settle(Settle, oneshot::Sender<Answers<Settled, Refusal>>),
    Stored(JobType, oneshot::Sender<Result<Vec<SeenJob>, DriverError>>),
}

impl Within {
    fn send(&self, request: Request) {
        // If the thread has gone on, no answer comes, and that is what the caller is told.
        let _ = self.requests.send(request);
        self.thread.unpark();
    }
}

fn over() -> DriverError {
    DriverError::backend("the transaction is over: use it before `within` returns")
}

impl Transaction for Within {
    fn driver(&self) -> DriverId {
        self.driver.identity()
    }

    async fn enqueue(&mut self, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        let (reply, answer) = oneshot::channel();
        self.send(Request::Enqueue(request, reply));
        answer.await.unwrap_or_else(|_| Err(over()))
    }

    async fn settle(&mut self, request: Settle) -> Answers<Settled, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.send(Request::Settle(request, reply));
        answer.await.unwrap_or_else(|_| Err(over()))
    }

    async fn stored(&mut self, job_type: JobType) -> Result<Vec<SeenJob>, DriverError> {
        let (reply, answer) = oneshot::channel();
        self.send(Request::Stored(job_type, reply));
        answer.await.unwrap_or_else(|_| Err(over()))
    }
}

impl Request {
    fn serve(self, driver: &SqliteDriver, conn: &Connection) {
        // The caller may have dropped its future.
        match self {
            Self::Enqueue(request, reply) => drop(reply.send(enqueue(driver, conn, &request))),
            Self::Settle(request, reply) => drop(reply.send(settle(driver, conn, &request))),
            Self::Stored(job_type, reply) => drop(reply.send(stored(driver, conn, &job_type))),
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Request")
    }
}

/// Wakes the thread that drives a future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl SqliteDriver {
    /// Begins a transaction on the application's own connection, which must be one to the driver's
    /// file, for `client.enqueue(job).within(&mut tx)` and `context.ack_in(&mut tx, output)`.
    ///
    /// It takes the lock for writing at once and waits for it as long as the connection's own busy
    /// timeout says. No other connection can write until it ends, so commit soon. Workers in this and
    /// other processes notice the commit within 50 ms.
    ///
    /// ```
    /// # async fn example(
    /// #     sqlite: taskharbor_sqlite::SqliteDriver,
    /// #     job: taskharbor_core::NewJob,
    /// #     now: taskharbor_core::Timestamp,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use taskharbor_core::driver::{Enqueue, Transaction};
    /// use taskharbor_sqlite::rusqlite::Connection;
    ///
    /// let mut conn = Connection::open(sqlite.path())?;
    /// let mut tx = sqlite.begin(&mut conn)?;
    /// tx.execute("INSERT INTO booking (seat) VALUES (?1)", ["12A"])?;
    /// tx.enqueue(Enqueue::new(vec![job.into()], now)).await?; // or client.enqueue(job).within(&mut tx)
    /// tx.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`DriverError::Unavailable`] if others write for too long; [`DriverError::Backend`] for a
    /// connection to another file, or one that is in a transaction already.
    pub fn begin<'c>(&self, conn: &'c mut Connection) -> Result<Tx<'c>, DriverError> {
        self.check_open()?;
        self.check_file(conn)?;
        conn.execute_batch("BEGIN IMMEDIATE").map_err(Fault::from)?;
        Ok(Tx { driver: self.clone(), conn })
    }

    /// Runs what `work` makes on this thread, with a transaction of rusqlite that the application has
    /// open: for applications that have one already, on a thread that may block. The transaction must be on
    /// the driver's file, and `IMMEDIATE` is what it should have begun as.
    ///
    /// ```
    /// # fn example(
    /// #     sqlite: taskharbor_sqlite::SqliteDriver,
    /// #     conn: &mut taskharbor_sqlite::rusqlite::Connection,
    /// #     job: taskharbor_core::NewJob,
    /// #     now: taskharbor_core::Timestamp,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use taskharbor_core::driver::{Enqueue, Transaction};
    /// use taskharbor_sqlite::rusqlite::TransactionBehavior;
    ///
    /// let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    /// tx.execute("INSERT INTO booking (seat) VALUES (?1)", ["12A"])?;
    /// sqlite.within(&tx, |mut jobs| async move {
    ///     jobs.enqueue(Enqueue::new(vec![job.into()], now)).await // or client.enqueue(job).within(jobs)
    /// })??;
    /// tx.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`DriverError::Backend`] for a connection to another file.
    pub fn within<F: Future>(
        &self,
        tx: &Borrowed<'_>,
        work: impl FnOnce(Within) -> F,
    ) -> Result<F::Output, DriverError> {
        self.check_open()?;
        self.check_file(tx)?;
        let (requests, inbox) = mpsc::channel();
        let thread = thread::current();
        let waker = Waker::from(Arc::new(Unpark(thread.clone())));
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(work(Within { driver: self.clone(), requests, thread }));
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return Ok(output);
            }
            let mut served = false;
            while let Ok(request) = inbox.try_recv() {
                request.serve(self, tx);
                served = true;
            }
            if !served {
                thread::park();
            }
        }
    }

    fn check_file(&self, conn: &Connection) -> Result<(), DriverError> {
        let path = &self.config().path;
        let theirs = conn.path().and_then(|path| file::identity(Path::new(path)).ok());
        if theirs.is_some() && theirs == file::identity(path).ok() {
            return Ok(());
        }
        Err(DriverError::backend(OtherFile(path.clone())))
    }
}

fn enqueue(
    driver: &SqliteDriver,
    conn: &Connection,
    request: &Enqueue,
) -> Answers<Vec<Enqueued>, Rejected> {
    driver.check_open()?;
    request.check()?;
    inside(driver, conn, |store| store.enqueue(request))
}

fn settle(driver: &SqliteDriver, conn: &Connection, request: &Settle) -> Answers<Settled, Refusal> {
    driver.check_open()?;
    request.check()?;
    inside(driver, conn, |store| store.settle(request))
}

/// The jobs of a type that the transaction sees.
fn stored(
    driver: &SqliteDriver,
    conn: &Connection,
    job_type: &JobType,
) -> Result<Vec<SeenJob>, DriverError> {
    driver.check_open()?;
    inside(driver, conn, |store| {
        let filter = Filter::all().job_type(job_type.clone());
        let mut request = List::new(filter, Limits::MAX_PAGE, Timestamp::EPOCH);
        let mut seen = Vec::new();
        loop {
            let page = store.list(&request)?;
            for summary in page.items {
                let Some(record) = store.inspect(&summary.id, Timestamp::EPOCH)? else { continue };
                let job = record.job;
                seen.push(SeenJob::new(job.id, job.queue, job.headers, job.payload));
            }
            match page.next {
                Some(next) => request = request.after(next),
                None => return Ok(seen),
            }
        }
    })
}

/// Does something inside the transaction that is open, whole or not at all. Watches are
/// woken when it commits.
fn inside<T>(
    driver: &SqliteDriver,
    conn: &Connection,
    work: impl FnOnce(&mut Store<'_>) -> Result<T, Fault>,
) -> Result<T, DriverError> {
    let outcome = (|| {
        conn.execute_batch("SAVEPOINT th_call")?;
        migration::check_version(conn)?;
        let mut store = Store::new(conn, driver.config().limits);
        let answer = work(&mut store)?;
        store.finish()?;
        conn.execute_batch("RELEASE th_call")?;
        Ok::<_, Fault>(answer)
    })();
    if outcome.is_err() && !conn.is_autocommit() {
        // After some errors nothing is left of the transaction, and so nothing to go back to.
        let _ = conn.execute_batch("ROLLBACK TO th_call; RELEASE th_call");
    }
    Ok(outcome?)
}
