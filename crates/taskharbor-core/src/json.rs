//! The JSON of the types of the contract for which a derive is not enough.
//!
//! Times are RFC 3339, durations whole nanoseconds, tokens hexadecimal digits. What is validated when
//! it is made is validated when it is read, so no text from outside makes a value that code could not.

#[cfg(feature = "schema")]
mod schema;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::value::RawValue;

use crate::{
    Blob, Text, Timestamp,
    admin::Cursor,
    driver::{Incarnation, LeaseToken, Limits},
    job::{Headers, SetKind},
    name::{
        FlowName, Holder, IdempotencyKey, JobId, JobType, LaneName, OwnerName, QueueName,
        ScheduleName,
    },
};

/// Reads a text with a function that says what is wrong with it.
struct TextVisitor<F> {
    expected: &'static str,
    read: F,
}

impl<T, E: fmt::Display, F: FnOnce(&str) -> Result<T, E>> Visitor<'_> for TextVisitor<F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<D: de::Error>(self, text: &str) -> Result<T, D> {
        (self.read)(text).map_err(D::custom)
    }
}

fn read_text<'de, D: Deserializer<'de>, T, E: fmt::Display>(
    deserializer: D,
    expected: &'static str,
    read: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, D::Error> {
    deserializer.deserialize_str(TextVisitor { expected, read })
}

/// Types that are written as one text.
macro_rules! as_text {
    ($($type:ty, $expected:literal, $write:expr, $read:expr;)*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let write: fn(&$type, S) -> Result<S::Ok, S::Error> = $write;
                write(self, serializer)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                read_text(deserializer, $expected, $read)
            }
        }
    )*};
}

as_text! {
    JobId, "a job id", |it, to| to.serialize_str(it.as_str()), |text| Self::new(text);
    QueueName, "a queue name", |it, to| to.serialize_str(it.as_str()), |text| Self::new(text);
    JobType, "a job type", |it, to| to.serialize_str(it.as_str()), |text| Self::new(text);
    IdempotencyKey, "an idempotency key", |it, to| to.serialize_str(it.as_str()), |text| Self::new(text);
    Holder, "a holder", |it, to| to.serialize_str(it.as_str()), |text| Self::new(text);
    FlowName, "a flow name", |it, to| to.serialize_str(it.as_str()), |text| Self::new(text);
    ScheduleName, "a schedule name", |it, to| to.serialize_str(it.as_str()), |text| Self::new(text);
    LaneName, "a lane name", |it, to| to.serialize_str(it.as_str()), |text| Self::new(text);
    OwnerName, "an owner name", |it, to| to.serialize_str(it.as_str()), |text| Self::new(text);
    Text, "a text", |it, to| to.serialize_str(it.as_str()), |text| Ok::<_, String>(Self::new(text));
    Cursor, "a cursor", |it, to| to.serialize_str(it.as_str()), |text| Ok::<_, String>(Self::new(text));
    Timestamp, "a time as in RFC 3339", |it, to| to.collect_str(it), Self::from_str;
    Incarnation, "16 hexadecimal digits", |it, to| to.collect_str(it),
        |text| Self::parse(text).ok_or("an incarnation has 16 hexadecimal digits in lower case");
    LeaseToken, "32 hexadecimal digits", |it, to| to.collect_str(&format_args!("{:032x}", it.to_bits())),
        read_token;
}

fn read_token(text: &str) -> Result<LeaseToken, &'static str> {
    let is_hex = text.len() == 32 && text.bytes().all(|it| it.is_ascii_hexdigit());
    let bits = u128::from_str_radix(text, 16).ok().filter(|_| is_hex);
    bits.map(LeaseToken::from_bits).ok_or("a token has 32 hexadecimal digits")
}

/// JSON that nests deeper than this is written as Base64: programs that read a document whole give up
/// at some depth.
const MAX_DEPTH: usize = 64;

/// The bytes as JSON, if they are a document that a reader gives back byte for byte.
fn as_json(bytes: &[u8]) -> Option<&RawValue> {
    // White space around a document would be lost.
    let (first, last) = (bytes.first()?, bytes.last()?);
    if first.is_ascii_whitespace() || last.is_ascii_whitespace() || is_deep(bytes) {
        return None;
    }
    serde_json::from_slice(bytes).ok()
}

fn is_deep(bytes: &[u8]) -> bool {
    let (mut depth, mut is_quoted, mut is_escaped) = (0_usize, false, false);
    for byte in bytes {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_quoted,
            b'"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            b'[' | b'{' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return true;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match as_json(self) {
            Some(json) => map.serialize_entry("json", json)?,
            None => map.serialize_entry("base64", &BASE64_STANDARD.encode(self))?,
        }
        map.end()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ReadBlob<'a> {
    Json(Box<RawValue>),
    #[serde(borrow)]
    Base64(Cow<'a, str>),
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match ReadBlob::deserialize(deserializer)? {
            ReadBlob::Json(json) => Ok(json.get().as_bytes().into()),
            ReadBlob::Base64(text) => {
                let bytes = BASE64_STANDARD.decode(text.as_bytes());
                bytes.map(Self::from).map_err(de::Error::custom)
            }
        }
    }
}

impl Serialize for Headers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfHeaders;
        impl<'de> Visitor<'de> for OfHeaders {
            type Value = Headers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from names to values of headers")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
                let mut headers = Headers::new();
                while let Some((name, value)) = map.next_entry::<Cow<'_, str>, Cow<'_, str>>()? {
                    headers = headers.with_any(&name, &value).map_err(de::Error::custom)?;
                }
                Ok(headers)
            }
        }
        deserializer.deserialize_map(OfHeaders)
    }
}

#[derive(Deserialize)]
struct ReadLimits {
    payload_bytes: usize,
    flows: bool,
}

impl Serialize for Limits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("payload_bytes", &self.payload_bytes())?;
        map.serialize_entry("flows", &self.has_flows())?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Limits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ReadLimits { payload_bytes, flows } = ReadLimits::deserialize(deserializer)?;
        let limits = if flows { Self::default() } else { Self::default().without_flows() };
        limits.with_payload_bytes(payload_bytes).map_err(de::Error::custom)
    }
}

/// A duration as whole nanoseconds. [`Duration::MAX`] is more than 64 bits of them.
pub(crate) struct Nanos;

impl Nanos {
    pub(crate) fn serialize<S: Serializer>(it: &Duration, to: S) -> Result<S::Ok, S::Error> {
        match u64::try_from(it.as_nanos()) {
            Ok(nanos) => to.serialize_u64(nanos),
            Err(_) => to.serialize_u128(it.as_nanos()),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let nanos = u128::deserialize(from)?;
        let seconds = u64::try_from(nanos / 1_000_000_000).ok();
        let below = u32::try_from(nanos % 1_000_000_000).ok();
        let duration = seconds.zip(below).map(|(seconds, below)| Duration::new(seconds, below));
        duration.ok_or_else(|| de::Error::custom("the duration is too long"))
    }
}

/// A duration that may be missing, as whole nanoseconds.
pub(crate) struct OptionNanos;

struct InOption(Duration);

impl Serialize for InOption {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Nanos::serialize(&self.0, serializer)
    }
}

impl<'de> Deserialize<'de> for InOption {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Nanos::deserialize(deserializer).map(Self)
    }
}

impl OptionNanos {
    pub(crate) fn serialize<S: Serializer>(
        it: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        it.map(InOption).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<InOption>::deserialize(from)?.map(|it| it.0))
    }
}

pub(crate) const fn yes() -> bool {
    true
}

pub(crate) const fn one() -> u32 {
    1
}

pub(crate) const fn max_scan() -> usize {
    Limits::MAX_SCAN
}

pub(crate) const fn plain() -> SetKind {
    SetKind::Plain
}
