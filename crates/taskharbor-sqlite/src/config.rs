//! [`Config`]: the path of the file, and the settings of the driver.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use taskharbor_core::driver::Limits;

/// The path of the file, and the settings of the driver.
///
/// ```
/// use taskharbor_sqlite::{Config, Synchronous};
///
/// let config = Config::new("jobs.db").create(true).synchronous(Synchronous::Normal);
/// let same = Config::from_url("sqlite:jobs.db?create=true&synchronous=normal")?;
/// assert_eq!(config, same);
/// # Ok::<(), taskharbor_sqlite::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub(crate) path: PathBuf,
    pub(crate) create: bool,
    pub(crate) shared: bool,
    pub(crate) synchronous: Synchronous,
    pub(crate) busy_timeout: Duration,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) limits: Limits,
}

/// When SQLite waits for the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Synchronous {
    /// Before every answer: changes that were acknowledged survive a loss of power.
    #[default]
    Full,
    /// Now and then. Changes that were acknowledged survive the death of the process. If the
    /// machine loses power or its operating system crashes, the last commits may be lost: a job
    /// that was enqueued may be missing, and a job that was done may run again. The file is not
    /// damaged.
    Normal,
}

/// Invalid settings.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The path is missing.
    #[error("the URL names no file: write sqlite:PATH, as in sqlite:taskharbor.db")]
    NoPath,
    /// A database of SQLite in memory, which would be a different one for each connection.
    #[error(
        "a database of SQLite in memory belongs to one connection, and this driver uses several: use the URL memory: (feature `memory`), or a temporary file"
    )]
    Memory,
    /// The mode is read-only, in which no job could be leased.
    #[error("a store cannot be opened for reading alone: leave out mode=ro")]
    ReadOnly,
    /// Unknown option.
    #[error(
        "unknown option {0:?}: use create, mode, shared, synchronous, busy_timeout_ms, max_bytes or payload_limit"
    )]
    UnknownOption(String),
    /// Invalid value of an option.
    #[error("{option} cannot be {value:?}: {expected}")]
    BadValue {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
        /// The valid values.
        expected: &'static str,
    },
}

taskharbor_core::debug_as_display!(ConfigError);

impl Config {
    /// How long a call waits for another process to end its transaction, unless another time is
    /// chosen.
    pub const DEFAULT_BUSY_TIMEOUT: Duration = Duration::from_secs(5);

    /// The store in this file, which has to exist.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self {
            path: path.as_ref().to_owned(),
            create: false,
            shared: false,
            synchronous: Synchronous::default(),
            busy_timeout: Self::DEFAULT_BUSY_TIMEOUT,
            max_bytes: None,
            limits: Limits::default(),
        }
    }

    /// Reads `sqlite:PATH?option=value&…`. The path is taken as it is, up to the first `?`. As in
    /// sqlx, two slashes before it mean nothing: `sqlite://jobs.db` is a file in the current
    /// directory, `sqlite:///var/jobs.db` an absolute path.
    ///
    /// | option | values |
    /// |---|---|
    /// | `create` | `true`, `false`: [`Config::create`] |
    /// | `mode` | `rwc`, `rw`: the same as `create`, in the words of SQLite |
    /// | `shared` | `true`, `false`: [`Config::shared`] |
    /// | `synchronous` | `full`, `normal`: [`Config::synchronous`] |
    /// | `busy_timeout_ms` | milliseconds: [`Config::busy_timeout`] |
    /// | `max_bytes` | bytes: [`Config::max_bytes`] |
    /// | `payload_limit` | bytes: [`Config::limits`] |
    ///
    /// # Errors
    ///
    /// [`ConfigError`].
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        let rest = url.strip_prefix("sqlite:").ok_or(ConfigError::NoPath)?;
        let (path, options) = rest.split_once('?').unwrap_or((rest, ""));
        let path = path.strip_prefix("//").unwrap_or(path);
        match path {
            "" => return Err(ConfigError::NoPath),
            ":memory:" => return Err(ConfigError::Memory),
            _ => {}
        }
        let mut pairs = options.split('&').filter(|pair| !pair.is_empty());
        pairs.try_fold(Self::new(path), |config, pair| {
            let (option, value) = pair.split_once('=').unwrap_or((pair, ""));
            config.with(option, value)
        })
    }

    fn with(self, option: &str, value: &str) -> Result<Self, ConfigError> {
        let bad =
            |option, expected| ConfigError::BadValue { option, value: value.to_owned(), expected };
        let truth = |option| match value {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(bad(option, "write true or false")),
        };
        Ok(match option {
            "create" => self.create(truth("create")?),
            "mode" => match value {
                "rwc" => self.create(true),
                "rw" => self.create(false),
                "ro" => return Err(ConfigError::ReadOnly),
                "memory" => return Err(ConfigError::Memory),
                _ => return Err(bad("mode", "write rwc or rw")),
            },
            "shared" => self.shared(truth("shared")?),
            "synchronous" => self.synchronous(match value {
                "full" => Synchronous::Full,
                "normal" => Synchronous::Normal,
                _ => return Err(bad("synchronous", "write full or normal")),
            }),
            "busy_timeout_ms" => {
                let millis = value.parse::<u32>();
                let millis = millis.map_err(|_| bad("busy_timeout_ms", "write milliseconds"))?;
                self.busy_timeout(Duration::from_millis(millis.into()))
            }
            "max_bytes" => {
                let bytes = value.parse().map_err(|_| bad("max_bytes", "write bytes"))?;
                self.max_bytes(bytes)
            }
            "payload_limit" => {
                let bytes = value.parse().ok();
                let limits = bytes.and_then(|it| Limits::default().with_payload_bytes(it).ok());
                let expected = "write bytes, at most 16777216";
                self.limits(limits.ok_or_else(|| bad("payload_limit", expected))?)
            }
            _ => return Err(ConfigError::UnknownOption(option.to_owned())),
        })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a file that does not exist is created, with an empty store, and readable only for
    /// its owner. The directory has to exist. Defaults to `false`.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Whether the store may be created in a database that has other tables already, such as that
    /// of the application, so that it can enqueue in its own transactions. Existing tables are not
    /// changed, but the file is switched to WAL. The names of the store's tables start with `th_`.
    /// Defaults to `false`: a file with other tables and without a store is refused.
    #[must_use]
    pub fn shared(mut self, shared: bool) -> Self {
        self.shared = shared;
        self
    }

    /// When SQLite waits for the disk. Defaults to [`Synchronous::Full`].
    #[must_use]
    pub fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = synchronous;
        self
    }

    /// How long a call waits for another process to end its transaction before it fails as
    /// unavailable. Defaults to [`Config::DEFAULT_BUSY_TIMEOUT`].
    #[must_use]
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    /// The maximum size of the file, in steps of 4096; the WAL file beside it is not counted. When
    /// the file is full, calls that need more space fail as unavailable until old jobs are pruned
    /// or purged. Defaults to no limit.
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// The bounds of the driver. Defaults to those of [`Limits`].
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_can_be_written_in_the_url() {
        let url = "sqlite:/var/jobs.db?create=true&shared=true&synchronous=normal&busy_timeout_ms=20&max_bytes=4096&payload_limit=9";
        let config = Config::from_url(url).unwrap();
        let limits = Limits::default().with_payload_bytes(9).unwrap();
        let expected = Config::new("/var/jobs.db")
            .create(true)
            .shared(true)
            .synchronous(Synchronous::Normal)
            .busy_timeout(Duration::from_millis(20))
            .max_bytes(4_096)
            .limits(limits);
        assert_eq!(config, expected);
        assert_eq!(Config::from_url("sqlite:a b:c.db").unwrap(), Config::new("a b:c.db"));
    }

    #[test]
    fn urls_mean_what_they_mean_to_sqlx() {
        for (url, path) in [
            ("sqlite:jobs.db", "jobs.db"),
            ("sqlite://jobs.db", "jobs.db"),
            ("sqlite://data/jobs.db", "data/jobs.db"),
            ("sqlite:/var/jobs.db", "/var/jobs.db"),
            ("sqlite:///var/jobs.db", "/var/jobs.db"),
        ] {
            assert_eq!(Config::from_url(url).unwrap(), Config::new(path), "{url}");
            let created = Config::from_url(&format!("{url}?mode=rwc")).unwrap();
            assert_eq!(created, Config::new(path).create(true), "{url}");
        }
    }

    #[test]
    fn invalid_settings_are_refused_with_advice() {
        for (url, text) in [
            ("sqlite:", "write sqlite:PATH"),
            ("sqlite:?create=true", "write sqlite:PATH"),
            ("sqlite://", "write sqlite:PATH"),
            ("sqlite::memory:", "use the URL memory:"),
            ("sqlite://:memory:", "use the URL memory:"),
            ("sqlite:a?mode=memory", "use the URL memory:"),
            ("sqlite:a?mode=ro", "leave out mode=ro"),
            ("sqlite:a?mode=yes", "write rwc or rw"),
            ("sqlite:a?cache=shared", "unknown option \"cache\": use create"),
            ("sqlite:a?create=yes", "write true or false"),
            ("sqlite:a?create", "write true or false"),
            ("sqlite:a?synchronous=off", "write full or normal"),
            ("sqlite:a?busy_timeout_ms=-1", "write milliseconds"),
            ("sqlite:a?max_bytes=1g", "write bytes"),
            ("sqlite:a?payload_limit=99999999999", "at most 16777216"),
        ] {
            let error = Config::from_url(url).unwrap_err().to_string();
            assert!(error.contains(text), "{url}: {error}");
        }
    }
}
