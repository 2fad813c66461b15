//! The configuration of the driver: a builder, filled from a URL and the environment.
//!
//! Everything is checked when it is read, so that a mistake is an error that says what to write. An
//! unknown parameter is refused, because a misspelt one would be ignored otherwise.

mod url;

use std::{env, fmt, path::PathBuf, time::Duration};

use taskharbor_core::error::chain;

/// Why a configuration was refused. No message has the token in it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Invalid URL; the message says what to write.
    #[error("the URL cannot be read: {0}")]
    Url(&'static str),
    /// Unknown parameter.
    #[error("unknown parameter `{parameter}`: use store, token, timeout, connections or ca")]
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
    /// The certificates that `ca` names cannot be read.
    #[error(
        "no certificate can be read from {}: name a PEM file in `ca`{}",
        path.display(), cause.as_ref().map_or_else(String::new, |it| format!(" ({})", chain(&**it)))
    )]
    Certificates {
        /// The file.
        path: PathBuf,
        /// Why it cannot be read; `None` if it was read and has no certificate.
        cause: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The system has no certificates to verify the server's with.
    #[error("the system has no certificates: install some or name a PEM file in `ca`")]
    NoCertificates,
    /// The TLS library failed.
    #[error("TLS cannot be set up: {}", chain(&**.0))]
    Tls(Box<dyn std::error::Error + Send + Sync>),
}

taskharbor_core::debug_as_display!(ConfigError);

/// The address of the server, and the settings of the driver.
///
/// ```
/// use taskharbor_http::Config;
///
/// let config = Config::from_url("https://jobs.example.com/harbor?store=main&token=secret")?;
/// assert!(!format!("{config:?}").contains("secret"));
/// # Ok::<(), taskharbor_http::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Config {
    pub(crate) is_tls: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Empty, or begins with a slash and ends with none.
    pub(crate) prefix: String,
    pub(crate) store: String,
    pub(crate) token: Option<String>,
    pub(crate) timeout: Duration,
    pub(crate) connections: usize,
    pub(crate) certificates: Option<PathBuf>,
}

const TOKEN_VARIABLE: &str = "TASKHARBOR_TOKEN";
const STORE: &str = "1 to 64 letters, digits, `-` and `_`";
const TOKEN: &str = "printable ASCII without spaces";
const TIMEOUT: &str = "1 to 3600 seconds";
const CONNECTIONS: &str = "1 to 1000";

impl Config {
    /// Reads `http://host:port/prefix?name=value&…` or the same with `https`. Port and prefix may be
    /// left out; the prefix is the path under which the server is mounted. The parameters are:
    ///
    /// | name | value |
    /// |---|---|
    /// | `store` | see [`Config::store`] |
    /// | `token` | see [`Config::token`]; the variable `TASKHARBOR_TOKEN` if left out |
    /// | `timeout` | seconds, see [`Config::timeout`] |
    /// | `connections` | see [`Config::connections`] |
    /// | `ca` | a PEM file, see [`Config::certificates`] |
    ///
    /// Prefer the variable for the token: other users can see URLs in lists of processes.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the URL is invalid. No message contains the token.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        let mut config = url::read(url)?;
        if config.token.is_none() {
            let token = env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty());
            config.token = token;
        }
        config.check()?;
        Ok(config)
    }

    /// The name of a store of the server. Defaults to `default`, the server's first one.
    #[must_use]
    pub fn store(mut self, name: impl Into<String>) -> Self {
        self.store = name.into();
        self
    }

    /// The token of this program. Defaults to none, for a server without tokens.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// How long a call may take, including all waiting. A call that takes longer fails as
    /// unavailable. Calls that read the whole store, such as an export, may take 10 minutes or this
    /// time, whichever is longer. Defaults to 30 seconds.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How many connections calls may use at once; further calls wait. The connection for wake-ups,
    /// and that for extending leases, are not counted. Defaults to 8.
    #[must_use]
    pub const fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// A PEM file with the certificates that the server's certificate is verified against. Defaults to
    /// those of the system.
    #[must_use]
    pub fn certificates(mut self, file: impl Into<PathBuf>) -> Self {
        self.certificates = Some(file.into());
        self
    }

    /// The server in words, without secrets.
    pub(crate) fn shown(&self) -> String {
        let Self { prefix, .. } = self;
        format!("{}://{}{prefix}", self.scheme(), self.authority())
    }

    fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }

    /// As in the header `host`.
    pub(crate) fn authority(&self) -> String {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        match (self.is_tls, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let value = |parameter, expected| Err(ConfigError::Value { parameter, expected });
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if !(1..=64).contains(&self.store.len()) || !self.store.chars().all(is_plain) {
            return value("store", STORE);
        }
        let is_token =
            |token: &String| !token.is_empty() && token.bytes().all(|it| it.is_ascii_graphic());
        if self.token.as_ref().is_some_and(|token| !is_token(token)) {
            return value("token", TOKEN);
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(3_600)).contains(&self.timeout) {
            return value("timeout", TIMEOUT);
        }
        if !(1..=1_000).contains(&self.connections) {
            return value("connections", CONNECTIONS);
        }
        Ok(())
    }
}

impl fmt::Debug for Config {
    /// Leaves out the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("server", &self.shown())
            .field("store", &self.store)
            .field("token", &self.token.as_ref().map(|_| "***"))
            .field("timeout", &self.timeout)
            .field("connections", &self.connections)
            .field("certificates", &self.certificates)
            .finish()
    }
}

#[cfg(test)]
mod tests;
