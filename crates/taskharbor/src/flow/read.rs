//! Reading what steps have produced, and putting it together to the one value that the next takes.
//!
//! Outputs form a tree whose inner nodes are joins. It is read level by level, many joins in one
//! call, and put together from the leaves up as bytes: what a codec has written is not read again
//! before the whole is. Nothing recurses, however deep the tree is.

use std::sync::Arc;

use taskharbor_core::{
    Blob, DriverError, JobId,
    driver::{Answers, Limits, OutputEntry, OutputPage, OutputQuery, Outputs},
    error::Refusal,
};

use super::{Failure, Shape};
use crate::{BoxFuture, CodecError, codec::Format};

/// Asks a store for outputs, patiently.
pub(crate) type Source =
    Arc<dyn Fn(Outputs) -> BoxFuture<Answers<OutputPage, Refusal>> + Send + Sync>;

/// How many joins are read in one call, each with a full page.
const JOINS_AT_ONCE: usize = 64;

/// Why what a step has produced cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("a step before it is {0}")]
    Failed(Failure),
    #[error("a step before it is not over")]
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

/// The one entry of what a job waited for, and the first page of the join that this probably is, in
/// one call.
pub(crate) async fn ahead(
    source: &Source,
    job: JobId,
    join: JobId,
) -> Result<(OutputEntry, Option<OutputPage>), ReadError> {
    let queries = vec![OutputQuery::parents_of(job), OutputQuery::parents_of(join.clone())];
    let mut answers = source(Outputs::new(queries, Limits::MAX_PAGE)).await?;
    let (Some(page), Some(Ok(parent))) = (answers.pop(), answers.pop()) else {
        return Err(broken("a query for outputs has no answer"));
    };
    let entry = only(parent)?;
    let is_it = matches!(&entry, OutputEntry::List { join: it, .. } if *it == join);
    Ok((entry, page.ok().filter(|_| is_it)))
}

/// What a job produced, as bytes; `None` if that says nothing. If it is a join, `page` is the first
/// page of its list if that was read already.
pub(crate) async fn value(
    source: &Source,
    entry: OutputEntry,
    page: Option<OutputPage>,
    format: &Format,
) -> Result<Option<Blob>, ReadError> {
    Forest::default().grow(source, entry, page).await?.only(format)
}

/// The same for a reader that goes on without what failed: nothing stands in its place, and the
/// first failure is told.
pub(crate) async fn value_or_nothing(
    source: &Source,
    entry: OutputEntry,
    page: Option<OutputPage>,
    format: &Format,
) -> Result<(Option<Blob>, Option<Failure>), ReadError> {
    let forest = Forest { is_lenient: true, ..Forest::default() };
    let mut forest = forest.grow(source, entry, page).await?;
    let failure = forest.failure.take();
    let value = forest.only(format)?;
    match failure {
        Some(_) if value.is_none() => Ok((Some(format.encode(&())?), failure)),
        _ => Ok((value, failure)),
    }
}

/// What entries of a list of this shape are, each as bytes; `None` for one that says nothing. They
/// are read together, so together they must not be too large.
pub(crate) async fn values(
    source: &Source,
    entries: Vec<OutputEntry>,
    shape: Shape,
    format: &Format,
) -> Result<Vec<Option<Blob>>, ReadError> {
    let mut forest = Forest::default();
    let roots = forest.add(entries, None, shape == Shape::Gather)?;
    forest.read(source).await?;
    let mut written = forest.write(format)?;
    Ok(roots.into_iter().map(|at| written[at].take()).collect())
}

/// Values in the making. Children come after their parents.
#[derive(Default)]
struct Forest {
    nodes: Vec<Node>,
    /// Joins whose parents are still to be read: the node, and from which on.
    open: Vec<(usize, JobId, usize)>,
    bytes: usize,
    /// Whether nothing is put in the place of what failed, and what failed first.
    is_lenient: bool,
    failure: Option<Failure>,
}

struct Node {
    content: Content,
    /// The list it is in.
    list: Option<usize>,
    /// Whether it is one of those whose fate is told.
    is_fate: bool,
}

enum Content {
    Written(Option<Blob>),
    Failed(Failure),
    List { join: JobId, children: Vec<usize> },
}

impl Forest {
    /// Reads all that this one entry is made of.
    async fn grow(
        mut self,
        source: &Source,
        entry: OutputEntry,
        page: Option<OutputPage>,
    ) -> Result<Self, ReadError> {
        self.add(vec![entry], None, false)?;
        if let Some(page) = page
            && let Some((at, join, _)) = self.open.pop()
        {
            self.take(at, join, page)?;
        }
        self.read(source).await?;
        Ok(self)
    }

    /// What the one entry is that all this is made from.
    fn only(self, format: &Format) -> Result<Option<Blob>, ReadError> {
        self.write(format)?.into_iter().next().ok_or_else(|| broken("an output was lost"))
    }

    fn add(
        &mut self,
        entries: Vec<OutputEntry>,
        list: Option<usize>,
        is_fate: bool,
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
                OutputEntry::List { join, len } => self.list(join, len),
                OutputEntry::Failed { state, reason } => {
                    let failure = Failure::new(state, reason.as_ref());
                    if is_fate {
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
            self.nodes.push(Node { content, list, is_fate });
        }
        Ok((first..self.nodes.len()).collect())
    }

    fn list(&mut self, join: JobId, len: usize) -> Content {
        let shape = Shape::of(&join);
        match shape {
            Shape::Discard => return Content::Written(None),
            Shape::First if len == 0 => return Content::Written(None),
            Shape::List | Shape::Gather | Shape::First if len > 0 => {
                self.open.push((self.nodes.len(), join.clone(), 0));
            }
            _ => {}
        }
        Content::List { join, children: Vec::new() }
    }

    async fn read(&mut self, source: &Source) -> Result<(), ReadError> {
        while !self.open.is_empty() {
            let at_once = self.open.len().min(JOINS_AT_ONCE);
            let batch = self.open.split_off(self.open.len() - at_once);
            let queries = batch
                .iter()
                .map(|(_, join, from)| OutputQuery::parents_of(join.clone()).from(*from));
            let request = Outputs::new(queries.collect(), Limits::MAX_PAGE);
            let answers = source(request).await?;
            if answers.len() != batch.len() {
                return Err(broken("a query for outputs has no answer"));
            }
            for ((at, join, _), answer) in batch.into_iter().zip(answers) {
                self.take(at, join, answer.map_err(ReadError::Refused)?)?;
            }
        }
        Ok(())
    }

    /// Takes a page of the list that a node is.
    fn take(&mut self, at: usize, join: JobId, mut page: OutputPage) -> Result<(), ReadError> {
        let shape = Shape::of(&join);
        if shape == Shape::First {
            page.entries.truncate(1);
            page.next = None;
        }
        let added = self.add(page.entries, Some(at), shape == Shape::Gather)?;
        if let Content::List { children, .. } = &mut self.nodes[at].content {
            children.extend(added);
        }
        if let Some(next) = page.next {
            self.open.push((at, join, next));
        }
        Ok(())
    }

    /// What each node is as bytes.
    fn write(mut self, format: &Format) -> Result<Vec<Option<Blob>>, ReadError> {
        let nothing = format.encode(&())?;
        let mut written: Vec<Option<Blob>> = vec![None; self.nodes.len()];
        // From the last to the first, so that lists come after what is in them.
        while let Some(Node { content, list, is_fate }) = self.nodes.pop() {
            let at = self.nodes.len();
            let value = match content {
                Content::Written(output) => {
                    if let Some(output) = &output
                        && (is_fate || self.is_listed(list))
                    {
                        format.check(output, || self.whose(at, list))?;
                    }
                    output
                }
                Content::Failed(failure) => {
                    written[at] = Some(format.encode(&Err::<(), _>(failure))?);
                    continue;
                }
                Content::List { join, children } if Shape::of(&join) == Shape::First => {
                    children.first().and_then(|&child| written[child].take())
                }
                Content::List { children, .. } => {
                    let or_nothing = |it: Option<Blob>| it.unwrap_or_else(|| nothing.clone());
                    let items: Vec<Blob> =
                        children.iter().map(|&child| or_nothing(written[child].take())).collect();
                    Some(format.list(&items)?)
                }
            };
            written[at] = if is_fate {
                Some(format.variant("Ok", &value.unwrap_or_else(|| nothing.clone()))?)
            } else {
                value
            };
        }
        Ok(written)
    }

    /// Whether what is here becomes part of something written: one of a list, or a fate. What takes the
    /// first of several stands for it alone.
    fn is_listed(&self, mut list: Option<usize>) -> bool {
        while let Some(node) = list.and_then(|at| self.nodes.get(at)) {
            match &node.content {
                Content::List { join, .. } if Shape::of(join) == Shape::First && !node.is_fate => {
                    list = node.list;
                }
                _ => return true,
            }
        }
        false
    }

    /// Whose output a node is, for people. A list comes before what is in it, so it is still there.
    fn whose(&self, at: usize, list: Option<usize>) -> String {
        match list.and_then(|list| self.nodes.get(list)).map(|node| &node.content) {
            Some(Content::List { join, children }) => {
                let nth = children.iter().position(|&child| child == at).unwrap_or_default() + 1;
                format!("parent {nth} of {} of {join}", children.len())
            }
            _ => "a member".to_owned(),
        }
    }
}
