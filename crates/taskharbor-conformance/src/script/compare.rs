//! Comparing what a driver answers with what the model does.

use std::fmt::Debug;

use taskharbor_core::{DriverError, Timestamp, driver::Reserved};

/// Says what is different, if anything is.
pub(super) fn same<T: PartialEq + Debug>(what: &str, driver: &T, model: &T) -> Result<(), String> {
    if driver == model {
        return Ok(());
    }
    Err(format!("{what}\n  driver: {driver:?}\n  model:  {model:?}"))
}

/// The answers of both if both answered, nothing if both failed in the same way.
pub(super) fn both<T: Debug>(
    what: &str,
    driver: Result<T, DriverError>,
    model: Result<T, DriverError>,
) -> Result<Option<(T, T)>, String> {
    match (driver, model) {
        (Ok(driver), Ok(model)) => Ok(Some((driver, model))),
        (Err(driver), Err(model)) if is_same_failure(&driver, &model) => Ok(None),
        (driver, model) => Err(format!("{what}\n  driver: {driver:?}\n  model:  {model:?}")),
    }
}

fn is_same_failure(driver: &DriverError, model: &DriverError) -> bool {
    match (driver, model) {
        (DriverError::Invalid(driver), DriverError::Invalid(model)) => driver == model,
        _ => std::mem::discriminant(driver) == std::mem::discriminant(model),
    }
}

/// The same jobs in the same order under leases of the same length; tokens are the driver's own.
pub(super) fn same_grants(
    driver: &Reserved,
    model: &Reserved,
    now: Timestamp,
) -> Result<(), String> {
    let bare = |reserved: &Reserved| -> Vec<_> {
        let jobs = reserved.jobs.iter();
        jobs.map(|leased| (leased.job.clone(), leased.lease.expires_at)).collect()
    };
    same("reserve: jobs", &bare(driver), &bare(model))?;
    let (answered, exact) = (driver.next_due, model.next_due);
    let may_be = match (answered, exact) {
        (None, None) => true,
        (Some(answered), Some(exact)) => now < answered && answered <= exact,
        _ => false,
    };
    if may_be { Ok(()) } else { same("reserve: next_due", &answered, &exact) }
}
