//! [`connect`]: from a URL to a driver.

use std::time::Duration;

#[cfg(any(feature = "http", feature = "postgres", feature = "sqlite"))]
use taskharbor_core::DriverError;
use taskharbor_core::{AnyDriver, debug_as_display, error::chain};
use tokio::time::Instant;

use crate::{BoxError, worker::BACKOFF};

/// Why no driver was opened.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The text is not the URL of a store. The error shows it without parts that may be secret.
    #[error("{0:?} is not the URL of a store: start it with one of {known}", known = SCHEMES.join(", "))]
    NotAUrl(String),
    /// Unknown scheme.
    #[error("no driver knows the scheme {0:?}: use one of {known}", known = SCHEMES.join(", "))]
    UnknownScheme(String),
    /// The driver was not compiled in: its feature is not enabled.
    #[error(
        "the driver for {scheme} is not in this build: enable the feature {feature:?} of the crate taskharbor"
    )]
    NotCompiledIn {
        /// The scheme of the URL.
        scheme: &'static str,
        /// The feature that adds the driver.
        feature: &'static str,
    },
    /// The part of the URL after the scheme is invalid.
    #[error("invalid URL {url:?}: {problem}")]
    Invalid {
        /// The URL, without secrets.
        url: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// The URL, or an option in it, is invalid.
    #[error("invalid URL (it starts with {scheme}): {}", chain(&**cause))]
    Config {
        /// The scheme of the URL.
        scheme: &'static str,
        /// What the driver says, without secrets.
        cause: BoxError,
    },
    /// The store cannot be reached or is busy; a retry may succeed.
    #[error("{}", chain(&**cause))]
    Unavailable {
        /// The scheme of the URL.
        scheme: &'static str,
        /// What the driver says, without secrets.
        cause: BoxError,
    },
    /// The driver could not open the store.
    #[error("{}", chain(&**cause))]
    Failed {
        /// The scheme of the URL.
        scheme: &'static str,
        /// What the driver says, without secrets.
        cause: BoxError,
    },
}

debug_as_display!(ConnectError);

const SCHEMES: [&str; 5] = ["http:", "https:", "memory:", "postgres:", "sqlite:"];

/// Opens the driver that the URL names.
///
/// | URL | store | feature |
/// |---|---|---|
/// | `http://…`, `https://…` | the store of a TaskHarbor server | `http` |
/// | `memory:` | the memory of this process, new and empty with every call | `memory` |
/// | `postgres://…`, `postgresql://…` | a PostgreSQL database | `postgres` |
/// | `sqlite:PATH` | a file, which has to be there; `sqlite:PATH?create=true` makes it if it is not | `sqlite` |
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let driver = taskharbor::connect("memory:").await?;
/// driver.migrate().await?; // prepares the store; doing it again changes nothing
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`ConnectError`].
///
/// # Cancel safety
///
/// Dropping the future leaves nothing behind.
pub async fn connect(url: &str) -> Result<AnyDriver, ConnectError> {
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(ConnectError::NotAUrl(beginning(url)));
    };
    match scheme {
        "http" => http("http:", url).await,
        "https" => http("https:", url).await,
        "memory" => memory(rest),
        "postgres" | "postgresql" => postgres(url).await,
        "sqlite" => sqlite(url).await,
        _ => Err(ConnectError::UnknownScheme(format!("{scheme}:"))),
    }
}

/// Connects as [`connect`] does, but waits up to `limit` for an unavailable store, so that a
/// service can start before its database. [`Duration::MAX`] waits for ever. Errors that waiting
/// does not solve are returned at once.
///
/// # Errors
///
/// [`ConnectError`].
///
/// # Cancel safety
///
/// Dropping the future leaves nothing behind.
pub async fn connect_within(url: &str, limit: Duration) -> Result<AnyDriver, ConnectError> {
    let began = Instant::now();
    for failures in 1.. {
        let pause = BACKOFF.after(failures, fastrand::f64());
        match connect(url).await {
            Err(ConnectError::Unavailable { .. }) if began.elapsed() + pause < limit => {}
            opened => return opened,
        }
        tokio::time::sleep(pause).await;
    }
    connect(url).await
}

/// What stands before anything that may be a secret, as in `host=db password=…`.
fn beginning(text: &str) -> String {
    match text.find(|c: char| c.is_whitespace() || "=@?".contains(c)) {
        Some(end) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(feature = "http")]
async fn http(scheme: &'static str, url: &str) -> Result<AnyDriver, ConnectError> {
    use taskharbor_http::{HttpDriver, OpenError};
    match HttpDriver::connect(url).await {
        Ok(driver) => Ok(AnyDriver::new(driver)),
        Err(OpenError::Config(error)) => Err(ConnectError::Config { scheme, cause: error.into() }),
        Err(error @ OpenError::Failed(DriverError::Unavailable(_))) => {
            Err(ConnectError::Unavailable { scheme, cause: error.into() })
        }
        Err(error) => Err(ConnectError::Failed { scheme, cause: error.into() }),
    }
}

#[cfg(not(feature = "http"))]
async fn http(scheme: &'static str, _url: &str) -> Result<AnyDriver, ConnectError> {
    Err(ConnectError::NotCompiledIn { scheme, feature: "http" })
}

/// The whole URL, because the driver reads it by rules of its own.
#[cfg(feature = "postgres")]
async fn postgres(url: &str) -> Result<AnyDriver, ConnectError> {
    use taskharbor_postgres::{OpenError, PostgresDriver};
    let scheme = "postgres:";
    match PostgresDriver::connect(url).await {
        Ok(driver) => Ok(AnyDriver::new(driver)),
        Err(OpenError::Config(error)) => Err(ConnectError::Config { scheme, cause: error.into() }),
        Err(error @ OpenError::Failed(DriverError::Unavailable(_))) => {
            Err(ConnectError::Unavailable { scheme, cause: error.into() })
        }
        Err(error) => Err(ConnectError::Failed { scheme, cause: error.into() }),
    }
}

#[cfg(not(feature = "postgres"))]
async fn postgres(_url: &str) -> Result<AnyDriver, ConnectError> {
    Err(ConnectError::NotCompiledIn { scheme: "postgres:", feature: "postgres" })
}

#[cfg(feature = "sqlite")]
async fn sqlite(url: &str) -> Result<AnyDriver, ConnectError> {
    use taskharbor_sqlite::{OpenError, SqliteDriver};
    let scheme = "sqlite:";
    match SqliteDriver::connect(url).await {
        Ok(driver) => Ok(AnyDriver::new(driver)),
        Err(OpenError::Config(error)) => Err(ConnectError::Config { scheme, cause: error.into() }),
        Err(error @ OpenError::Failed { cause: DriverError::Unavailable(_), .. }) => {
            Err(ConnectError::Unavailable { scheme, cause: error.into() })
        }
        Err(error) => Err(ConnectError::Failed { scheme, cause: error.into() }),
    }
}

#[cfg(not(feature = "sqlite"))]
async fn sqlite(_url: &str) -> Result<AnyDriver, ConnectError> {
    Err(ConnectError::NotCompiledIn { scheme: "sqlite:", feature: "sqlite" })
}

#[cfg(feature = "memory")]
fn memory(rest: &str) -> Result<AnyDriver, ConnectError> {
    if !rest.is_empty() {
        let url = format!("memory:{rest}");
        let problem = "a store in memory has no name: write memory: and nothing more";
        return Err(ConnectError::Invalid { url, problem });
    }
    Ok(AnyDriver::new(taskharbor_memory::MemoryDriver::new()))
}

#[cfg(not(feature = "memory"))]
fn memory(_: &str) -> Result<AnyDriver, ConnectError> {
    Err(ConnectError::NotCompiledIn { scheme: "memory:", feature: "memory" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_no_store_is_refused_with_what_to_write() {
        for (url, text) in [
            (
                "",
                "is not the URL of a store: start it with one of http:, https:, memory:, postgres:, sqlite:",
            ),
            ("jobs.db", "is not the URL of a store"),
            ("mysql://localhost/jobs", "no driver knows the scheme \"mysql:\""),
            ("MEMORY:", "no driver knows the scheme"),
        ] {
            let error = connect(url).await.unwrap_err().to_string();
            assert!(error.contains(text), "{url}: {error}");
        }
    }

    #[tokio::test]
    async fn no_error_shows_a_password() {
        for url in [
            "host=db user=ada password=hunter2",
            "ada@hunter2",
            "ada:hunter2@db/jobs",
            "postgres://ada:hunter2@db/jobs",
            "postgresql://ada:hunter2@db/jobs?password=hunter2",
            "http://ada:hunter2@jobs",
            "https://jobs?token=hunter2%0a",
            "https://jobs?tokem=hunter2",
        ] {
            let error = connect(url).await.unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{url}: {error:?}");
        }
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn a_server_that_refuses_connections_is_named_with_the_cause() {
        // The port was free a moment ago, and nothing listens on it now.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = connect(&format!("postgres://ada:hunter2@{free}/jobs")).await.unwrap_err();
        let expected = format!("cannot connect to PostgreSQL at {free}: connection refused");
        assert_eq!((error.to_string(), format!("{error:?}")), (expected.clone(), expected.clone()));
        assert_eq!(format!("{:#}", anyhow::Error::from(error)), expected);
    }

    #[cfg(not(feature = "postgres"))]
    #[tokio::test]
    async fn both_names_of_a_scheme_are_known() {
        for url in ["postgres://db/jobs", "postgresql://db/jobs"] {
            let error = connect(url).await.unwrap_err().to_string();
            assert!(error.contains("enable the feature \"postgres\""), "{error}");
        }
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn both_names_of_a_scheme_are_known() {
        for url in ["postgres://db/jobs?nonsense=1", "postgresql://db/jobs?nonsense=1"] {
            let error = connect(url).await.unwrap_err();
            assert!(matches!(error, ConnectError::Config { .. }), "{error}");
        }
    }

    #[cfg(not(feature = "http"))]
    #[tokio::test]
    async fn a_server_needs_its_feature() {
        for url in ["http://jobs", "https://jobs"] {
            let error = connect(url).await.unwrap_err().to_string();
            assert!(error.contains("enable the feature \"http\""), "{error}");
        }
    }

    #[cfg(feature = "http")]
    #[tokio::test]
    async fn a_server_that_is_away_is_unavailable() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = connect(&format!("http://{free}")).await.unwrap_err();
        assert!(matches!(error, ConnectError::Unavailable { scheme: "http:", .. }), "{error}");
        let nonsense = connect("https://jobs?nonsense=1").await.unwrap_err();
        assert!(matches!(nonsense, ConnectError::Config { scheme: "https:", .. }), "{nonsense}");
    }

    #[cfg(not(feature = "sqlite"))]
    #[tokio::test]
    async fn a_file_needs_its_feature() {
        let error = connect("sqlite:jobs.db").await.unwrap_err().to_string();
        assert!(error.contains("enable the feature \"sqlite\""), "{error}");
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn a_file_that_is_not_there_is_not_made_unless_that_is_asked_for() {
        let missing = connect("sqlite:/nowhere/at/all.db").await.unwrap_err();
        assert!(matches!(missing, ConnectError::Failed { .. }), "{missing}");
        assert!(missing.to_string().contains("?create=true"), "{missing}");
        let nonsense = connect("sqlite:jobs.db?nonsense=1").await.unwrap_err();
        assert!(matches!(nonsense, ConnectError::Config { .. }), "{nonsense}");
    }

    #[cfg(feature = "memory")]
    #[tokio::test]
    async fn a_store_in_memory_has_no_name() {
        connect("memory:").await.unwrap();
        let error = connect("memory:jobs").await.unwrap_err().to_string();
        assert!(error.contains("write memory: and nothing more"), "{error}");
    }

    #[cfg(not(feature = "memory"))]
    #[tokio::test]
    async fn a_driver_that_is_not_in_the_build_names_its_feature() {
        let error = connect("memory:").await.unwrap_err().to_string();
        assert!(error.contains("enable the feature \"memory\""), "{error}");
    }
}
