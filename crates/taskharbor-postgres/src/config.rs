//! The configuration of the driver: a builder, filled from a URL and the environment.
//!
//! Everything is checked when it is read, so that a mistake is an error that says what to write,
//! and not a connection that fails later. Variables and URLs have the same meaning as in libpq. An
//! unknown parameter is refused rather than ignored, because it may be a misspelt `sslmode`.

mod setting;
mod url;

use std::{env, fmt, path::PathBuf, time::Duration};

use taskharbor_core::{driver::Limits, error::chain};

use crate::{
    schema_name::{SchemaName, SchemaNameError},
    tls::{Roots, TlsMode},
};

pub(crate) use setting::check;
use setting::is_known;

/// Why a configuration was refused.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The URL is not that of a PostgreSQL server.
    #[error("the URL must start with postgres:// or postgresql://")]
    Scheme,
    /// The URL cannot be read; the text says what to write.
    #[error("the URL cannot be read: {0}")]
    Url(&'static str),
    /// Unknown parameter.
    #[error("unknown parameter `{parameter}`: remove it or correct its name")]
    Unknown {
        /// Its name.
        parameter: String,
    },
    /// Invalid value of a parameter.
    #[error("`{parameter}` must be {expected}")]
    Value {
        /// Its name.
        parameter: &'static str,
        /// The valid values.
        expected: &'static str,
    },
    /// Invalid schema name.
    #[error(transparent)]
    Schema(#[from] SchemaNameError),
    /// Two settings contradict each other; the text says what to write.
    #[error("{0}")]
    Contradiction(&'static str),
    /// The certificates that `sslrootcert` names cannot be read.
    #[error(
        "no certificate can be read from {}: name a PEM file in `sslrootcert`{}",
        path.display(), cause.as_ref().map_or_else(String::new, |it| format!(" ({})", chain(&**it)))
    )]
    Certificates {
        /// The file.
        path: PathBuf,
        /// Why it cannot be read; `None` if it was read and has no certificate.
        cause: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The system has no certificates to verify the server's with.
    #[error("the system has no certificates: install some or name a PEM file in `sslrootcert`")]
    NoCertificates,
    /// The TLS library or the pool refused.
    #[error("the connections cannot be set up: {}", chain(&**.0))]
    Setup(Box<dyn std::error::Error + Send + Sync>),
}

taskharbor_core::debug_as_display!(ConfigError);

/// How statements are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatementMode {
    /// Like [`StatementMode::Named`] on a direct connection. When the driver detects a pooler, it
    /// logs a warning and changes to [`StatementMode::Unnamed`].
    #[default]
    Auto,
    /// Each statement is prepared once for each connection and then used by its name. This is the
    /// fastest mode. With a pooler, choose it only if the pooler supports prepared statements.
    Named,
    /// Each statement is sent as a whole, without a name.
    ///
    /// This is for a pooler in transaction mode without support for prepared statements, such as
    /// PgBouncer before 1.21. With such a pooler, named statements fail, or conflict with another
    /// process's statement of the same name.
    Unnamed,
}

/// The address of the server, and the settings of the driver.
///
/// ```
/// use taskharbor_postgres::{Config, SchemaName};
///
/// let url = "postgres://app:secret@db.example.com/app?sslmode=verify-full&pool_size=16";
/// let config = Config::from_url(url)?.schema(SchemaName::new("jobs")?);
/// assert!(!format!("{config:?}").contains("secret"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Config {
    pub(crate) server: tokio_postgres::Config,
    pub(crate) tls_mode: TlsMode,
    pub(crate) roots: Option<Roots>,
    pub(crate) schema: SchemaName,
    pub(crate) pool_size: usize,
    pub(crate) statements: StatementMode,
    pub(crate) call_deadline: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) listen: bool,
    pub(crate) notify_in_transactions: bool,
    pub(crate) limits: Limits,
}

impl Config {
    pub(crate) const DEFAULT_DEADLINE: Duration = Duration::from_secs(30);

    /// Reads a URL as libpq does; parts that it leaves out come from the environment, as in
    /// [`Config::from_env`].
    ///
    /// `postgres://user:password@host:port,host:port/database?name=value&…`, where everything after
    /// the slashes may be left out. A host that starts with `/` (in a URL, `%2F`) is the directory
    /// of a Unix socket. The parameters are:
    ///
    /// | name | value |
    /// |---|---|
    /// | `user`, `password`, `host`, `hostaddr`, `port`, `dbname` | instead of the parts of the URL |
    /// | `sslmode` | `disable`, `prefer` (the default), `require`, `verify-ca`, `verify-full` |
    /// | `sslrootcert` | a PEM file, or `system` (the default) for the system's certificates |
    /// | `sslnegotiation` | `postgres` or `direct` |
    /// | `channel_binding` | `disable`, `prefer` or `require` |
    /// | `application_name`, `options` | as for libpq |
    /// | `connect_timeout` | seconds |
    /// | `keepalives` | `0` or `1` |
    /// | `keepalives_idle`, `keepalives_interval` | seconds; 30 and 10 by default |
    /// | `keepalives_count` | how many; 3 by default |
    /// | `tcp_user_timeout` | milliseconds; 30000 by default |
    /// | `target_session_attrs` | `any`, `read-write` or `read-only` |
    /// | `load_balance_hosts` | `disable` or `random` |
    /// | `schema` | see [`Config::schema`] |
    /// | `pool_size` | see [`Config::pool_size`] |
    /// | `statements` | `auto`, `named` or `unnamed`, see [`Config::statements`] |
    /// | `listen` | `on` or `off`, see [`Config::listen`] |
    /// | `notify` | `on` or `off`, see [`Config::notify_in_transactions`] |
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the URL is invalid. The message never contains the password.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        Self::read(url::settings(url)?, |name| env::var(name).ok())
    }

    /// Takes everything from the environment: `PGHOST`, `PGPORT`, `PGUSER`, `PGPASSWORD`,
    /// `PGDATABASE`, `PGHOSTADDR`, `PGSSLMODE`, `PGSSLROOTCERT`, `PGSSLNEGOTIATION`,
    /// `PGCHANNELBINDING`, `PGAPPNAME`, `PGCONNECT_TIMEOUT`, `PGTARGETSESSIONATTRS`,
    /// `PGLOADBALANCEHOSTS` and `PGOPTIONS`.
    ///
    /// The defaults are the host `localhost`, the user of the operating system or else `postgres`,
    /// and the database with the user's name.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if a variable has an invalid value.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::read(Vec::new(), |name| env::var(name).ok())
    }

    /// The settings, then what they leave out, then what contradicts.
    fn read(
        mut settings: Vec<(String, String)>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        setting::fill(&mut settings, environment);
        let mut config = Self::bare();
        let mut tls_mode = None;
        for (key, value) in &settings {
            setting::apply(&mut config, &mut tls_mode, key, value)?;
        }
        setting::finish(&mut config, tls_mode)?;
        Ok(config)
    }

    /// Without a server.
    pub(crate) fn bare() -> Self {
        let mut server = tokio_postgres::Config::new();
        // A server that vanishes without a word is noticed within a minute, not after two hours.
        server
            .application_name("taskharbor")
            .keepalives(true)
            .keepalives_idle(Duration::from_secs(30))
            .keepalives_interval(Duration::from_secs(10))
            .keepalives_retries(3)
            .tcp_user_timeout(Duration::from_secs(30));
        Self {
            server,
            tls_mode: TlsMode::Prefer,
            roots: None,
            schema: SchemaName::default(),
            pool_size: 8,
            statements: StatementMode::default(),
            call_deadline: Self::DEFAULT_DEADLINE,
            connect_timeout: Duration::from_secs(5),
            listen: true,
            notify_in_transactions: true,
            limits: Limits::default(),
        }
    }

    /// The schema of the store. Defaults to `taskharbor`.
    #[must_use]
    pub fn schema(mut self, schema: SchemaName) -> Self {
        self.schema = schema;
        self
    }

    /// The schema that is chosen.
    #[must_use]
    pub const fn schema_name(&self) -> &SchemaName {
        &self.schema
    }

    /// How many connections calls may use at once, at least 1. The connections of a worker for
    /// wake-ups and for extending leases are not counted. Defaults to 8.
    #[must_use]
    pub fn pool_size(mut self, connections: usize) -> Self {
        self.pool_size = connections;
        self
    }

    /// How statements are sent. Defaults to [`StatementMode::Auto`].
    #[must_use]
    pub fn statements(mut self, mode: StatementMode) -> Self {
        self.statements = mode;
        self
    }

    /// The name by which the server knows the connections, as in `pg_stat_activity`. Defaults to
    /// `taskharbor`.
    #[must_use]
    pub fn application_name(mut self, name: impl Into<String>) -> Self {
        self.server.application_name(name);
        self
    }

    /// How long a call may take, including all waiting. A call that takes longer is cancelled and
    /// fails as unavailable. Defaults to 30 seconds.
    #[must_use]
    pub fn call_deadline(mut self, deadline: Duration) -> Self {
        self.call_deadline = deadline;
        self
    }

    /// How long connecting to one host may take. Defaults to 5 seconds.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Whether workers get wake-ups with `LISTEN`, on a connection of their own. Without it, they
    /// poll. Turn it off with a pooler in transaction mode, which does not support `LISTEN`.
    /// Defaults to `true`.
    #[must_use]
    pub fn listen(mut self, listen: bool) -> Self {
        self.listen = listen;
        self
    }

    /// Whether your own transactions that enqueue jobs wake the workers with `NOTIFY` when they
    /// commit. PostgreSQL commits transactions with `NOTIFY` one after the other, so turn it off if
    /// very many of your transactions enqueue. Defaults to `true`.
    #[must_use]
    pub fn notify_in_transactions(mut self, notify: bool) -> Self {
        self.notify_in_transactions = notify;
        self
    }

    /// The bounds on what is stored. Defaults to `Limits::default()`.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }
}

impl fmt::Debug for Config {
    /// Leaves out the password, and `options`, in which people have been seen to put secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("hosts", &self.server.get_hosts())
            .field("addresses", &self.server.get_hostaddrs())
            .field("ports", &self.server.get_ports())
            .field("user", &self.server.get_user())
            .field("password", &self.server.get_password().map(|_| "***"))
            .field("database", &self.server.get_dbname())
            .field("application_name", &self.server.get_application_name())
            .field("tls_mode", &self.tls_mode)
            .field("roots", &self.roots)
            .field("schema", &self.schema)
            .field("pool_size", &self.pool_size)
            .field("statements", &self.statements)
            .field("call_deadline", &self.call_deadline)
            .field("connect_timeout", &self.connect_timeout)
            .field("listen", &self.listen)
            .field("notify_in_transactions", &self.notify_in_transactions)
            .field("limits", &self.limits)
            .finish()
    }
}

#[cfg(test)]
mod tests;
