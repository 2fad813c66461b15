//! Clocks: the sources of `now`.
//!
//! The contract takes the time as an argument everywhere. In production it comes from a
//! [`StoreClock`], so that all workers of a store agree on the time; in tests it comes from a
//! [`ManualClock`], so that no test sleeps.

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
