//! Acting on many jobs by filter, with a preview, at a pace.

use tokio::sync::watch;

use crate::endpoint::Endpoint;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    Vec::new()
}

/// The sweeps of one store.
pub(crate) struct Sweeps {
    /// A number that grows with every change.
    news: watch::Sender<u64>,
}

/// One sweep, as it is told.
#[derive(Clone, Debug, serde::Serialize, schemars::JsonSchema)]
pub(crate) struct Sweep {}

impl Default for Sweeps {
    fn default() -> Self {
        Self { news: watch::Sender::new(0) }
    }
}

impl Sweeps {
    /// Notices changes.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// The number of changes so far.
    pub(crate) fn revision(&self) -> u64 {
        *self.news.borrow()
    }

    /// The sweeps that have changed since then; then becomes now.
    pub(crate) fn changed_since(&self, seen: &mut u64) -> Vec<Sweep> {
        *seen = self.revision();
        Vec::new()
    }
}
