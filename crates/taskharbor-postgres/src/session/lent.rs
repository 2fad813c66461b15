//! A connection while a call uses it, and its cleanup if the call is abandoned.
//!
//! When a caller stops waiting for a statement, the statement goes on at the server. If the
//! connection returned to the pool like this, the next caller would wait for the statement of
//! another one. So:
//!
//! 1. The connection keeps its place in the pool, and a task asks it for nothing and waits for the
//!    answer, which comes when the statement is over. Nearly always that is at once, and then the
//!    connection goes back as good as new. That it keeps its place bounds the connections even if
//!    calls are dropped by the thousand.
//! 2. If there is no answer for [`GRACE`], or if the deadline was over to begin with, the server is
//!    asked to cancel the statement, and the connection is closed, whatever the answer: a request to
//!    cancel may arrive late and would hit the statement of the next user.
//!
//! Either way the statement has happened whole or not at all, and the place in the pool is free after
//! `GRACE` and [`CANCEL`] at the latest. Where there is no runtime to do all this, the connection is
//! closed at once and the server finds out by itself.

use std::{ops::Deref, time::Duration};

use deadpool_postgres::{Client, ClientWrapper};
use tokio::{
    runtime::Handle,
    sync::OwnedSemaphorePermit,
    time::{Instant, timeout},
};
use tokio_postgres::NoTls;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::ends_connection;

/// How long a statement may go on after its caller has gone.
const GRACE: Duration = Duration::from_millis(250);
/// How long asking the server to cancel may take.
const CANCEL: Duration = Duration::from_secs(2);

/// A connection that a call has.
pub(super) struct Lent {
    connection: Connection,
    /// The TLS settings of the connection, unless the application made it.
    tls: Option<MakeRustlsConnect>,
    deadline: Instant,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// No statement is running.
    Resting,
    /// A statement may be running.
    Working,
    /// A script may be running, and the settings that it leaves are not for other calls.
    Spent,
}

impl Lent {
    /// Takes what the pool gave. From here on a statement may be running.
    pub(super) fn new(
        client: Client,
        place: OwnedSemaphorePermit,
        tls: Option<MakeRustlsConnect>,
        deadline: Instant,
    ) -> Self {
        Self { connection: Connection(Some((client, place))), tls, deadline, state: State::Working }
    }

    /// From here on a statement may be running.
    pub(super) fn working(mut self) -> Self {
        self.state = State::Working;
        self
    }

    /// From here on a script may be running, and the connection will not go back.
    pub(super) fn spent(mut self) -> Self {
        self.state = State::Spent;
        self
    }

    /// The server has answered: nothing is running.
    pub(super) fn resting(mut self) -> Self {
        self.state = State::Resting;
        self
    }

    /// The server has answered, perhaps with `error`, and the connection is needed no more.
    pub(super) fn finish(self, error: Option<&tokio_postgres::Error>) {
        let useless = self.state == State::Spent || error.is_some_and(ends_connection);
        let mut rested = self.resting();
        if useless {
            rested.connection.close();
        }
    }
}

impl Deref for Lent {
    type Target = ClientWrapper;

    #[expect(clippy::expect_used, reason = "only what ends a `Lent` takes the client out")]
    fn deref(&self) -> &ClientWrapper {
        &self.connection.0.as_ref().expect("a lent connection has its client").0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut connection = Connection(self.connection.0.take());
        match (self.state, Handle::try_current()) {
            (State::Resting, _) => connection.return_to_pool(),
            (state, Ok(runtime)) => {
                let grace = if Instant::now() < self.deadline { GRACE } else { Duration::ZERO };
                drop(runtime.spawn(see_to(connection, state, self.tls.take(), grace)));
            }
            (_, Err(_)) => connection.close(),
        }
    }
}

/// Waits for the end of what is running, or ends it.
async fn see_to(
    mut connection: Connection,
    state: State,
    tls: Option<MakeRustlsConnect>,
    grace: Duration,
) {
    let Some((client, _)) = &connection.0 else { return };
    match timeout(grace, client.batch_execute("")).await {
        Ok(Ok(())) if state == State::Working => return connection.return_to_pool(),
        // Over, but not for others; or broken, and then there is nothing to cancel.
        Ok(_) => return connection.close(),
        Err(_) => {}
    }
    let token = client.cancel_token();
    let cancelled = timeout(CANCEL, async {
        match tls {
            Some(tls) => token.cancel_query(tls).await,
            // How connections of the application are encrypted is not known. Servers take this
            // request in the clear, and the secret in it is of no use once the connection is
            // closed.
            None => token.cancel_query(NoTls).await,
        }
    });
    if !matches!(cancelled.await, Ok(Ok(()))) {
        tracing::debug!("could not cancel a statement whose caller no longer waits");
    }
    connection.close();
}

/// A connection that is closed when it is dropped, unless it was returned to the pool before.
///
/// So a runtime that shuts down, and drops its tasks wherever they are, returns no connection that
/// is in use.
struct Connection(Option<(Client, OwnedSemaphorePermit)>);

impl Connection {
    fn return_to_pool(&mut self) {
        drop(self.0.take());
    }

    fn close(&mut self) {
        if let Some((client, _place)) = self.0.take() {
            drop(Client::take(client));
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}
