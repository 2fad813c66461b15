//! [`LockedJob`]: the proof of REF-6, for drivers on whose stores an application has transactions.
//!
//! The suite knows no store's own way of opening a transaction, so a test of the driver opens it:
//!
//! ```text
//! let locked = LockedJob::new(driver.clone()).await;
//! let mut tx = /* open a transaction on the store */;
//! locked.settle_in(&mut tx).await;
//! tx.rollback().await?;
//! locked.after_rollback().await;
//! ```

use taskharbor_core::{
    Admin, AnyDriver, Driver, DriverError,
    driver::{Demand, Enqueue, Leased, LockWait, Reserve, Settle, Settled, Transaction},
    error::Refusal,
    job::JobSet,
};

use crate::fixture::{LEASE, T0, ack, holder, job, queue, settlement};

/// Two jobs that a worker holds, one of which a transaction of the application settles.
#[derive(Debug)]
pub struct LockedJob {
    driver: AnyDriver,
    locked: Leased,
    free: Leased,
}

impl LockedJob {
    /// Stores and reserves two jobs on an empty store.
    ///
    /// # Panics
    ///
    /// If the driver does not store or grant them.
    pub async fn new(driver: impl Driver + Admin) -> Self {
        let driver = AnyDriver::new(driver);
        let sets = ["locked", "free"].map(|text| JobSet::from(job(text)));
        driver.enqueue(Enqueue::new(sets.into(), T0)).await.expect("enqueue");
        let demands = vec![Demand::new(queue("q"), 2)];
        let reserved = driver.reserve(Reserve::new(demands, holder(), T0, LEASE)).await;
        let mut jobs = reserved.expect("reserve").jobs.into_iter();
        let (Some(locked), Some(free)) = (jobs.next(), jobs.next()) else {
            panic!("two jobs are granted");
        };
        Self { driver, locked, free }
    }

    /// Settles the one job in the transaction, which stays open, and then both from outside: the
    /// locked job is refused with `Busy` and the other settled, or the call fails with
    /// `Unavailable` and neither is.
    ///
    /// # Panics
    ///
    /// If the driver answers anything else.
    pub async fn settle_in(&self, tx: &mut impl Transaction) {
        let inside = Settle::new(vec![settlement(&self.locked, ack())], T0);
        let answers = tx.settle(inside).await.expect("settle in the transaction");
        assert_eq!(answers, [Ok(Settled::Applied)], "in the transaction");
        let both = [&self.locked, &self.free].map(|leased| settlement(leased, ack()));
        let outside = Settle::new(both.into(), T0).lock_wait(LockWait::Short);
        match self.driver.settle(outside).await {
            Ok(answers) => {
                assert_eq!(answers, [Err(Refusal::Busy), Ok(Settled::Applied)], "outside of it");
            }
            Err(error) => {
                assert!(matches!(error, DriverError::Unavailable(_)), "outside of it: {error:?}");
            }
        }
    }

    /// After the transaction was rolled back the same settlement is applied.
    ///
    /// # Panics
    ///
    /// If the driver answers anything else.
    pub async fn after_rollback(self) {
        self.settles(Settled::Applied).await;
    }

    /// After the transaction was committed the same settlement is a repetition.
    ///
    /// # Panics
    ///
    /// If the driver answers anything else.
    pub async fn after_commit(self) {
        self.settles(Settled::AlreadyTerminal).await;
    }

    async fn settles(self, expected: Settled) {
        let again = Settle::new(vec![settlement(&self.locked, ack())], T0);
        let answers = self.driver.settle(again).await.expect("settle");
        assert_eq!(answers, [Ok(expected)], "after the transaction");
        let found = self.driver.check().await.expect("check");
        assert!(found.is_empty(), "the store found: {found:?}");
    }
}
