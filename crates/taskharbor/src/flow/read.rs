//! Reading outputs, and combining them into the one value that the next step takes.
//!
//! Outputs form a tree whose inner nodes are joins. It is read level by level, many joins in one
//! call, and combined from the leaves up as bytes: encoded outputs are not decoded before the whole
//! is complete. Nothing recurses, however deep the tree is.

use std::sync::Arc;

use taskharbor_core::{
    Blob, DriverError, JobId,
    driver::{Answers, JoinList, Limits, OutputEntry, OutputPage, OutputQuery, Outputs},
    error::Refusal,
    job::JoinReading,
};

use super::Failure;
use crate::{BoxFuture, CodecError, codec::Format};

/// Asks a store for outputs, and retries while the store is unavailable.
pub(crate) type Source =
    Arc<dyn Fn(Outputs) -> BoxFuture<Answers<OutputPage, Refusal>> + Send + Sync>;

/// How many joins are read in one call, each with a full page.
const JOINS_AT_ONCE: usize = 64;

/// Why an input cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("a step before it is {0}")]
    Failed(Failure),
    #[error("the step that this failure job watches has not failed: there is no failure to handle")]
    NotFailed,
    #[error("a step before the job is not terminal")]
    Pending,
    #[error("the record of a step before it was removed")]
    Missing,
    #[error(
        "the steps before it have produced more than {} bytes: take them one by one, as `Each`",
        Limits::MAX_CALL_BYTES
    )]
    TooLarge,
    #[error(
        "one of the outputs before it is made of more than {} bytes: let a step before this one shorten it",
        Limits::MAX_CALL_BYTES
    )]
    EntryTooLarge,
    #[error(transparent)]
    Refused(Refusal),
    #[error(transparent)]
    Codec(#[from] CodecError),
    #[error(transparent)]
    Store(#[from] DriverError),
}

/// One page of what a job or its parents produced.
pub(crate) async fn page(source: &Source, query: OutputQuery) -> Result<OutputPage, ReadError> {
    let answers = source(Outputs::new(vec![query], Limits::MAX_PAGE)).await?;
    match answers.into_iter().next() {
        Some(Ok(page)) => Ok(page),
        Some(Err(refusal)) => Err(ReadError::Refused(refusal)),
        None => Err(broken("a query for outputs has no answer")),
    }
}

/// The one entry of a page.
pub(crate) fn only(page: OutputPage) -> Result<OutputEntry, ReadError> {
    page.entries.into_iter().next().ok_or_else(|| broken("the output of a job is no output"))
}

fn broken(text: &str) -> ReadError {
    DriverError::ContractViolation(text.to_owned()).into()
}

/// What a job takes: the output of its one parent, or a list.
pub(crate) enum Input {
    /// What the parent produced.
    Entry(OutputEntry),
    /// A list, and its first page.
    List(JoinList, OutputPage),
}

/// Reads what a job takes, in one call.
pub(crate) async fn input(source: &Source, job: JobId) -> Result<Input, ReadError> {
    let mut page = page(source, OutputQuery::input_of(job.clone())).await?;
    Ok(match page.join.take() {
        Some(list) => Input::List(list, page),
        None if page.entries.len() == 1 && page.next.is_none() => Input::Entry(only(page)?),
        // Several parents, in a flow that the library has not built: read as their join would be.
        None => Input::List(JoinList::new(job, page.entries.len(), JoinReading::List), page),
    })
}

/// The failure that a failure job takes.
pub(crate) fn failure(input: Input) -> Result<Failure, ReadError> {
    let entry = match input {
        Input::Entry(entry) => entry,
        // A join that is done, or several parents, of which the first is told.
        Input::List(_, page) => only(page)?,
    };
    match entry {
        OutputEntry::Failed { state, reason } => Ok(Failure::new(state, reason.as_ref())),
        OutputEntry::Missing => Err(ReadError::Missing),
        _ => Err(ReadError::NotFailed),
    }
}

/// An input as bytes; `None` if it says nothing.
pub(crate) async fn value(
    source: &Source,
    input: Input,
    format: &Format,
) -> Result<Option<Blob>, ReadError> {
    Forest::default().read_input(source, input).await?.only(format)
}

/// An input as bytes for a reader that runs in spite of failures. Each failure is replaced by
/// nothing, and the first is told.
pub(crate) async fn value_or_nothing(
    source: &Source,
    input: Input,
    format: &Format,
) -> Result<(Option<Blob>, Option<Failure>), ReadError> {
    let forest = Forest { is_lenient: true, ..Forest::default() };
    let mut forest = forest.read_input(source, input).await?;
    let failure = forest.failure.take();
    let value = forest.only(format)?;
    match failure {
        Some(_) if value.is_none() => Ok((Some(format.encode(&())?), failure)),
        _ => Ok((value, failure)),
    }
}

/// Entries of a list with this reading as bytes each; `None` for one that says nothing. They are
/// read together, so together they must not be too large.
pub(crate) async fn values(
    source: &Source,
    entries: Vec<OutputEntry>,
    reading: JoinReading,
    format: &Format,
) -> Result<Vec<Option<Blob>>, ReadError> {
    let mut forest = Forest::default();
    let roots = forest.add(entries, None, reading == JoinReading::Gather)?;
    forest.read(source).await?;
    let mut written = forest.write(format)?;
    Ok(roots.into_iter().map(|at| written[at].take()).collect())
}

/// Values that are being combined. Children come after their parents.
#[derive(Default)]
struct Forest {
    nodes: Vec<Node>,
    /// Lists with entries that are still to be read.
    open: Vec<Open>,
    bytes: usize,
    /// Whether failures are replaced by nothing, and the first of them.
    is_lenient: bool,
    failure: Option<Failure>,
}

/// A list with entries that are still to be read.
struct Open {
    /// Its node.
    at: usize,
    join: JobId,
    reading: JoinReading,
    /// The first entry that is to be read.
    from: usize,
}

struct Node {
    content: Content,
    /// The list it is in.
    list: Option<usize>,
    /// Whether its outcome is told: it is one of the members of a gather.
    is_gathered: bool,
}

enum Content {
    Written(Option<Blob>),
    Failed(Failure),
    List { join: JobId, reading: JoinReading, children: Vec<usize> },
}

impl Forest {
    /// Reads everything that an input is made of.
    async fn read_input(mut self, source: &Source, input: Input) -> Result<Self, ReadError> {
        match input {
            Input::Entry(entry) => {
                self.add(vec![entry], None, false)?;
            }
            Input::List(list, page) => {
                self.add(vec![OutputEntry::List(list)], None, false)?;
                if let Some(open) = self.open.pop() {
                    self.take(open, page)?;
                }
            }
        }
        self.read(source).await?;
        Ok(self)
    }

    /// The one value that all this is made of.
    fn only(self, format: &Format) -> Result<Option<Blob>, ReadError> {
        self.write(format)?.into_iter().next().ok_or_else(|| broken("an output was lost"))
    }

    fn add(
        &mut self,
        entries: Vec<OutputEntry>,
        list: Option<usize>,
        is_gathered: bool,
    ) -> Result<Vec<usize>, ReadError> {
        let first = self.nodes.len();
        for entry in entries {
            let content = match entry {
                OutputEntry::Done(output) => {
                    self.bytes += output.as_ref().map_or(0, |output| output.len());
                    if self.bytes > Limits::MAX_CALL_BYTES {
                        return Err(ReadError::TooLarge);
                    }
                    Content::Written(output)
                }
                OutputEntry::List(list) => self.list(list),
                OutputEntry::Failed { state, reason } => {
                    let failure = Failure::new(state, reason.as_ref());
                    if is_gathered {
                        Content::Failed(failure)
                    } else if self.is_lenient {
                        self.failure.get_or_insert(failure);
                        Content::Written(None)
                    } else {
                        return Err(ReadError::Failed(failure));
                    }
                }
                OutputEntry::Pending => return Err(ReadError::Pending),
                OutputEntry::Missing => return Err(ReadError::Missing),
                _ => return Err(broken("an output is of a kind that this version does not know")),
            };
            self.nodes.push(Node { content, list, is_gathered });
        }
        Ok((first..self.nodes.len()).collect())
    }

    fn list(&mut self, JoinList { join, len, reading, .. }: JoinList) -> Content {
        match reading {
            JoinReading::Discard => return Content::Written(None),
            JoinReading::First if len == 0 => return Content::Written(None),
            JoinReading::List | JoinReading::Gather | JoinReading::First if len > 0 => {
                self.open.push(Open { at: self.nodes.len(), join: join.clone(), reading, from: 0 });
            }
            _ => {}
        }
        Content::List { join, reading, children: Vec::new() }
    }

    async fn read(&mut self, source: &Source) -> Result<(), ReadError> {
        while !self.open.is_empty() {
            let at_once = self.open.len().min(JOINS_AT_ONCE);
            let batch = self.open.split_off(self.open.len() - at_once);
            let queries =
                batch.iter().map(|it| OutputQuery::parents_of(it.join.clone()).from(it.from));
            let request = Outputs::new(queries.collect(), Limits::MAX_PAGE);
            let answers = source(request).await?;
            if answers.len() != batch.len() {
                return Err(broken("a query for outputs has no answer"));
            }
            for (open, answer) in batch.into_iter().zip(answers) {
                self.take(open, answer.map_err(ReadError::Refused)?)?;
            }
        }
        Ok(())
    }

    /// Takes a page of a list.
    fn take(&mut self, open: Open, mut page: OutputPage) -> Result<(), ReadError> {
        if open.reading == JoinReading::First {
            page.entries.truncate(1);
            page.next = None;
        }
        let added = self.add(page.entries, Some(open.at), open.reading == JoinReading::Gather)?;
        if let Content::List { children, .. } = &mut self.nodes[open.at].content {
            children.extend(added);
        }
        self.open.extend(page.next.map(|from| Open { from, ..open }));
        Ok(())
    }

    /// Each node as bytes.
    fn write(mut self, format: &Format) -> Result<Vec<Option<Blob>>, ReadError> {
        let nothing = format.encode(&())?;
        let mut written: Vec<Option<Blob>> = vec![None; self.nodes.len()];
        // From the last to the first, so that lists come after what is in them.
        while let Some(Node { content, list, is_gathered }) = self.nodes.pop() {
            let at = self.nodes.len();
            let value = match content {
                Content::Written(output) => {
                    if let Some(output) = &output
                        && (is_gathered || self.is_listed(list))
                    {
                        format.check(output, || self.whose(at, list))?;
                    }
                    output
                }
                Content::Failed(failure) => {
                    written[at] = Some(format.encode(&Err::<(), _>(failure))?);
                    continue;
                }
                Content::List { reading: JoinReading::First, children, .. } => {
                    children.first().and_then(|&child| written[child].take())
                }
                Content::List { children, .. } => {
                    let or_nothing = |it: Option<Blob>| it.unwrap_or_else(|| nothing.clone());
                    let items: Vec<Blob> =
                        children.iter().map(|&child| or_nothing(written[child].take())).collect();
                    Some(format.list(&items)?)
                }
            };
            written[at] = if is_gathered {
                Some(format.variant("Ok", &value.unwrap_or_else(|| nothing.clone()))?)
            } else {
                value
            };
        }
        Ok(written)
    }

    /// Whether the value becomes part of an encoded list or outcome. A join that reads the first of
    /// its parents stands for that parent alone.
    fn is_listed(&self, mut list: Option<usize>) -> bool {
        while let Some(node) = list.and_then(|at| self.nodes.get(at)) {
            match &node.content {
                Content::List { reading: JoinReading::First, .. } if !node.is_gathered => {
                    list = node.list;
                }
                _ => return true,
            }
        }
        false
    }

    /// Names the job whose output a node is, for an error. A list comes before its entries, so it is
    /// still there.
    fn whose(&self, at: usize, list: Option<usize>) -> String {
        match list.and_then(|list| self.nodes.get(list)).map(|node| &node.content) {
            Some(Content::List { join, children, .. }) => {
                let nth = children.iter().position(|&child| child == at).unwrap_or_default() + 1;
                format!("parent {nth} of {} of {join}", children.len())
            }
            _ => "a member".to_owned(),
        }
    }
}
