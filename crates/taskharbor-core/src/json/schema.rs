//! The schemas of types whose JSON is not derived.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::{Nanos, OptionNanos};
use crate::{
    Blob, Text, Timestamp,
    admin::Cursor,
    driver::{Incarnation, LeaseToken, Limits},
    job::Headers,
    name::{
        FlowName, Holder, IdempotencyKey, JobId, JobType, LaneName, OwnerName, QueueName,
        ScheduleName,
    },
};

macro_rules! schemas {
    ($($type:ty, $name:expr, $schema:tt;)*) => {$(
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    )*};
}

macro_rules! names {
    ($($type:ident, $description:literal;)*) => {
        schemas! {$(
            $type, stringify!($type), {
                "type": "string",
                "minLength": 1,
                "maxLength": $type::MAX_BYTES,
                "description": $description,
            };
        )*}
    };
}

names! {
    JobId, "Identifies a job, and the flow whose output that job produces.";
    QueueName, "Names a queue.";
    JobType, "Names what kind of work a job is.";
    IdempotencyKey, "Keeps a second enqueue of the same thing from creating a second job.";
    Holder, "Names who holds a lease.";
    FlowName, "Names a flow, for people.";
    ScheduleName, "Identifies a schedule.";
    LaneName, "Names a lane of a queue.";
    OwnerName, "Names a service that declares schedules and limits.";
}

schemas! {
    Text, "Text", { "type": "string", "description": "Free text of at most 8 KiB; longer text is cut." };
    Cursor, "Cursor", { "type": "string", "description": "A position in a list: pass on what the previous page gave." };
    Timestamp, "Timestamp", { "type": "string", "format": "date-time", "description": "RFC 3339, to the microsecond, from 1970 to 9999." };
    Incarnation, "Incarnation", { "type": "string", "pattern": "^[0-9a-f]{16}$" };
    LeaseToken, "LeaseToken", { "type": "string", "pattern": "^[0-9a-f]{32}$" };
    Nanos, "Nanos", { "type": "integer", "minimum": 0, "description": "A duration in whole nanoseconds." };
    OptionNanos, "OptionNanos", { "type": ["integer", "null"], "minimum": 0, "description": "A duration in whole nanoseconds." };
    Headers, "Headers", { "type": "object", "additionalProperties": { "type": "string" } };
    Limits, "Limits", {
        "type": "object",
        "properties": {
            "payload_bytes": { "type": "integer", "minimum": 0 },
            "flows": { "type": "boolean" },
        },
        "required": ["payload_bytes", "flows"],
    };
    Blob, "Blob", {
        "description": "Opaque bytes: a JSON document as it is, or anything else as Base64.",
        "oneOf": [
            { "type": "object", "properties": { "json": true }, "required": ["json"], "additionalProperties": false },
            {
                "type": "object",
                "properties": { "base64": { "type": "string", "contentEncoding": "base64" } },
                "required": ["base64"],
                "additionalProperties": false,
            },
        ],
    };
}
