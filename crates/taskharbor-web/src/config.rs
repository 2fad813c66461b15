//! [`Web`]: how a server behaves.

use crate::access::Access;

/// Configures the [`router`](crate::router).
#[derive(Clone, Debug, Default)]
pub struct Web {
    pub(crate) anonymous: Option<Access>,
    pub(crate) any_clock: bool,
}

impl Web {
    /// A server whose callers are told by the application that mounts it: see [`Access`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives this access to callers without credentials: for a server that nobody but its user can
    /// reach.
    #[must_use]
    pub fn anonymous(mut self, access: Access) -> Self {
        self.anonymous = Some(access);
        self
    }

    /// Takes every `now` of a driver, however far it is from the store's clock: for tests that bring a
    /// clock of their own. Defaults to refusing one that is off by more than 5 s.
    #[must_use]
    pub const fn any_clock(mut self) -> Self {
        self.any_clock = true;
        self
    }
}
