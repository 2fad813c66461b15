//! [`Each`] and [`Inputs`]: the outputs of a group, one by one.

use std::{collections::VecDeque, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeOwned, Error, Unexpected, Visitor, value},
    forward_to_deserialize_any,
};
use taskharbor_core::{
    Blob, JobId,
    driver::{JoinList, OutputEntry, OutputPage, OutputQuery},
    job::JoinReading,
};

use super::read::{self, ReadError, Source};
use crate::{Data, JobError, JobResult, codec::Format};

/// The input of a job that takes the outputs of a group one by one instead of in a `Vec`, for
/// groups whose outputs are too large together. [`Call::inputs`](crate::Call::inputs) reads them.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// use taskharbor::{Context, Each, Job, JobResult};
///
/// #[derive(Serialize, Deserialize, Job)]
/// #[job(type = "report", input = Each<String>, output = usize)]
/// struct Report;
///
/// async fn report(job: Report, cx: Context) -> JobResult<usize> {
///     let mut pages = cx.inputs(&job)?;
///     let mut size = 0;
///     while let Some(page) = pages.next().await {
///         size += page?.len();
///     }
///     Ok(size)
/// }
/// ```
pub struct Each<T>(PhantomData<fn() -> T>);

/// The name by which [`Each`] is known among all types that serde can read.
const NAME: &str = "taskharbor::Each";

impl<T> Serialize for Each<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit_struct(NAME)
    }
}

impl<'de, T> Deserialize<'de> for Each<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Unit;
        impl Visitor<'_> for Unit {
            type Value = ();
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("nothing: the outputs are read with Context::inputs")
            }
            fn visit_unit<E>(self) -> Result<(), E> {
                Ok(())
            }
        }
        deserializer.deserialize_unit_struct(NAME, Unit)?;
        Ok(Self(PhantomData))
    }
}

impl<T> fmt::Debug for Each<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Each")
    }
}

/// Whether a type is [`Each`] of something, which no type parameter tells.
pub(crate) fn is_each<T: DeserializeOwned>() -> bool {
    struct Probe;
    impl<'de> Deserializer<'de> for Probe {
        type Error = value::Error;
        fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, value::Error> {
            Err(Error::invalid_type(Unexpected::Unit, &visitor))
        }
        fn deserialize_unit_struct<V: Visitor<'de>>(
            self,
            name: &'static str,
            visitor: V,
        ) -> Result<V::Value, value::Error> {
            if name == NAME { visitor.visit_unit() } else { self.deserialize_any(visitor) }
        }
        forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
            option unit newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
        }
    }
    T::deserialize(Probe).is_ok()
}

/// How many members that are groups themselves are put together at once.
const GROUPS_AT_ONCE: usize = 16;

/// The outputs of a group, one by one, in the order of the group. They are read from the store page
/// by page, and a member that is itself a group is read when its turn comes. In memory at a time
/// are a page and a few members, or a single member if those are too large together. The outputs of
/// one member may have at most 256 MiB together.
pub struct Inputs<T> {
    format: Format,
    next: Next,
    /// The page that is being read.
    page: Option<Leaf>,
    ready: VecDeque<Blob>,
    decoded: VecDeque<T>,
}

/// What is read next.
enum Next {
    /// The input of this job.
    Input { source: Source, job: JobId },
    /// The list of this join, from there on.
    Page { source: Source, list: JoinList, from: usize },
    /// Nothing.
    End,
}

/// What is left of a page.
struct Leaf {
    source: Source,
    reading: JoinReading,
    entries: VecDeque<OutputEntry>,
    groups_at_once: usize,
}

impl Leaf {
    /// The next few members as bytes.
    async fn turn(&mut self, format: &Format) -> Result<Vec<Option<Blob>>, ReadError> {
        let mut groups = 0;
        let is_in = |entry: &&OutputEntry| {
            groups += usize::from(matches!(entry, OutputEntry::List(_)));
            groups <= self.groups_at_once
        };
        let some: Vec<_> = self.entries.iter().take_while(is_in).cloned().collect();
        let (source, reading, count) = (&self.source, self.reading, some.len());
        let values = match read::values(source, some, reading, format).await {
            Err(ReadError::TooLarge) if self.groups_at_once > 1 => {
                self.groups_at_once = 1;
                return Ok(Vec::new());
            }
            Err(ReadError::TooLarge) if count > 1 => {
                // Single outputs stand around the group; without them it may fit.
                let is_group = |entry: &OutputEntry| matches!(entry, OutputEntry::List(_));
                let before = self.entries.iter().position(is_group).unwrap_or_default();
                let first = self.entries.iter().take(before.max(1)).cloned().collect();
                read::values(source, first, reading, format).await
            }
            values => values,
        };
        let values = values.map_err(|error| match error {
            ReadError::TooLarge => ReadError::EntryTooLarge,
            error => error,
        })?;
        // Only now, so that a future that was dropped has lost nothing.
        self.entries.drain(..values.len());
        Ok(values)
    }
}

impl<T: Data> Inputs<T> {
    pub(crate) const fn of(source: Source, job: JobId, format: Format) -> Self {
        Self::with(Next::Input { source, job }, format)
    }

    /// These outputs, which are in hand.
    #[cfg(feature = "testing")]
    pub(crate) fn given(items: VecDeque<Blob>, format: Format) -> Self {
        Self { ready: items, ..Self::with(Next::End, format) }
    }

    const fn with(next: Next, format: Format) -> Self {
        Self { format, next, page: None, ready: VecDeque::new(), decoded: VecDeque::new() }
    }

    /// Returns the next output, or `None` after the last.
    ///
    /// # Errors
    ///
    /// Unrecoverable if the output is not a `T` or its step has failed; otherwise the error of the
    /// call to the store. After an error, no more outputs follow.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no output.
    pub async fn next(&mut self) -> Option<JobResult<T>> {
        loop {
            if let Some(value) = self.decoded.pop_front() {
                return Some(Ok(value));
            }
            if let Some(bytes) = self.ready.pop_front() {
                return Some(self.format.decode(&bytes).map_err(JobError::unrecoverable));
            }
            if matches!(self.next, Next::End) && self.page.is_none() {
                return None;
            }
            if let Err(error) = self.turn().await {
                (self.next, self.page) = (Next::End, None);
                return Some(Err(error.into_job_error()));
            }
        }
    }

    /// Combines the next entries of the page, or reads the next page.
    async fn turn(&mut self) -> Result<(), ReadError> {
        if let Some(page) = &mut self.page {
            let nothing = self.format.encode(&())?;
            let values = page.turn(&self.format).await?;
            self.ready.extend(values.into_iter().map(|it| it.unwrap_or(nothing.clone())));
            self.page.take_if(|page| page.entries.is_empty());
            return Ok(());
        }
        match &self.next {
            Next::End => {}
            Next::Input { source, job } => {
                let source = source.clone();
                let input = read::input(&source, job.clone()).await?;
                self.enter(source, input).await?;
            }
            Next::Page { source, list, from } => {
                let (source, list) = (source.clone(), list.clone());
                let query = OutputQuery::parents_of(list.join.clone()).from(*from);
                let page = read::page(&source, query).await?;
                self.take(source, list, page);
            }
        }
        Ok(())
    }

    /// Takes the first page of the list that the input is, or the whole list from one job.
    async fn enter(&mut self, source: Source, mut input: read::Input) -> Result<(), ReadError> {
        loop {
            input = match input {
                read::Input::Entry(OutputEntry::List(list)) => {
                    let query = OutputQuery::parents_of(list.join.clone());
                    read::Input::List(list, read::page(&source, query).await?)
                }
                // One job has produced the whole list.
                input @ read::Input::Entry(_) => {
                    let bytes = read::value(&source, input, &self.format).await?;
                    let bytes = bytes.unwrap_or_else(|| (&[] as &[u8]).into());
                    self.decoded = self.format.decode::<Vec<T>>(&bytes)?.into();
                    self.next = Next::End;
                    return Ok(());
                }
                read::Input::List(list, page) => match list.reading {
                    JoinReading::First => read::Input::Entry(read::only(page)?),
                    JoinReading::Empty => {
                        self.next = Next::End;
                        return Ok(());
                    }
                    JoinReading::List | JoinReading::Gather | JoinReading::Discard => {
                        self.take(source, list, page);
                        return Ok(());
                    }
                },
            };
        }
    }

    fn take(&mut self, source: Source, list: JoinList, page: OutputPage) {
        self.page = Some(Leaf {
            source: source.clone(),
            reading: list.reading,
            entries: page.entries.into(),
            groups_at_once: GROUPS_AT_ONCE,
        });
        self.next = match page.next {
            Some(from) => Next::Page { source, list, from },
            None => Next::End,
        };
    }
}

impl<T> fmt::Debug for Inputs<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inputs").field("in_hand", &self.ready.len()).finish_non_exhaustive()
    }
}

impl ReadError {
    /// As the failure of the job that reads.
    pub(crate) fn into_job_error(self) -> JobError {
        match self {
            Self::Store(error) => JobError::from(error),
            Self::Refused(refusal) => JobError::from(refusal),
            error => JobError::unrecoverable(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A store in which a job waited for this many groups of this many outputs of 1 MiB.
    fn groups(count: usize, len: usize) -> Source {
        let output = Blob::from(format!("\"{}\"", "x".repeat(1 << 20)).into_bytes());
        let id = |name: &str| JobId::new(name).unwrap();
        Arc::new(move |request| {
            let pages = request.items.iter().map(|query| {
                let list = |join, len| JoinList::new(id(join), len, JoinReading::List);
                let groups = || vec![OutputEntry::List(list("group", len)); count];
                Ok(match query.id.as_str() {
                    "job" => OutputPage::new(groups(), None).of_join(list("all", count)),
                    _ => {
                        let outputs = vec![OutputEntry::Done(Some(output.clone())); len];
                        OutputPage::new(outputs, None)
                    }
                })
            });
            let pages = pages.collect();
            Box::pin(async { Ok(pages) })
        })
    }

    #[tokio::test]
    async fn groups_that_are_too_large_together_are_read_one_by_one() {
        let id = JobId::new("job").unwrap();
        let mut inputs = Inputs::<Vec<String>>::of(groups(3, 100), id.clone(), Format::json());
        for _ in 0..3 {
            assert_eq!(inputs.next().await.unwrap().unwrap().len(), 100);
        }
        assert!(inputs.next().await.is_none());
        let mut inputs = Inputs::<Vec<String>>::of(groups(1, 300), id, Format::json());
        let error = inputs.next().await.unwrap().unwrap_err().to_string();
        assert!(error.starts_with("one of the outputs before it is made of more than"), "{error}");
    }

    #[test]
    fn each_is_told_from_everything_else() {
        assert!(is_each::<Each<String>>());
        assert!(!is_each::<Vec<String>>());
        assert!(!is_each::<()>());
        assert!(!is_each::<Option<u8>>());
        assert!(!is_each::<super::super::Failure>());
    }
}
