//! The schemas that are lent to tests, and the thread that makes and empties them.
//!
//! Every test has a runtime of its own, which ends with it and takes its connections along. What
//! outlives tests is therefore on a thread with its own runtime, to which tests send messages.
//!
//! Nothing runs at the end of a test process, so that its schemas stay. The next process on the same
//! server removes them: a process lives as long as a connection with its name is there.

use std::{
    collections::VecDeque,
    mem, process,
    sync::{
        LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use taskharbor_core::Admin;
use taskharbor_postgres::PostgresDriver;
use tokio::sync::{
    mpsc::{self, UnboundedReceiver, UnboundedSender},
    oneshot,
};

use super::{Role, Way, cleaner::Cleaner};
use crate::postgres::environment;

/// A schema that is lent to a test, and returned when it is dropped.
pub struct Loan {
    pub(super) schema: String,
    /// The name by which the server knows the connections of this test and of no other.
    pub(super) application: String,
    pub(super) way: Way,
}

impl Drop for Loan {
    fn drop(&mut self) {
        let Self { schema, application, way } = self;
        let (schema, application) = (mem::take(schema), mem::take(application));
        let _ = POOL.send(Message::Return { schema, application, way: *way });
    }
}

/// An empty schema with all its tables.
pub(super) async fn take(way: Way) -> Loan {
    let (reply, answer) = oneshot::channel();
    POOL.send(Message::Take(Request { way, reply })).expect("the pool outlives all tests");
    let loan = answer.await.expect("the pool answers every request");
    loan.unwrap_or_else(|reason| panic!("no schema to test with: {reason}"))
}

/// What the names of all our schemas begin with, and the name of the pool's own connections.
pub(super) fn name() -> String {
    format!("th_test_{}", process::id())
}

/// A name that no schema has had in this process.
pub(super) fn new_name() -> String {
    static NUMBER: AtomicUsize = AtomicUsize::new(1);
    format!("{}_{}", name(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

struct Request {
    way: Way,
    reply: oneshot::Sender<Result<Loan, String>>,
}

enum Message {
    Take(Request),
    Return {
        schema: String,
        application: String,
        way: Way,
    },
    /// One that was asked for is there, or why it is not.
    Made(Result<String, String>),
    Emptied(String),
}

static POOL: LazyLock<UnboundedSender<Message>> = LazyLock::new(|| {
    let url = environment::required("TASKHARBOR_TEST_POSTGRES");
    let (sender, messages) = mpsc::unbounded_channel();
    let own = sender.clone();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime can be built");
        runtime.block_on(async { Pool::begin(url, own).await.serve(messages).await });
    });
    sender
});

struct Pool {
    cleaner: Cleaner,
    own: UnboundedSender<Message>,
    free: Vec<String>,
    waiting: VecDeque<Request>,
    /// How many are being made, and how many loans there were.
    making: usize,
    lent: usize,
}

impl Pool {
    async fn begin(url: String, own: UnboundedSender<Message>) -> Self {
        let cleaner = Cleaner::new(url);
        if let Err(error) = cleaner.remove_leftovers().await {
            environment::give_up(&format!("TASKHARBOR_TEST_POSTGRES cannot be used: {error:?}"));
        }
        let (free, waiting) = (Vec::new(), VecDeque::new());
        Self { cleaner, own, free, waiting, making: 0, lent: 0 }
    }

    async fn serve(mut self, mut messages: UnboundedReceiver<Message>) {
        while let Some(message) = messages.recv().await {
            match message {
                Message::Take(request) => self.waiting.push_back(request),
                Message::Return { schema, application, way } => {
                    self.empty(schema, application, way);
                }
                Message::Emptied(schema) => self.free.push(schema),
                Message::Made(result) => self.made(result),
            }
            while !self.waiting.is_empty()
                && let Some(schema) = self.free.pop()
            {
                self.lend(schema);
            }
            // Without waiting for those that are being emptied: it may take them long.
            while self.making < self.waiting.len() {
                self.make();
            }
        }
    }

    fn lend(&mut self, schema: String) {
        let Some(Request { way, reply }) = self.waiting.pop_front() else { return };
        self.lent += 1;
        let application = format!("{}_test_{}", name(), self.lent);
        // If the receiver was dropped, dropping the loan returns it.
        let _ = reply.send(Ok(Loan { schema, application, way }));
    }

    fn make(&mut self) {
        self.making += 1;
        let own = self.own.clone();
        tokio::spawn(async move { own.send(Message::Made(migrated(new_name()).await)) });
    }

    fn made(&mut self, result: Result<String, String>) {
        self.making -= 1;
        match result {
            Ok(schema) => self.free.push(schema),
            Err(reason) => {
                let request = self.waiting.pop_front();
                drop(request.map(|request| request.reply.send(Err(reason))));
            }
        }
    }

    fn empty(&self, schema: String, application: String, way: Way) {
        let (cleaner, own) = (self.cleaner.clone(), self.own.clone());
        tokio::spawn(async move {
            match cleaner.empty(&schema, &application, way).await {
                Ok(()) => drop(own.send(Message::Emptied(schema))),
                Err(reason) => {
                    environment::announce(&format!("{schema} is not used again: {reason}"));
                }
            }
        });
    }
}

/// Lets the roles of the tests do what their parts need. They are the whole server's, and made once.
async fn grant(schema: &str) -> Result<(), tokio_postgres::Error> {
    let client = super::connect(&Way::Direct.url(), &name(), schema).await?;
    for part in Role::PARTS {
        let role = Role::name(part);
        client
            .batch_execute(&format!(
                "BEGIN; SELECT pg_advisory_xact_lock(hashtext('th_test_role'));
                DO $$ BEGIN
                    IF to_regrole('{role}') IS NULL THEN CREATE ROLE {role}; END IF;
                    PERFORM th_grant('{part}', '{role}');
                END $$; COMMIT"
            ))
            .await?;
    }
    Ok(())
}

/// Makes a schema with all its tables.
async fn migrated(schema: String) -> Result<String, String> {
    let config = super::config(Way::Direct, &schema, &name());
    let driver = PostgresDriver::open(config).await.map_err(|error| error.to_string())?;
    driver.migrate().await.map_err(|error| error.to_string())?;
    grant(&schema).await.map_err(|error| error.to_string())?;
    Ok(schema)
}
