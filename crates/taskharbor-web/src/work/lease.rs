//! The check that a worker holds the jobs that it names.
//!
//! A lease is a text that a worker brings back, and any text may come. So the store is asked.

use std::time::Duration;

use taskharbor::{JobId, Timestamp, remote::Ticket};
use taskharbor_core::{
    AnyDriver, Driver, DriverError,
    driver::{ExtendLeases, Extension},
    error::Refusal,
};

/// Leases are extended to see that they are alive, and never become shorter by that.
const ALIVE_FOR: Duration = Duration::from_secs(1);

/// Whether these leases are alive, in their order.
pub(super) async fn check<'a>(
    driver: &AnyDriver,
    leases: impl Iterator<Item = (&'a JobId, &'a Ticket)>,
    now: Timestamp,
) -> Result<Vec<Result<(), Refusal>>, DriverError> {
    let items: Vec<_> = leases.map(|(id, it)| Extension::new(id.clone(), it.token())).collect();
    if items.is_empty() {
        return Ok(Vec::new());
    }
    let answers = driver.extend_leases(ExtendLeases::new(items, now, ALIVE_FOR)).await?;
    Ok(answers.into_iter().map(|answer| answer.map(drop)).collect())
}
