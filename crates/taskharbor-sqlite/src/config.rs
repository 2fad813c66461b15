//! [`Config`]: which file, and how it is used.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use taskharbor_core::driver::Limits;

/// Which file, and how it is used.
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
    /// Before every answer: what was acknowledged survives the loss of power.
    #[default]
    Full,
    /// Now and then. What was acknowledged survives the death of the process, but when the machine
    /// loses power or its system crashes, the last commits may be undone: an enqueue that was
    /// acknowledged may be gone, and a job that was done may run again. The file stays whole.
    Normal,
}

/// Settings that make no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The text names no file.
    #[error("the URL names no file: write sqlite:PATH, as in sqlite:taskharbor.db")]
    NoPath,
    /// It looks as if it named a host.
    #[error("a file has no host: write sqlite:PATH, and sqlite:/PATH for an absolute one")]
    Host,
    /// A database in memory would be another one for each connection.
    #[error("a store in memory is the URL memory: (the driver taskharbor-memory)")]
    Memory,
    /// There is no such option.
    #[error(
        "{0:?} is no option: use create, shared, synchronous, busy_timeout_ms, max_bytes or payload_limit"
    )]
    UnknownOption(String),
    /// The option does not have such a value.
    #[error("{option} cannot be {value:?}: {expected}")]
    BadValue {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
}

impl Config {
    /// How long a call waits for another process to end its transaction, unless another time is
    /// chosen.
    pub const DEFAULT_BUSY_TIMEOUT: Duration = Duration::from_secs(5);

    /// The store in this file, which has to be there.
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

    /// Reads `sqlite:PATH?option=value&…`. The path is taken as it is, up to the first `?`.
    ///
    /// | option | values |
    /// |---|---|
    /// | `create` | `true`, `false`: [`Config::create`] |
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
        if path.starts_with("//") && !path.starts_with("///") {
            return Err(ConfigError::Host);
        }
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

    /// Whether a file that does not exist is made, with the store in it and readable for its owner
    /// alone. The directory has to exist. Defaults to `false`.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Whether the store may be put into a database that has other tables already: that of the
    /// application, so that it can enqueue in its own transactions. What is there is left alone, but
    /// the file is switched to WAL. Our names start with `th_`. Defaults to `false`: a file that is
    /// not ours is refused.
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

    /// The maximum size of the file, in steps of 4096; the log beside it is not counted. When it is
    /// full, what would make it larger fails as unavailable until old jobs are pruned or purged.
    /// Defaults to no bound but the disk's.
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
    fn what_makes_no_sense_is_refused_with_what_to_write() {
        for (url, text) in [
            ("sqlite:", "write sqlite:PATH"),
            ("sqlite:?create=true", "write sqlite:PATH"),
            ("sqlite://host/jobs.db", "a file has no host"),
            ("sqlite::memory:", "memory:"),
            ("sqlite:a?mode=rwc", "is no option: use create"),
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
