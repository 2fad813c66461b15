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

/// Values that are nested deeper are read by few JSON libraries, and by the library's own handlers neither.
const MAX_DEPTH: usize = 127;

/// Bytes as JSON if they are that, else as base64. A value that is nested deeply is no JSON here: a worker
/// could not read the answer that it stands in, nor the other jobs of it.
pub(super) fn written(bytes: &Blob, may_be_json: bool) -> (Option<Box<RawValue>>, Option<String>) {
    let may_be_json = may_be_json && depth(bytes) <= MAX_DEPTH;
    let json = if may_be_json { serde_json::from_slice(bytes).ok() } else { None };
    match json {
        Some(json) => (Some(json), None),
        None => (None, Some(BASE64_STANDARD.encode(bytes))),
    }
}

/// How deeply arrays and objects are nested, if these bytes are JSON.
fn depth(bytes: &[u8]) -> usize {
    let (mut depth, mut deepest): (usize, usize) = (0, 0);
    let (mut is_text, mut is_escaped) = (false, false);
    for byte in bytes {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b'[' | b'{' if !is_text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !is_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Seconds in a range, both ends included.
pub(super) fn seconds(what: &str, value: f64, min: f64, max: f64) -> Result<Duration, Problem> {
    let is_in = value >= min && value <= max;
    let seconds = if is_in { Duration::try_from_secs_f64(value).ok() } else { None };
    seconds.ok_or_else(|| Problem::out_of_range(what, min, max))
}

/// The longest delay and timeout: a hundred years, which is beyond any use and fits every store.
pub(super) const MAX_SECONDS: f64 = 100.0 * 366.0 * 86_400.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_depth_of_a_value_is_that_of_its_brackets_outside_of_texts() {
        for (json, expected) in
            [("1", 0), ("[]", 1), (r#"{"a":[{}],"b":[]}"#, 3), (r#"["[[[", "\"[", "\\", []]"#, 2)]
        {
            assert_eq!(depth(json.as_bytes()), expected, "{json}");
        }
    }

    #[test]
    fn a_value_that_is_nested_too_deeply_is_given_as_bytes() {
        let nested = |depth| Blob::from(("[".repeat(depth) + &"]".repeat(depth)).into_bytes());
        assert!(written(&nested(MAX_DEPTH), true).0.is_some());
        assert!(written(&nested(MAX_DEPTH + 1), true).1.is_some());
    }
}
