//! Opening an [`HttpDriver`].

use std::sync::Arc;

use taskharbor_core::{DriverError, debug_as_display, wire::Bounds};

use crate::{Config, ConfigError, HttpDriver, link::Link};

/// Why a driver was not opened.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Invalid settings.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The server cannot be used.
    #[error("{}", .0.reason())]
    Failed(DriverError),
}

debug_as_display!(OpenError);

impl HttpDriver {
    /// Opens the store that a URL names, such as `https://jobs.example.com?store=main`
    /// ([`Config::from_url`]).
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn connect(url: &str) -> Result<Self, OpenError> {
        Self::open(Config::from_url(url)?).await
    }

    /// Opens a store. This makes a first request to the server, so that a wrong address, store or
    /// token is an error here.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn open(config: Config) -> Result<Self, OpenError> {
        config.check()?;
        let link = Arc::new(Link::new(config)?);
        let bounds: Bounds = link.bounds().await.map_err(OpenError::Failed)?;
        Ok(Self::with(link, bounds))
    }
}
