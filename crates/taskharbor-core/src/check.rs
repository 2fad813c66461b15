//! Rules that several requests share.

use std::{borrow::Cow, collections::HashSet, hash::Hash, time::Duration};

use crate::{DriverError, JobId, Timestamp, driver::Limits, error::InvalidRequest};

/// The end of a lease that starts at `now`.
pub(crate) fn lease_end(now: Timestamp, lease_for: Duration) -> Result<Timestamp, DriverError> {
    // TIM-3
    let end = now.checked_add(lease_for).filter(|end| *end > now);
    end.ok_or(DriverError::InvalidLeaseDuration)
}

/// Jobs named one by one: not too many, none of them twice.
pub(crate) fn items<'a>(
    ids: impl ExactSizeIterator<Item = &'a JobId>,
    bytes: usize,
) -> Result<(), InvalidRequest> {
    call_size(ids.len(), bytes)?;
    // REF-4
    match repeated(ids) {
        Some(id) => Err(InvalidRequest::DuplicateJob(id.clone())),
        None => Ok(()),
    }
}

pub(crate) fn call_size(jobs: usize, bytes: usize) -> Result<(), InvalidRequest> {
    // ENQ-6
    range("the number of jobs in one call", jobs, 0, Limits::MAX_CALL_JOBS)?;
    range("the size of one call", bytes, 0, Limits::MAX_CALL_BYTES)
}

pub(crate) const fn range(
    what: &'static str,
    value: usize,
    min: usize,
    max: usize,
) -> Result<(), InvalidRequest> {
    if value < min || value > max {
        return Err(InvalidRequest::OutOfRange { what: Cow::Borrowed(what), value, min, max });
    }
    Ok(())
}

/// A number that counts things in memory.
pub(crate) fn size(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// The first item that occurs a second time.
pub(crate) fn repeated<T: Hash + Eq + Copy>(
    mut items: impl ExactSizeIterator<Item = T>,
) -> Option<T> {
    if items.len() < 2 {
        return None;
    }
    let mut seen = HashSet::with_capacity(items.len());
    items.find(|item| !seen.insert(*item))
}
