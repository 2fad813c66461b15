//! The part of the definition of a schedule that a caller may see.

use serde_json::{Value, value::RawValue};
use taskharbor::ScheduleInfo;

/// The definition as JSON. Payloads are left out for a caller that may not see them, and so is a
/// definition that this server cannot read: it may have payloads anywhere.
pub(super) fn shown(info: &ScheduleInfo, with_payloads: bool) -> Option<Box<RawValue>> {
    let bytes: &[u8] = &info.record.definition;
    if with_payloads {
        let text = || serde_json::value::to_raw_value(&String::from_utf8_lossy(bytes)).ok();
        return serde_json::from_slice(bytes).ok().or_else(text);
    }
    info.details.as_ref().ok()?;
    let mut definition: Value = serde_json::from_slice(bytes).ok()?;
    for job in definition.get_mut("jobs")?.as_array_mut()? {
        let job = job.as_object_mut()?;
        for field in ["payload", "payload_base64"] {
            job.remove(field);
        }
    }
    serde_json::value::to_raw_value(&definition).ok()
}
