//! A server whose clock is ahead of the store's, which was set back.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use serde_json::json;
use taskharbor::{AnyDriver, DriverError, ReleaseReason};
use taskharbor_core::{
    Driver, QueueName,
    driver::{ExtendLeases, Extension, LeaseMark, Leased},
    name::Holder,
};
use taskharbor_memory::MemoryDriver;
use taskharbor_testkit::{Answer, Call, Hook, Intercept, Next};
use taskharbor_web::{Access, Role, Web};

use super::*;

const LEASE: Duration = Duration::from_secs(30);

/// By how many seconds the clock of the store is set back.
#[derive(Clone, Default)]
struct SetBack(Arc<AtomicU64>);

impl Hook<MemoryDriver> for SetBack {
    async fn around(
        &self,
        call: Call,
        next: Next<'_, MemoryDriver>,
    ) -> Result<Answer, DriverError> {
        Ok(match next.make(call).await? {
            Answer::StoreTime(now) => {
                let back = Duration::from_secs(self.0.load(Ordering::SeqCst));
                Answer::StoreTime(now.saturating_sub(back))
            }
            answer => answer,
        })
    }
}

/// Reserves the only job for another worker, which is shutting down.
async fn hold(driver: &AnyDriver) -> Leased {
    let (queue, holder) = (QueueName::new("default").unwrap(), Holder::new("leaving").unwrap());
    let now = driver.now().await.unwrap();
    let leased = driver.reserve_job(queue, holder, now, LEASE).await.unwrap().unwrap();
    let mark = Extension::new(leased.job.id.clone(), leased.lease.token).mark(LeaseMark::Leaving);
    driver.extend_leases(ExtendLeases::new(vec![mark], now, LEASE)).await.unwrap();
    leased
}

#[tokio::test]
async fn a_job_of_a_worker_that_is_leaving_is_handed_out_to_no_other() {
    let (memory, set_back) = (MemoryDriver::new(), SetBack::default());
    let handle = async || {
        let driver = AnyDriver::new(Intercept::new(memory.clone(), set_back.clone()));
        driver.now().await.unwrap();
        driver
    };
    let stale = handle().await;
    set_back.0.store(45, Ordering::SeqCst);
    let right = handle().await;
    let web = || Web::new().anonymous(Access::new("ada", Role::Admin).with_workers());
    let face = Face { rig: Rig::on(stale, web()) };
    Face { rig: Rig::on(right.clone(), web()) }.enqueue(json!({})).await;
    let leased = hold(&right).await;
    assert_eq!(face.reserve(json!({})).await, Vec::<Value>::new());
    let record = face.record(&json!(leased.job.id.as_str())).await;
    assert_eq!(record.job.released.unwrap().reason, ReleaseReason::ClockSetBack);
}
