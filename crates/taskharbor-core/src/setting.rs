//! Settings of a store: what is configured there beside the jobs.
//!
//! One pair of operations serves every kind of setting, so that a new kind adds a variant here and
//! no method to a driver.

use crate::{QueueName, Timestamp, admin::Cursor, check, driver::Limits, error::InvalidRequest};

/// Asks to change settings.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Configure {
    /// The changes; they are made in this order.
    pub changes: Vec<Change>,
    /// The current time.
    pub now: Timestamp,
}

impl Configure {
    /// A request to make these changes.
    #[must_use]
    pub const fn new(changes: Vec<Change>, now: Timestamp) -> Self {
        Self { changes, now }
    }

    /// Checks the number of changes.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::OutOfRange`] for more than [`Limits::MAX_CALL_JOBS`].
    pub fn check(&self) -> Result<(), InvalidRequest> {
        check::range("the number of changes", self.changes.len(), 0, Limits::MAX_CALL_JOBS)
    }
}

/// One change to the settings of a store.
///
/// Exhaustive on purpose: a driver that does not know a change must not compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Reserve grants nothing from this queue until it is resumed. Pausing a paused queue changes
    /// nothing.
    PauseQueue(QueueName),
    /// Reserve grants jobs of this queue again.
    ResumeQueue(QueueName),
}

/// A setting as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Setting {
    /// A queue that has been paused since this instant.
    PausedQueue {
        /// The queue.
        queue: QueueName,
        /// When it was paused.
        since: Timestamp,
    },
}

/// Asks for a page of settings.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListSettings {
    /// After the last setting of the page that gave this.
    pub after: Option<Cursor>,
    /// At most so many.
    pub limit: usize,
}

impl ListSettings {
    /// The first page.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { after: None, limit }
    }

    /// The page after the one that gave `cursor`.
    #[must_use]
    pub fn after(mut self, cursor: Cursor) -> Self {
        self.after = Some(cursor);
        self
    }

    /// Checks the limit.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::OutOfRange`].
    pub const fn check(&self) -> Result<(), InvalidRequest> {
        check::range("limit", self.limit, 1, Limits::MAX_PAGE)
    }
}
