//! Making connections with the settings that the driver's calls need, and keeping them alive.
//!
//! Calls need READ COMMITTED and must be able to write, but the server or the role may have another
//! default. So a connection sets both in its start-up options. A pooler refuses such options or
//! drops them. Then the connection is made without them, the role's defaults apply, and statements
//! are sent without names unless the configuration says otherwise.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use deadpool_postgres::{
    ClientWrapper, Connect, Hook, HookError, Manager, ManagerConfig, Metrics, Pool, QueueMode,
    RecyclingMethod, Runtime, Timeouts,
};
use tokio::{task::JoinHandle, time::timeout};
use tokio_postgres::{Client, Error, SimpleQueryMessage, config::Host, error::SqlState};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::Connected;
use crate::config::{ConfigError, StatementMode};

/// What every connection asks for. A server that compiles statements before it runs them takes longer
/// for that than the statements take: 0.2 s and more for an export of 1,000 jobs, instead of 5 ms.
/// The last setting means nothing to the server: a session that knows it was reached with its options,
/// so no pooler is in between.
const OPTIONS: &str = "-c default_transaction_isolation=read\\ committed \
     -c default_transaction_read_only=off -c jit=off -c taskharbor.direct=on";

/// What a session says about its options.
const LEARN: &str = "SELECT current_setting('taskharbor.direct', true), \
     current_setting('default_transaction_isolation'), current_setting('default_transaction_read_only')";

/// A connection that was unused for longer is asked for a sign of life before a call gets it.
const PROBE_AFTER: Duration = Duration::from_secs(1);

/// What a connection of its own is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A call at a time. A server may close it when it is idle.
    Calls,
    /// Waiting for notifications, which is idle by nature.
    Listening,
    /// Statements of a migration, which may take as long as they need.
    Migration,
}

impl Purpose {
    fn options(self) -> &'static str {
        match self {
            Self::Calls => "",
            // Known to PostgreSQL 14 and newer.
            Self::Listening => " -c idle_session_timeout=0",
            Self::Migration => {
                " -c lock_timeout=0 -c statement_timeout=0 \
                 -c idle_in_transaction_session_timeout=0"
            }
        }
    }
}

/// What is known about the way to the server. All sessions of one origin share it.
#[derive(Debug)]
pub(super) struct Way {
    mode: StatementMode,
    /// Whether a session has reported its options.
    is_known: AtomicBool,
    /// Whether start-up options are refused.
    refuses_options: AtomicBool,
    /// Whether statements that have a name cannot be relied on.
    is_pooled: AtomicBool,
}

impl Way {
    pub(super) fn new(mode: StatementMode) -> Arc<Self> {
        let no = || AtomicBool::new(false);
        Arc::new(Self { mode, is_known: no(), refuses_options: no(), is_pooled: no() })
    }

    /// Whether statements are prepared and then used by their name.
    pub(super) fn prepares(&self) -> bool {
        match self.mode {
            StatementMode::Named => true,
            StatementMode::Unnamed => false,
            StatementMode::Auto => !self.is_pooled.load(Ordering::Acquire),
        }
    }

    /// From here on statements have no name, unless the configuration wants them to.
    pub(super) fn fall_back(&self, reason: &str) {
        let was_pooled = self.is_pooled.swap(true, Ordering::AcqRel);
        if was_pooled || self.mode == StatementMode::Unnamed {
            return;
        }
        let now = match self.mode {
            StatementMode::Named => "calls may fail",
            _ => "statements are sent without names from now on",
        };
        tracing::warn!(
            "{reason}, as behind a pooler: {now}. Add `statements=unnamed` to the URL, or \
             `statements=named` if the pooler keeps track of prepared statements (PgBouncer 1.21 or \
             newer with max_prepared_statements)"
        );
    }
}

/// How connections are made.
#[derive(Clone)]
pub(super) struct Origin {
    pub(super) server: tokio_postgres::Config,
    pub(super) tls: MakeRustlsConnect,
    pub(super) connect_timeout: Duration,
    pub(super) way: Arc<Way>,
}

impl Origin {
    /// Makes a connection, with our options if they are taken.
    pub(super) async fn connect(&self, purpose: Purpose) -> Result<Connected, Error> {
        if !self.way.refuses_options.load(Ordering::Acquire) {
            let mut answer = self.connect_with(purpose.options()).await;
            if answer.as_ref().is_err_and(is_unknown_setting) {
                answer = self.connect_with("").await;
            }
            match answer {
                Err(error) if refuses_options(&error) => {}
                answer => return answer,
            }
        }
        let connected = self.server.connect(self.tls.clone()).await?;
        self.way.refuses_options.store(true, Ordering::Release);
        Ok(connected)
    }

    /// What the URL or the environment has in `options` comes last and counts.
    async fn connect_with(&self, more: &str) -> Result<Connected, Error> {
        let mut server = self.server.clone();
        let given = self.server.get_options().unwrap_or_default();
        server.options(format!("{OPTIONS}{more} {given}"));
        server.connect(self.tls.clone()).await
    }

    /// `Fast` recycling only asks whether the connection is still open. Nothing needs to be cleaned
    /// up: calls are single statements that change no setting, and scripts do not give back.
    pub(super) fn pool(&self, size: usize, deadline: Duration) -> Result<Pool, ConfigError> {
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let connector = Connector(self.clone());
        let manager = Manager::from_connect(self.server.clone(), connector, recycling);
        let timeouts = Timeouts {
            wait: Some(deadline),
            create: Some(self.time_to_connect()),
            recycle: Some(self.connect_timeout),
        };
        let limit = self.connect_timeout;
        Pool::builder(manager)
            .max_size(size)
            .queue_mode(QueueMode::Lifo)
            .timeouts(timeouts)
            .runtime(Runtime::Tokio1)
            .pre_recycle(Hook::async_fn(move |client, metrics| {
                Box::pin(check_alive(client, metrics, limit))
            }))
            .build()
            .map_err(|error| ConfigError::Setup(error.into()))
    }

    /// Where the server is, as in `db:5432`, without anything that may be a secret.
    pub(super) fn place(&self) -> String {
        let (hosts, addresses) = (self.server.get_hosts(), self.server.get_hostaddrs());
        let names: Vec<String> = match hosts {
            [] => addresses.iter().map(ToString::to_string).collect(),
            hosts => hosts.iter().map(host_name).collect(),
        };
        let ports = self.server.get_ports();
        let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(5_432);
        let places = names.iter().enumerate().map(|(at, name)| format!("{name}:{}", port(at)));
        places.collect::<Vec<_>>().join(", ")
    }

    /// The server's own limit is for the socket only; this one is for the handshakes, too.
    pub(super) fn time_to_connect(&self) -> Duration {
        let hosts = u32::try_from(self.server.get_hosts().len()).unwrap_or(u32::MAX).max(1);
        self.connect_timeout.saturating_mul(hosts)
    }

    /// Asks the first session for its options, which a pooler may have changed.
    async fn learn(&self, client: &Client) -> Result<(), Error> {
        if self.way.is_known.load(Ordering::Acquire) {
            return Ok(());
        }
        for message in client.simple_query(LEARN).await? {
            let SimpleQueryMessage::Row(row) = message else { continue };
            if row.get(0) != Some("on") && self.way.mode == StatementMode::Auto {
                self.way.fall_back("the start-up options of a connection did not reach the server");
            }
            let is_first = !self.way.is_known.swap(true, Ordering::AcqRel);
            if is_first && row.get(1) != Some("read committed") {
                tracing::warn!(
                    "connections do not run at READ COMMITTED: calls that meet fail and are \
                     repeated. Run `ALTER ROLE … SET default_transaction_isolation = 'read \
                     committed'` for the role of this program"
                );
            }
            if is_first && row.get(2) != Some("off") {
                tracing::warn!(
                    "connections can only read: calls fail. Run `ALTER ROLE … SET \
                     default_transaction_read_only = off` for the role of this program"
                );
            }
        }
        Ok(())
    }
}

fn host_name(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        #[cfg(unix)]
        Host::Unix(path) => path.display().to_string(),
    }
}

/// Whether the server does not know a setting in the options.
fn is_unknown_setting(error: &Error) -> bool {
    error.code() == Some(&SqlState::UNDEFINED_OBJECT)
}

/// Whether start-up options may be why the connection was refused: PgBouncer answers with a
/// protocol violation, others with a feature that they do not support.
fn refuses_options(error: &Error) -> bool {
    let refusals = [
        SqlState::PROTOCOL_VIOLATION,
        SqlState::FEATURE_NOT_SUPPORTED,
        SqlState::INVALID_PARAMETER_VALUE,
        SqlState::UNDEFINED_OBJECT,
    ];
    error.code().is_some_and(|code| refusals.contains(code))
}

/// Refuses a connection that was closed while it was idle: the pool takes the next, or makes one. A
/// connection may be cut silently, so one that has been idle for a while is probed.
async fn check_alive(
    client: &mut ClientWrapper,
    metrics: &Metrics,
    limit: Duration,
) -> Result<(), HookError> {
    let is_alive = !client.is_closed()
        && (metrics.last_used() < PROBE_AFTER
            || matches!(timeout(limit, client.batch_execute("")).await, Ok(Ok(()))));
    if is_alive { Ok(()) } else { Err(HookError::message("the connection was closed while idle")) }
}

/// Makes the connections of a pool.
struct Connector(Origin);

impl Connect for Connector {
    fn connect(
        &self,
        _: &tokio_postgres::Config,
    ) -> Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), Error>> + Send + '_>> {
        Box::pin(async move {
            let (client, connection) = self.0.connect(Purpose::Calls).await?;
            let task = tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection ended");
                }
            });
            self.0.learn(&client).await?;
            Ok((client, task))
        })
    }
}
