//! [`connect`]: from a URL to a driver.

use taskharbor_core::AnyDriver;

/// Why no driver was opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The text is no URL of a store.
    #[error("{0:?} names no store: start it with one of {known}", known = SCHEMES.join(", "))]
    NotAUrl(String),
    /// No driver of ours has this scheme.
    #[error("no driver knows the scheme {0:?}: use one of {known}", known = SCHEMES.join(", "))]
    UnknownScheme(String),
    /// The driver is not in this build.
    #[error(
        "the driver for {scheme} is not in this build: enable the feature {feature:?} of the crate taskharbor"
    )]
    NotCompiledIn {
        /// The scheme of the URL.
        scheme: &'static str,
        /// The feature that brings the driver.
        feature: &'static str,
    },
    /// The part of the URL after the scheme makes no sense.
    #[error("{url:?} is not understood: {problem}")]
    Invalid {
        /// The URL, without what it may hold of secrets.
        url: String,
        /// What is wrong.
        problem: &'static str,
    },
}

const SCHEMES: [&str; 1] = ["memory:"];

/// Opens the driver that the URL names.
///
/// | URL | store | feature |
/// |---|---|---|
/// | `memory:` | the memory of this process, new and empty with every call | `memory` |
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
        return Err(ConnectError::NotAUrl(url.to_owned()));
    };
    match scheme {
        "memory" => memory(rest),
        _ => Err(ConnectError::UnknownScheme(format!("{scheme}:"))),
    }
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
            ("", "names no store: start it with one of memory:"),
            ("jobs.db", "names no store"),
            ("mysql://localhost/jobs", "no driver knows the scheme \"mysql:\""),
            ("MEMORY:", "no driver knows the scheme"),
        ] {
            let error = connect(url).await.unwrap_err().to_string();
            assert!(error.contains(text), "{url}: {error}");
        }
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
