//! Payloads, outputs, durations and names as the worker face carries them.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use taskharbor::Blob;

use crate::problem::Problem;

/// Reads a value whose `null` says something else than its absence.
pub(super) fn given<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// The bytes of a value that is given as JSON or as base64; `None` if it is not given.
pub(super) fn bytes(
    what: &str,
    json: Option<Box<RawValue>>,
    base64: Option<&str>,
) -> Result<Option<Blob>, String> {
    match (json, base64) {
        (Some(_), Some(_)) => Err(format!("both {what} and {what}_base64 are given: give one")),
        (Some(json), None) => Ok(Some(Box::<str>::from(json).into_string().into_bytes().into())),
        (None, Some(text)) => match BASE64_STANDARD.decode(text) {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(error) => Err(format!("{what}_base64 is not base64: {error}")),
        },
        (None, None) => Ok(None),
    }
}

/// Bytes as JSON if they are that, else as base64.
pub(super) fn written(bytes: &Blob, may_be_json: bool) -> (Option<Box<RawValue>>, Option<String>) {
    let json = if may_be_json { serde_json::from_slice(bytes).ok() } else { None };
    match json {
        Some(json) => (Some(json), None),
        None => (None, Some(BASE64_STANDARD.encode(bytes))),
    }
}

/// Seconds in a range, both ends included.
pub(super) fn seconds(what: &str, value: f64, min: f64, max: f64) -> Result<Duration, Problem> {
    let is_in = value >= min && value <= max;
    let seconds = if is_in { Duration::try_from_secs_f64(value).ok() } else { None };
    seconds.ok_or_else(|| Problem::out_of_range(what, min, max))
}

/// The longest delay and timeout: a hundred years, which is beyond any use and fits every store.
pub(super) const MAX_SECONDS: f64 = 100.0 * 366.0 * 86_400.0;
