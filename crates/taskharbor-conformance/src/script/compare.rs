//! Comparing what a driver answers with what the model does.

use std::fmt::Debug;

use taskharbor_core::DriverError;

/// Says what is different, if anything is.
pub(super) fn same<T: PartialEq + Debug>(what: &str, driver: &T, model: &T) -> Result<(), String> {
    if driver == model {
        return Ok(());
    }
    Err(format!("{what}\n  driver: {driver:?}\n  model:  {model:?}"))
}

/// The answers of both if both answered, nothing if both failed in the same way.
pub(super) fn both<T: Debug, U: Debug>(
    what: &str,
    driver: Result<T, DriverError>,
    model: Result<U, DriverError>,
) -> Result<Option<(T, U)>, String> {
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
