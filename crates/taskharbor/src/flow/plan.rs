//! [`Plan`]: a flow before it is encoded: jobs, joins, and who waits for whom.

use std::{any::type_name, borrow::Cow, collections::HashMap, fmt};

use taskharbor_core::{
    Blob, JobId, NewJob, QueueName, Timestamp,
    job::{FailurePolicy, Headers},
};

use super::Shape;
use crate::{Job, Options, Step, codec::Format, draft, draft::InvalidJob};

/// The header of a job that runs only if the job it names has failed.
pub(crate) const AFTER_FAILURE_OF: &str = "th-after-failure-of";

/// The header of a job that takes the list of a join, which it names.
pub(crate) const INPUT: &str = "th-input";

/// The header of a job whose flow has a failure job, so that what it grows into fails no faster than
/// the flow.
const GUARDED: &str = "th-guarded";

/// Jobs and who waits for whom, as positions in the list. Parents come before children, and the
/// last one is the tail: the job that nobody waits for. There is at least one.
///
/// Every job waits for at most one other, since what it takes is one value; where that is made of
/// several, a join stands between. So a group behind a group costs as many edges as they have
/// members, and a reader always knows whether it reads a value or a list.
pub(super) struct Plan {
    nodes: Vec<Node>,
    /// Whether it takes its place in a flow that has a failure job.
    is_guarded: bool,
}

pub(super) struct Node {
    content: Content,
    options: Options,
    parents: Vec<usize>,
    /// Its policy if nobody sets one.
    fallback: Option<FailurePolicy>,
    /// It runs only if this one has failed.
    after_failure_of: Option<usize>,
}

enum Content {
    Typed {
        job_type: &'static str,
        rust_type: &'static str,
        payload: Box<dyn erased_serde::Serialize + Send + Sync>,
    },
    Raw {
        job_type: String,
        payload: Blob,
    },
    Join(Shape),
}

impl Node {
    fn new(content: Content, options: Options, parents: Vec<usize>) -> Self {
        Self { content, options, parents, fallback: None, after_failure_of: None }
    }

    fn name(&self) -> Cow<'_, str> {
        match &self.content {
            Content::Typed { job_type, .. } => Cow::Borrowed(job_type),
            Content::Raw { job_type, .. } => Cow::Borrowed(job_type),
            Content::Join(shape) => Cow::Owned(format!("{shape:?}")),
        }
    }
}

impl Plan {
    /// One job.
    pub(super) fn of<J: Job>(step: Step<J>) -> Self {
        let (job_type, rust_type) = (J::TYPE, type_name::<J>());
        let content = Content::Typed { job_type, rust_type, payload: Box::new(step.job) };
        let options = step.options.over(J::options());
        Self { nodes: vec![Node::new(content, options, Vec::new())], is_guarded: false }
    }

    /// One job, by the name of its type and its bytes.
    pub(super) fn raw(job_type: String, payload: Blob, options: Options) -> Self {
        let content = Content::Raw { job_type, payload };
        Self { nodes: vec![Node::new(content, options, Vec::new())], is_guarded: false }
    }

    /// All of these, with a join behind them.
    pub(super) fn all(members: impl IntoIterator<Item = Self>, shape: Shape) -> Self {
        let mut all = Self { nodes: Vec::new(), is_guarded: false };
        let mut tails = Vec::new();
        for member in members {
            all.append(member);
            tails.push(all.nodes.len() - 1);
        }
        // What the join of nobody waits for once a step is put before it is not its output.
        let shape = match shape {
            Shape::List | Shape::Gather if tails.is_empty() => Shape::Empty,
            shape => shape,
        };
        all.join(shape, tails);
        all
    }

    /// All of these, with a join behind them that tells what became of each.
    pub(super) fn gather(members: impl IntoIterator<Item = Self>) -> Self {
        let members = members.into_iter().map(|mut plan| {
            plan.default_policy(FailurePolicy::Cancel);
            plan.tail_policy(FailurePolicy::Continue);
            plan
        });
        Self::all(members, Shape::Gather)
    }

    /// Single jobs, each with the positions of those it waits for, put in this order. Where some wait
    /// for the same several, one join stands between; and so at the end if there are several that
    /// nobody waits for.
    pub(super) fn graph(jobs: Vec<(Self, Vec<usize>)>, order: &[usize]) -> Self {
        let mut all = Self { nodes: Vec::new(), is_guarded: false };
        let mut is_waited_for = vec![false; jobs.len()];
        jobs.iter().flat_map(|(_, parents)| parents).for_each(|&at| is_waited_for[at] = true);
        let mut jobs: Vec<_> = jobs.into_iter().map(Some).collect();
        let mut places = vec![0; jobs.len()];
        let mut joins: HashMap<Vec<usize>, usize> = HashMap::new();
        for &at in order {
            let Some((job, parents)) = jobs[at].take() else { continue };
            let parents: Vec<usize> = parents.into_iter().map(|parent| places[parent]).collect();
            let parents = match parents.len() {
                0 | 1 => parents,
                _ => vec![match joins.get(&parents) {
                    Some(&join) => join,
                    None => {
                        let join = all.join(Shape::List, parents.clone());
                        joins.insert(parents, join);
                        join
                    }
                }],
            };
            all.append(job);
            places[at] = all.nodes.len() - 1;
            all.nodes[places[at]].parents = parents;
        }
        let ends = (0..places.len()).filter(|&at| !is_waited_for[at]).map(|at| places[at]);
        let ends: Vec<usize> = ends.collect();
        match ends[..] {
            // The tail is the last in the list.
            [end] if end + 1 < all.nodes.len() => {
                all.join(Shape::First, vec![end]);
            }
            [_] => {}
            _ => {
                all.join(Shape::List, ends);
            }
        }
        all
    }

    /// Adds the jobs of `other`, which wait for each other as before.
    fn append(&mut self, other: Self) {
        let before = self.nodes.len();
        self.nodes.reserve(other.nodes.len());
        for mut node in other.nodes {
            node.parents.iter_mut().for_each(|parent| *parent += before);
            node.after_failure_of = node.after_failure_of.map(|it| it + before);
            self.nodes.push(node);
        }
    }

    /// Adds a join, and answers where it is.
    fn join(&mut self, shape: Shape, parents: Vec<usize>) -> usize {
        self.nodes.push(Node::new(Content::Join(shape), Options::new(), parents));
        self.nodes.len() - 1
    }

    /// These jobs, whose tail the first ones of `next` wait for.
    pub(super) fn then(mut self, next: Self) -> Self {
        let before = self.nodes.len();
        self.append(next);
        let (done, added) = self.nodes.split_at_mut(before);
        for node in added.iter_mut().filter(|node| node.parents.is_empty()) {
            node.parents.push(done.len() - 1);
        }
        self
    }

    /// The policy of all nodes that have none of their own.
    pub(super) fn default_policy(&mut self, policy: FailurePolicy) {
        for node in &mut self.nodes {
            node.options.on_failure.get_or_insert(policy);
        }
    }

    /// The policy of the tail, whatever it was.
    pub(super) fn tail_policy(&mut self, policy: FailurePolicy) {
        if let Some(tail) = self.nodes.last_mut() {
            tail.options.on_failure = Some(policy);
        }
    }

    pub(super) fn label_tail(&mut self, label: String) {
        if let Some(tail) = self.nodes.last_mut() {
            tail.options.label = Some(label);
        }
    }

    /// These jobs, and one that runs if their tail fails.
    ///
    /// ```text
    /// … ─ tail ─┬─ gate ─ job ─┬─ first
    ///           └──────────────┘
    /// ```
    ///
    /// A tail that fails cancels the gate and the last join, and the gate, whose policy is release,
    /// lets the job go. A tail that is done lets the gate be done, and so the job go too: its worker
    /// sees that the gate has not failed and does not run it.
    pub(super) fn on_failure(mut self, job: Self) -> Self {
        for node in &mut self.nodes {
            node.fallback.get_or_insert(FailurePolicy::Cancel);
        }
        self.tail_policy(FailurePolicy::Cancel);
        let tail = self.nodes.len() - 1;
        let gate = self.join(Shape::List, vec![tail]);
        self.tail_policy(FailurePolicy::Continue);
        let at = self.nodes.len();
        self.append(job);
        if let Some(job) = self.nodes.get_mut(at) {
            job.parents = vec![gate];
            job.after_failure_of = Some(gate);
            job.options.on_failure.get_or_insert(FailurePolicy::Block);
        }
        self.join(Shape::First, vec![tail, at]);
        self
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// These jobs in the place of one that grew into them. They take after it as if it had been
    /// written as this flow: its policy is that of all that have none of their own, and the store
    /// gives it to the tail. Who let go of a failure is not to go on without it inside, so there
    /// release is cancel.
    pub(super) fn in_place_of(&mut self, grower: &Headers) {
        let policy = draft::policy_in(grower);
        match policy {
            FailurePolicy::Block => {}
            FailurePolicy::Continue => self.default_policy(FailurePolicy::Cancel),
            policy => self.default_policy(policy),
        }
        self.tail_policy(policy);
        self.is_guarded = grower.get(GUARDED).is_some();
    }

    /// Settles the policy of every node. Fail-fast would cancel a failure job along with the rest,
    /// so where there is one it is taken for cancel, wherever in the flow it was set.
    fn settle_policies(&mut self) {
        self.is_guarded |= self.nodes.iter().any(|node| node.after_failure_of.is_some());
        for node in &mut self.nodes {
            let policy = node.options.on_failure.or(node.fallback).unwrap_or_default();
            node.options.on_failure = Some(match policy {
                FailurePolicy::FailFast if self.is_guarded => FailurePolicy::Cancel,
                policy => policy,
            });
        }
    }

    pub(super) fn into_jobs(
        mut self,
        format: &Format,
        now: Timestamp,
    ) -> Result<Vec<NewJob>, InvalidJob> {
        self.settle_policies();
        let mut ids = JobId::generate_many(now, self.nodes.len())?;
        let mut is_list = vec![false; ids.len()];
        for (at, (id, node)) in ids.iter_mut().zip(&self.nodes).enumerate() {
            if let Content::Join(shape) = node.content {
                *id = shape.marked(id)?;
                is_list[at] = matches!(shape, Shape::List | Shape::Gather);
            }
        }
        let headers = match self.is_guarded {
            true => format.headers().clone().with_any(GUARDED, "yes")?,
            false => format.headers().clone(),
        };
        let places = Places { ids: &ids, is_list: &is_list, headers: &headers };
        let nodes = self.nodes.into_iter().enumerate();
        let jobs = nodes.map(|(at, node)| node.into_job(&places, at, format, now));
        jobs.collect()
    }
}

/// Who is where in a plan.
struct Places<'a> {
    ids: &'a [JobId],
    /// Whether it is a join that is read as a list.
    is_list: &'a [bool],
    /// What all of them carry.
    headers: &'a Headers,
}

impl Node {
    fn into_job(
        self,
        places: &Places<'_>,
        at: usize,
        format: &Format,
        now: Timestamp,
    ) -> Result<NewJob, InvalidJob> {
        let Places { ids, is_list, .. } = places;
        let (id, options) = (ids[at].clone(), &self.options);
        let mut headers = places.headers.clone();
        if let Some(gate) = self.after_failure_of {
            headers = headers.with_any(AFTER_FAILURE_OF, ids[gate].as_str())?;
        }
        if let [parent] = self.parents[..]
            && is_list[parent]
            && !matches!(self.content, Content::Join(_))
        {
            headers = headers.with_any(INPUT, ids[parent].as_str())?;
        }
        let parents = self.parents.iter().map(|&at| ids[at].clone());
        match self.content {
            Content::Typed { job_type, rust_type, payload } => {
                let payload = format.encode_erased(&*payload, rust_type)?;
                Ok(draft::job(id, job_type, payload, headers, options, now)?.after(parents))
            }
            Content::Raw { job_type, payload } => {
                Ok(draft::job(id, &job_type, payload, headers, options, now)?.after(parents))
            }
            Content::Join(_) => {
                let join = NewJob::join(id, QueueName::new(options.queue_name())?, parents);
                let headers = draft::labelled(headers, options)?;
                Ok(join.headers(headers).on_failure(options.on_failure.unwrap_or_default()))
            }
        }
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.nodes.iter().map(Node::name)).finish()
    }
}
