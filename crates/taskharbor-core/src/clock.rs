//! Where `now` comes from.
//!
//! The contract takes the time as an argument everywhere. In production it comes from a
//! [`StoreClock`], so that all workers of a store live on one timeline; in tests from a
//! [`ManualClock`], so that nothing sleeps.

mod manual;
mod store;
mod timeline;

pub use manual::ManualClock;
pub use store::{ClockReading, StoreClock};
pub(crate) use timeline::Timeline;

use crate::Timestamp;

/// Tells the time.
pub trait Clock: Send + Sync + 'static {
    /// The current time.
    fn now(&self) -> Timestamp;
}
