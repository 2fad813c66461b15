//! An observer that counts events, for applications to read.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::{Event, Observer};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $event:pat,)*) => {
        /// Counts events. Clones share the counts.
        ///
        /// ```
        /// # use taskharbor::{Client, Counters};
        /// # fn open(driver: &taskharbor::AnyDriver) -> Result<(), Box<dyn std::error::Error>> {
        /// let counters = Counters::new();
        /// let client = Client::builder(driver).observer(counters.clone()).build()?;
        /// assert_eq!(counters.read().enqueued, 0);
        /// # Ok(())
        /// # }
        /// ```
        #[derive(Clone, Debug, Default)]
        pub struct Counters(Arc<Atomics>);

        #[derive(Debug, Default)]
        struct Atomics {
            $($name: AtomicU64,)*
        }

        /// How often each event has happened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct EventCounts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// What has been counted so far.
            #[must_use]
            pub fn read(&self) -> EventCounts {
                EventCounts { $($name: self.0.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl Observer for Counters {
            fn on(&self, event: &Event<'_>) {
                $(if matches!(event, $event) {
                    self.0.$name.fetch_add(1, Ordering::Relaxed);
                })*
            }
        }
    };
}

counters! {
    /// Jobs stored by this client.
    enqueued = Event::Enqueued { is_new: true, .. },
    /// Jobs that existed already when this client enqueued them.
    existing = Event::Enqueued { is_new: false, .. },
    /// Jobs leased.
    reserved = Event::Reserved { .. },
    /// Handlers begun.
    started = Event::Started { .. },
    /// Successes recorded.
    succeeded = Event::Succeeded { .. },
    /// Handlers failed.
    failed = Event::Failed { .. },
    /// Failures recorded after which the job is tried again.
    retried = Event::Retried { .. },
    /// Jobs dead-lettered.
    dead_lettered = Event::DeadLettered { .. },
    /// Jobs that were released.
    released = Event::Released { .. },
    /// Handlers that were throttled.
    throttled = Event::Throttled { .. },
    /// Heartbeats accepted.
    leases_extended = Event::LeaseExtended { .. },
    /// Leases lost.
    leases_lost = Event::LeaseLost { .. },
    /// Calls to the store.
    calls = Event::Called { .. },
    /// Calls to the store that failed as a whole.
    failed_calls = Event::Called { error: Some(_), .. },
    /// Times the store went away.
    outages = Event::StoreUnavailable { .. },
}

impl Counters {
    /// Creates counters that are all zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}
