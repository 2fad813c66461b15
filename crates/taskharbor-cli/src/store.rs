//! Opening the store that a URL names.

use std::{
    env,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use taskharbor::{AnyDriver, ConnectError, Driver, Exponential, Limits};
use taskharbor_sqlite::{Config, ConfigError, OpenError, SqliteDriver};
use tokio::time::Instant;

use crate::{
    failure::{Exit, Failure, Outcome, chain},
    json_output,
    stderr::note,
};

/// The store if none is named: a file in the current directory.
const DEFAULT: &str = "sqlite:taskharbor.db";
pub(crate) const VARIABLE: &str = "TASKHARBOR_URL";

/// The stores that this process has open.
static OPEN: Mutex<Vec<AnyDriver>> = Mutex::new(Vec::new());

fn remember(driver: AnyDriver) {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner).push(driver);
}

/// Closes every store that was opened, however the command has ended. The last process that closes a
/// file writes everything into it and removes the files beside it.
pub(crate) async fn close_all() {
    let open = std::mem::take(&mut *OPEN.lock().unwrap_or_else(PoisonError::into_inner));
    for driver in open {
        // Everything is recorded, so an error while closing does not matter.
        let _ = driver.close().await;
    }
}

/// Whether a command may make a store that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Create,
    Refuse,
}

/// What came of opening a store.
pub(crate) enum Opened {
    Driver(AnyDriver),
    /// The server does not answer, or not yet.
    Away(Failure),
}

/// The name of a store.
#[derive(Clone)]
pub(crate) struct Url(String);

impl Url {
    /// The one that is given, or in the environment, or the default.
    pub(crate) fn find(given: Option<String>) -> Outcome<Self> {
        let from_environment = || match env::var(VARIABLE) {
            Ok(url) => Ok(Some(url)),
            Err(env::VarError::NotPresent) => Ok(None),
            Err(env::VarError::NotUnicode(_)) => {
                Err(Failure::usage(format!("{VARIABLE} is not valid UTF-8")))
            }
        };
        let url = match given {
            Some(url) => Some(url),
            // An empty variable is as good as none.
            None => from_environment()?.filter(|url| !url.is_empty()),
        };
        let url = match url {
            Some(url) if url.is_empty() => {
                return Err(Failure::usage(
                    "the URL of the store is empty: write sqlite:PATH, postgres://… or http://…",
                ));
            }
            Some(url) => url,
            None => DEFAULT.to_owned(),
        };
        if url.starts_with("sqlite:") {
            Config::from_url(&url).map_err(|error| invalid(&error))?;
        }
        let url = Self(url);
        if url.path().is_none() && !url.is_postgres() && !url.is_http() && !url.is_memory() {
            let text = "the URL names no store: write sqlite:PATH, postgres://… or http://…";
            return Err(Failure::new(Exit::Usage, "invalid_url", text));
        }
        Ok(url)
    }

    /// What a file takes, if the store is one.
    pub(crate) fn file_limits(&self) -> Option<Limits> {
        self.path()?;
        let options = self.0.split_once('?').map_or("", |(_, options)| options);
        let bytes = options.split('&').find_map(|it| it.strip_prefix("payload_limit="));
        let bytes = bytes.and_then(|bytes| bytes.parse().ok());
        let limits = bytes.and_then(|bytes| Limits::default().with_payload_bytes(bytes).ok());
        Some(limits.unwrap_or_default())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn is_memory(&self) -> bool {
        self.0.starts_with("memory:")
    }

    pub(crate) fn is_postgres(&self) -> bool {
        self.0.starts_with("postgres:") || self.0.starts_with("postgresql:")
    }

    /// Whether the store is behind a TaskHarbor server.
    pub(crate) fn is_http(&self) -> bool {
        self.0.starts_with("http:") || self.0.starts_with("https:")
    }

    /// The file, if it is one.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        Config::from_url(&self.0).ok().map(|config| config.path().to_owned())
    }

    /// The store in words, without a password.
    pub(crate) fn shown(&self) -> String {
        if self.path().is_some() {
            return self.0.clone();
        }
        let Some((scheme, rest)) = self.0.split_once("://") else {
            return self.0.split_once(':').map_or("the store", |(scheme, _)| scheme).to_owned();
        };
        // The text before an @ may be a secret, also in a wrong place.
        let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
        let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        format!("{scheme}://{host}/{path}")
    }

    /// Opens the store, which has to be there unless the command may make it.
    pub(crate) async fn open(&self, missing: Missing) -> Outcome<AnyDriver> {
        match self.try_open(missing).await? {
            Opened::Driver(driver) => Ok(driver),
            Opened::Away(failure) => Err(failure),
        }
    }

    /// As [`Url::open`], and tells whether trying again is worth it.
    pub(crate) async fn try_open(&self, missing: Missing) -> Outcome<Opened> {
        if self.is_memory() {
            return Err(Failure::usage(
                "a store in memory would be gone with this command: name a file as sqlite:jobs.db, or postgres://… or http://…",
            ));
        }
        if self.path().is_some() {
            return Ok(Opened::Driver(AnyDriver::new(self.open_file(missing).await?)));
        }
        match taskharbor::connect(&self.0).await {
            Ok(driver) => {
                remember(driver.clone());
                Ok(Opened::Driver(driver))
            }
            Err(error @ ConnectError::Unavailable { .. }) => Ok(Opened::Away(error.into())),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens the store or makes it, and waits for a server that is away, for as long as the limit if
    /// there is one. Says when the waiting begins and ends.
    pub(crate) async fn open_when_there(
        &self,
        limit: Option<Duration>,
        say: impl Fn(&'static str, &str),
    ) -> Outcome<AnyDriver> {
        let (began, mut failures) = (Instant::now(), 0);
        let again = Exponential::new().base(Duration::from_millis(200)).cap(Duration::from_secs(5));
        loop {
            let away = match self.try_open(Missing::Create).await? {
                Opened::Driver(driver) if failures > 0 => {
                    say("store_back", "the store is back");
                    return Ok(driver);
                }
                Opened::Driver(driver) => return Ok(driver),
                Opened::Away(failure) => failure,
            };
            failures += 1;
            let pause = again.after(failures, 0.0);
            if limit.is_some_and(|limit| began.elapsed() + pause >= limit) {
                return Err(away);
            }
            if failures == 1 {
                say("store_away", &format!("waiting for the store: {}", away.text));
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Opens a file, which has to be there unless the command may make it.
    pub(crate) async fn open_file(&self, missing: Missing) -> Outcome<SqliteDriver> {
        let config = Config::from_url(&self.0).map_err(|error| invalid(&error))?;
        let path = self.path().unwrap_or_default();
        let is_new = !path.try_exists().unwrap_or(false);
        if is_new && missing == Missing::Refuse {
            return Err(self.not_there(&path));
        }
        let driver = SqliteDriver::open_with(config.create(missing == Missing::Create))
            .await
            .map_err(|error| not_opened(&error))?;
        remember(AnyDriver::new(driver.clone()));
        if is_new {
            let created = path.display().to_string();
            note(&json_output::Created { created: &created }, &format!("created {created}"));
        }
        Ok(driver)
    }

    pub(crate) fn not_there(&self, path: &Path) -> Failure {
        let mut text = format!(
            "there is no store at {}: enqueue a job or start a worker to create it, or name another with --url or {VARIABLE}",
            path.display()
        );
        if self.0 == DEFAULT && env::var_os("DATABASE_URL").is_some() {
            text += " (DATABASE_URL is set, but is never read: pass it as --url \"$DATABASE_URL\")";
        }
        Failure::new(Exit::Store, "no_store", text)
    }
}

fn invalid(error: &ConfigError) -> Failure {
    Failure::new(Exit::Usage, "invalid_url", chain(error))
}

/// Why a file is not opened, with what to do at a command line.
fn not_opened(error: &OpenError) -> Failure {
    let text = match error {
        OpenError::Empty { path } => format!(
            "{} is empty: enqueue a job or start a worker to make a store in it",
            path.display()
        ),
        OpenError::NotOurs { path } => format!(
            "{} is not a TaskHarbor store and is left as it is: name another with --url or {VARIABLE}, or add ?shared=true to the URL to have the store beside the tables that are there",
            path.display()
        ),
        error => chain(error),
    };
    Failure::new(Exit::Store, "unavailable", text)
}

impl std::fmt::Debug for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        for (url, shown) in [
            ("postgres://ada:hunter2@db:5432/jobs?password=hunter2", "postgres://db:5432/jobs"),
            ("postgres://ada:hunt/er2@db/jobs", "postgres://db/jobs"),
            ("postgres://ada:hunter2?x@db/jobs", "postgres://db/jobs"),
            ("postgres://db", "postgres://db/"),
            ("https://jobs:7450/harbor?store=main&token=hunter2", "https://jobs:7450/harbor"),
            ("http://hunter2@jobs", "http://jobs/"),
            ("postgres:hunter2", "postgres"),
            ("sqlite:jobs.db", "sqlite:jobs.db"),
            ("sqlite:///var/lib/jobs.db", "sqlite:///var/lib/jobs.db"),
            ("sqlite://jobs.db", "sqlite://jobs.db"),
        ] {
            let url = Url(url.to_owned());
            assert_eq!(url.shown(), shown);
            assert!(!format!("{url:?}").contains("hunter2"));
        }
    }

    #[test]
    fn a_file_is_named_with_or_without_slashes() {
        for (url, path) in [
            ("sqlite:jobs.db", Some("jobs.db")),
            ("sqlite:/var/jobs.db", Some("/var/jobs.db")),
            ("sqlite://jobs.db", Some("jobs.db")),
            ("sqlite:///var/jobs.db", Some("/var/jobs.db")),
            ("sqlite:jobs.db?synchronous=normal", Some("jobs.db")),
            ("sqlite:", None),
            ("postgres://db/jobs", None),
        ] {
            assert_eq!(Url(url.to_owned()).path(), path.map(PathBuf::from), "{url}");
        }
    }
}
