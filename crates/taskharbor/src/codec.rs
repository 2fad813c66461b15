//! [`Codec`]: how jobs, outputs and inputs become bytes and values again.
//!
//! The name of the codec is stored with the job, so a worker can read the job or report which codec
//! is missing. Clients and workers have no type parameter for it: values are passed type-erased, as
//! [`Encode`] and [`Decode`], which any serde format can write and read.

use std::{fmt, sync::Arc};

use serde::{
    Deserializer, Serialize, Serializer,
    de::{DeserializeOwned, IgnoredAny},
};
use taskharbor_core::{
    Blob,
    error::chain,
    job::{HeaderError, Headers},
};

use crate::BoxError;

/// A format in which jobs and outputs are stored.
///
/// ```
/// use taskharbor::{BoxError, Codec, Decode, Encode, Json};
///
/// /// JSON with line breaks, for people who read the table of jobs.
/// struct PrettyJson;
///
/// impl Codec for PrettyJson {
///     fn name(&self) -> &str {
///         "json-pretty"
///     }
///
///     fn encode(&self, value: Encode<'_>) -> Result<Vec<u8>, BoxError> {
///         Ok(serde_json::to_vec_pretty(&value)?)
///     }
///
///     fn decode(&self, bytes: &[u8], value: Decode<'_>) -> Result<(), BoxError> {
///         Json.decode(bytes, value)
///     }
/// }
/// # use taskharbor::{AnyDriver, Client, Worker};
/// # fn build(driver: &AnyDriver) -> Result<(), BoxError> {
///
/// let client = Client::builder(driver).codec(PrettyJson).build()?; // writes jobs with it
/// let worker = Worker::builder(driver).codec(PrettyJson); // reads such jobs, too
/// # drop((client, worker));
/// # Ok(())
/// # }
/// ```
pub trait Codec: Send + Sync + 'static {
    /// The name that is stored with each job. If you change the format, change the name, too.
    fn name(&self) -> &str;

    /// Writes a value.
    ///
    /// # Errors
    ///
    /// If the value cannot be written.
    fn encode(&self, value: Encode<'_>) -> Result<Vec<u8>, BoxError>;

    /// Reads a value: passes a deserializer of the bytes to [`Decode::from`].
    ///
    /// # Errors
    ///
    /// If the bytes cannot be read as a value of that type.
    fn decode(&self, bytes: &[u8], value: Decode<'_>) -> Result<(), BoxError>;

    /// Checks that these bytes are exactly one value. A handler of raw bytes can produce any bytes,
    /// and two values in place of one would shift all values after it in a list. Defaults to no
    /// check.
    ///
    /// # Errors
    ///
    /// The reason why the bytes are not one value.
    fn check(&self, bytes: &[u8]) -> Result<(), BoxError> {
        let _ = bytes;
        Ok(())
    }

    /// Writes a list of values that are encoded already, as it would write a `Vec` or a tuple of
    /// them. The step after a group takes such a list. Defaults to an error.
    ///
    /// # Errors
    ///
    /// If the list cannot be written.
    fn list(&self, items: &[Blob]) -> Result<Vec<u8>, BoxError> {
        let _ = items;
        Err("this codec cannot combine values in a list: implement Codec::list".into())
    }

    /// Writes an enum variant with one value that is encoded already: the step after
    /// [`Flow::gather`](crate::Flow::gather) takes `Ok` variants. Defaults to an error.
    ///
    /// # Errors
    ///
    /// If the variant cannot be written.
    fn variant(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, BoxError> {
        let _ = (name, value);
        Err("this codec cannot write enum variants: implement Codec::variant".into())
    }
}

/// A value to be written. It is [`Serialize`], so any serde format takes it.
pub struct Encode<'a>(&'a dyn erased_serde::Serialize);

impl Serialize for Encode<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl fmt::Debug for Encode<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encode")
    }
}

/// A value to be read.
pub struct Decode<'a>(&'a mut Slot<'a>);

type Slot<'a> =
    dyn FnMut(&mut dyn erased_serde::Deserializer<'_>) -> Result<(), erased_serde::Error> + 'a;

impl Decode<'_> {
    /// Reads the value with this deserializer.
    ///
    /// # Errors
    ///
    /// The error of the deserializer.
    pub fn from<'de, D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let mut erased = <dyn erased_serde::Deserializer<'_>>::erase(deserializer);
        (self.0)(&mut erased).map_err(serde::de::Error::custom)
    }
}

impl fmt::Debug for Decode<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decode")
    }
}

/// JSON, which every language can read. The default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Json;

impl Codec for Json {
    fn name(&self) -> &str {
        Format::UNNAMED
    }

    fn encode(&self, value: Encode<'_>) -> Result<Vec<u8>, BoxError> {
        Ok(serde_json::to_vec(&value)?)
    }

    fn decode(&self, bytes: &[u8], value: Decode<'_>) -> Result<(), BoxError> {
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        value.from(&mut deserializer)?;
        Ok(deserializer.end()?)
    }

    fn check(&self, bytes: &[u8]) -> Result<(), BoxError> {
        serde_json::from_slice::<IgnoredAny>(bytes)?;
        Ok(())
    }

    fn list(&self, items: &[Blob]) -> Result<Vec<u8>, BoxError> {
        let size: usize = items.iter().map(|item| item.len() + 1).sum();
        let mut list = Vec::with_capacity(size + 2);
        list.push(b'[');
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                list.push(b',');
            }
            list.extend_from_slice(item);
        }
        list.push(b']');
        Ok(list)
    }

    fn variant(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, BoxError> {
        let mut variant = b"{".to_vec();
        serde_json::to_writer(&mut variant, name)?;
        variant.push(b':');
        variant.extend_from_slice(value);
        variant.push(b'}');
        Ok(variant)
    }
}

/// MessagePack: smaller than JSON, and byte strings stay bytes. Fields are stored by name, so
/// stored jobs stay readable after a field with a default is added.
///
/// ```
/// # use taskharbor::{AnyDriver, BoxError, Client};
/// use taskharbor::MessagePack;
///
/// # fn build(driver: &AnyDriver) -> Result<(), BoxError> {
/// // Workers with this feature read these jobs without a setting.
/// let client = Client::builder(driver).codec(MessagePack).build()?;
/// # drop(client);
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "messagepack")]
#[derive(Clone, Copy, Debug, Default)]
pub struct MessagePack;

#[cfg(feature = "messagepack")]
impl Codec for MessagePack {
    fn name(&self) -> &str {
        "messagepack"
    }

    fn encode(&self, value: Encode<'_>) -> Result<Vec<u8>, BoxError> {
        Ok(rmp_serde::to_vec_named(&value)?)
    }

    fn decode(&self, mut bytes: &[u8], value: Decode<'_>) -> Result<(), BoxError> {
        value.from(&mut rmp_serde::Deserializer::new(&mut bytes))?;
        if bytes.is_empty() { Ok(()) } else { Err("there are bytes after the value".into()) }
    }

    fn check(&self, mut bytes: &[u8]) -> Result<(), BoxError> {
        <IgnoredAny as serde::Deserialize>::deserialize(&mut rmp_serde::Deserializer::new(
            &mut bytes,
        ))?;
        if bytes.is_empty() { Ok(()) } else { Err("there are bytes after the value".into()) }
    }

    fn list(&self, items: &[Blob]) -> Result<Vec<u8>, BoxError> {
        let size: usize = items.iter().map(|item| item.len()).sum();
        let mut list = Vec::with_capacity(size + 5);
        // The marker of a list whose length has 32 bits.
        list.push(0xdd);
        list.extend_from_slice(&u32::try_from(items.len())?.to_be_bytes());
        items.iter().for_each(|item| list.extend_from_slice(item));
        Ok(list)
    }

    fn variant(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, BoxError> {
        // The marker of a map with one entry.
        let mut variant = vec![0x81];
        variant.extend(rmp_serde::to_vec(name)?);
        variant.extend_from_slice(value);
        Ok(variant)
    }
}

/// A codec as clients and workers pass it on.
#[derive(Clone)]
pub(crate) struct Format {
    codec: Arc<dyn Codec>,
    headers: Headers,
}

/// A value that a codec could not write or read.
#[derive(thiserror::Error)]
#[error("{codec} cannot {verb} {what}: {}", chain(&**cause))]
pub struct CodecError {
    codec: String,
    verb: &'static str,
    what: &'static str,
    cause: BoxError,
}

taskharbor_core::debug_as_display!(CodecError);

impl Format {
    /// The header that names a job's codec.
    pub(crate) const HEADER: &str = crate::header::CODEC;
    /// The codec of jobs that name none.
    pub(crate) const UNNAMED: &str = "json";

    pub(crate) fn new(codec: impl Codec) -> Result<Self, HeaderError> {
        let headers = Self::headers_of(codec.name())?;
        // What is stored is the value of a header, but it is a name, and a blank one names nothing.
        Headers::new().with_any(codec.name(), "")?;
        Ok(Self { codec: Arc::new(codec), headers })
    }

    pub(crate) fn json() -> Self {
        #[expect(clippy::expect_used, reason = "the name is a valid header; a test says so")]
        Self::new(Json).expect("a valid name")
    }

    /// The formats that every worker knows.
    pub(crate) fn known() -> Vec<Self> {
        #[cfg(feature = "messagepack")]
        let others = Self::new(MessagePack).ok();
        #[cfg(not(feature = "messagepack"))]
        let others = None;
        // Their names are valid, so that none is left out; a test says so.
        std::iter::once(Self::json()).chain(others).collect()
    }

    pub(crate) fn name(&self) -> &str {
        self.codec.name()
    }

    /// The name of the codec with which a job of these headers was written.
    pub(crate) fn named_in(headers: &Headers) -> &str {
        headers.get(Self::HEADER).unwrap_or(Self::UNNAMED)
    }

    /// The headers that name this codec. JSON needs none: it would cost each job a fifth of the time to
    /// store it.
    pub(crate) fn headers_of(codec: &str) -> Result<Headers, HeaderError> {
        if codec == Self::UNNAMED {
            return Ok(Headers::new());
        }
        Headers::new().with_any(Self::HEADER, codec)
    }

    /// The headers that name this format, at no cost.
    pub(crate) const fn headers(&self) -> &Headers {
        &self.headers
    }

    pub(crate) fn encode<T: Serialize>(&self, value: &T) -> Result<Blob, CodecError> {
        self.encode_erased(&value, std::any::type_name::<T>())
    }

    pub(crate) fn encode_erased(
        &self,
        value: &dyn erased_serde::Serialize,
        what: &'static str,
    ) -> Result<Blob, CodecError> {
        match self.codec.encode(Encode(value)) {
            Ok(bytes) => Ok(bytes.into()),
            Err(source) => Err(self.error("write", what, source)),
        }
    }

    /// Whether an output is one value; whose it is, is told in the error.
    pub(crate) fn check(
        &self,
        output: &[u8],
        whose: impl FnOnce() -> String,
    ) -> Result<(), CodecError> {
        self.codec.check(output).map_err(|source| {
            let source = format!("what {} has produced: {source}", whose());
            self.error("read", "an output as one value", source.into())
        })
    }

    pub(crate) fn list(&self, items: &[Blob]) -> Result<Blob, CodecError> {
        let list = self.codec.list(items);
        list.map(Blob::from).map_err(|source| self.error("write", "a list of outputs", source))
    }

    pub(crate) fn variant(&self, name: &str, value: &[u8]) -> Result<Blob, CodecError> {
        let variant = self.codec.variant(name, value);
        variant.map(Blob::from).map_err(|source| self.error("write", "a member's outcome", source))
    }

    pub(crate) fn decode<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, CodecError> {
        let mut value = None;
        let mut read = |from: &mut dyn erased_serde::Deserializer<'_>| {
            value = Some(erased_serde::deserialize(from)?);
            Ok(())
        };
        let read = self.codec.decode(bytes, Decode(&mut read));
        let what = std::any::type_name::<T>();
        match (read, value) {
            (Ok(()), Some(value)) => Ok(value),
            (Ok(()), None) => {
                Err(self.error("read", what, "the codec did not read a value".into()))
            }
            (Err(source), _) => Err(self.error("read", what, source)),
        }
    }

    fn error(&self, verb: &'static str, what: &'static str, cause: BoxError) -> CodecError {
        CodecError { codec: self.name().to_owned(), verb, what, cause }
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Format({})", self.name())
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Sample {
        text: String,
        number: u64,
        list: Vec<Option<i8>>,
        #[serde(default)]
        added: bool,
    }

    fn sample() -> Sample {
        let list = vec![Some(-1), None];
        Sample { text: "é\0\"".to_owned(), number: u64::MAX, list, added: true }
    }

    #[test]
    fn every_format_reads_what_it_wrote() {
        let formats = Format::known();
        assert_eq!(formats.len(), if cfg!(feature = "messagepack") { 2 } else { 1 });
        for format in formats {
            let bytes = format.encode(&sample()).unwrap();
            assert_eq!(format.decode::<Sample>(&bytes).unwrap(), sample(), "{format:?}");
            assert_eq!(Format::named_in(format.headers()), format.name());
        }
    }

    #[test]
    fn what_is_cut_short_or_followed_by_more_is_refused() {
        for format in Format::known() {
            let bytes = format.encode(&sample()).unwrap();
            assert!(format.decode::<Sample>(&bytes[..bytes.len() - 1]).is_err(), "{format:?}");
            let more = [&bytes[..], b"1"].concat();
            assert!(format.decode::<Sample>(&more).is_err(), "{format:?}");
            let error = format.decode::<Sample>(b"").unwrap_err();
            assert!(error.to_string().contains("Sample: "), "{error}");
        }
    }

    #[test]
    fn what_was_written_is_put_together_without_reading_it() {
        for format in Format::known() {
            let one = format.encode(&sample()).unwrap();
            let variant = format.variant("Ok", &one).unwrap();
            let read: Result<Sample, bool> = format.decode(&variant).unwrap();
            assert_eq!(read.unwrap(), sample(), "{format:?}");
            let error = format.encode(&Err::<(), _>(true)).unwrap();
            let list = format.list(&[variant, error]).unwrap();
            let read: Vec<Result<Sample, bool>> = format.decode(&list).unwrap();
            assert_eq!(read, [Ok(sample()), Err(true)], "{format:?}");
            let nested = format.list(&[list, format.list(&[]).unwrap()]).unwrap();
            let read: (Vec<Result<Sample, bool>>, Vec<u8>) = format.decode(&nested).unwrap();
            assert_eq!(read, (vec![Ok(sample()), Err(true)], vec![]), "{format:?}");
        }
    }

    #[test]
    fn an_output_is_one_value_and_no_more() {
        for format in Format::known() {
            let one = format.encode(&sample()).unwrap();
            assert!(format.check(&one, String::new).is_ok(), "{format:?}");
            let (two, part) = ([&one[..], &one].concat(), &one[..one.len() - 1]);
            for wrong in [&two[..], part, b""] {
                let error = format.check(wrong, || "step 1".to_owned()).unwrap_err();
                assert!(error.to_string().contains(": what step 1 has produced: "), "{error}");
            }
        }
        assert!(Format::json().check(b"1,2", String::new).is_err());
    }

    #[test]
    fn a_job_that_names_no_codec_is_json() {
        assert_eq!(Format::named_in(&Headers::new()), "json");
    }

    /// A codec that claims success without reading.
    struct Idle;

    impl Codec for Idle {
        fn name(&self) -> &str {
            "idle"
        }
        fn encode(&self, _: Encode<'_>) -> Result<Vec<u8>, BoxError> {
            Ok(Vec::new())
        }
        fn decode(&self, _: &[u8], _: Decode<'_>) -> Result<(), BoxError> {
            Ok(())
        }
    }

    #[test]
    fn a_codec_that_reads_nothing_is_an_error() {
        let idle = Format::new(Idle).unwrap();
        assert!(idle.decode::<u8>(b"").is_err());
    }
}
