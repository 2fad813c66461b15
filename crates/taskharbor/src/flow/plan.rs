//! [`Plan`]: the jobs and joins of a flow and the edges between them, before they are encoded.

use std::{any::type_name, borrow::Cow, collections::HashMap, fmt};

use taskharbor_core::{
    Blob, JobId, NewJob, QueueName, Timestamp,
    job::{Condition, FailurePolicy, Headers, JoinReading},
};

use crate::{Flow, Job, Options, Step, codec::Format, draft, draft::InvalidJob, job::When};

/// The jobs of a flow, with their parents as positions in the list. Parents come before their
/// dependants. There is at least one job, and one of them is the tail.
///
/// Every job has at most one parent, since its input is one value; where that is made of several
/// outputs, a join stands between. So two groups in a row cost as many edges as they have members,
/// and a reader always knows whether it reads a value or a list.
pub(super) struct Plan {
    nodes: Vec<Node>,
    /// The job whose output is the flow's. Only failure jobs may wait for it.
    tail: usize,
}

pub(super) struct Node {
    content: Content,
    options: Options,
    parents: Vec<usize>,
    condition: Condition,
    /// Its policy if its options and those of the flow set none.
    fallback: Option<FailurePolicy>,
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
    Join(JoinReading),
}

impl Node {
    fn new(content: Content, options: Options, parents: Vec<usize>) -> Self {
        Self { content, options, parents, condition: Condition::ParentsDone, fallback: None }
    }

    fn name(&self) -> Cow<'_, str> {
        match &self.content {
            Content::Typed { job_type, .. } => Cow::Borrowed(job_type),
            Content::Raw { job_type, .. } => Cow::Borrowed(job_type),
            Content::Join(reading) => Cow::Owned(format!("{reading:?}")),
        }
    }
}

/// What the library's own headers of a job need at most, beside its label.
const OWN_HEADER_BYTES: usize = 1_024;

impl Plan {
    /// One job.
    pub(super) fn of<J: Job>(step: Step<J>) -> Self {
        let (job_type, rust_type) = (J::TYPE, type_name::<J>());
        let options = step.options.over(Options::of(&step.job));
        let content = Content::Typed { job_type, rust_type, payload: Box::new(step.job) };
        Self::single(content, options)
    }

    /// One job, by the name of its type and its bytes.
    pub(super) fn raw(job_type: String, payload: Blob, options: Options) -> Self {
        Self::single(Content::Raw { job_type, payload }, options)
    }

    fn single(content: Content, options: Options) -> Self {
        Self { nodes: vec![Node::new(content, options, Vec::new())], tail: 0 }
    }

    /// All of these, with a join behind them.
    pub(super) fn all(members: impl IntoIterator<Item = Self>, reading: JoinReading) -> Self {
        let mut all = Self { nodes: Vec::new(), tail: 0 };
        let tails: Vec<usize> = members.into_iter().map(|member| all.append(member)).collect();
        // A step put before an empty group becomes the join's parent, but is not one of its outputs.
        let reading = match reading {
            JoinReading::List | JoinReading::Gather if tails.is_empty() => JoinReading::Empty,
            reading => reading,
        };
        all.tail = all.join(reading, tails);
        all
    }

    /// All of these, with a join behind them whose list has the outcome of each.
    pub(super) fn gather(members: impl IntoIterator<Item = Self>) -> Self {
        let members = members.into_iter().map(|mut plan| {
            plan.default_policy(FailurePolicy::Cancel);
            plan.tail_policy(FailurePolicy::Continue);
            plan
        });
        Self::all(members, JoinReading::Gather)
    }

    /// Single jobs, each with the positions of its parents, put in this order. Jobs with the same
    /// several parents share one join. If several jobs have no dependants, a join of them is the
    /// tail.
    pub(super) fn graph(jobs: Vec<(Self, Vec<usize>)>, order: &[usize]) -> Self {
        let mut all = Self { nodes: Vec::new(), tail: 0 };
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
                        let join = all.join(JoinReading::List, parents.clone());
                        joins.insert(parents, join);
                        join
                    }
                }],
            };
            places[at] = all.append(job);
            all.nodes[places[at]].parents = parents;
        }
        let ends = (0..places.len()).filter(|&at| !is_waited_for[at]).map(|at| places[at]);
        let ends: Vec<usize> = ends.collect();
        all.tail = match ends[..] {
            [end] => end,
            _ => all.join(JoinReading::List, ends),
        };
        all
    }

    /// Adds the jobs of `other` with the edges between them, and answers where its tail is.
    fn append(&mut self, other: Self) -> usize {
        let before = self.nodes.len();
        self.nodes.reserve(other.nodes.len());
        for mut node in other.nodes {
            node.parents.iter_mut().for_each(|parent| *parent += before);
            self.nodes.push(node);
        }
        before + other.tail
    }

    /// Adds a join, and answers where it is.
    fn join(&mut self, reading: JoinReading, parents: Vec<usize>) -> usize {
        self.nodes.push(Node::new(Content::Join(reading), Options::new(), parents));
        self.nodes.len() - 1
    }

    /// These jobs, whose tail the first jobs of `next` wait for.
    pub(super) fn then(mut self, next: Self) -> Self {
        let (before, tail) = (self.nodes.len(), self.tail);
        self.tail = self.append(next);
        for node in self.nodes[before..].iter_mut().filter(|node| node.parents.is_empty()) {
            node.parents.push(tail);
        }
        self
    }

    /// The policy of all jobs that have none of their own.
    pub(super) fn default_policy(&mut self, policy: FailurePolicy) {
        for node in &mut self.nodes {
            node.options.failure_policy.get_or_insert(policy);
        }
    }

    /// Sets the policy of the tail.
    pub(super) fn tail_policy(&mut self, policy: FailurePolicy) {
        self.nodes[self.tail].options.failure_policy = Some(policy);
    }

    /// These options where they are set, those that the tail has elsewhere.
    pub(super) fn tail_options(&mut self, options: Options) {
        let tail = &mut self.nodes[self.tail].options;
        *tail = options.over(std::mem::take(tail));
    }

    /// Whether a job may not run before a fixed instant.
    pub(super) fn has_fixed_time(&self) -> bool {
        self.nodes.iter().any(|node| matches!(node.options.when, Some(When::At(_))))
    }

    pub(super) fn label_tail(&mut self, label: String) {
        self.nodes[self.tail].options.label = Some(label);
    }

    /// These jobs, and one that runs if their tail fails. The tail stays the tail.
    ///
    /// A blocked flow has not failed, so the jobs get the policy cancel unless another is set. The
    /// failure job does, too: no policy of the flow applies to the jobs that it expands into, and a
    /// step of those that stayed blocked could not be requeued in a flow that is over.
    pub(super) fn on_failure(mut self, job: Self) -> Self {
        for node in &mut self.nodes {
            node.fallback.get_or_insert(FailurePolicy::Cancel);
        }
        let at = self.append(job);
        let job = &mut self.nodes[at];
        job.parents = vec![self.tail];
        job.condition = Condition::ParentsFailed;
        job.options.failure_policy.get_or_insert(FailurePolicy::Cancel);
        self
    }

    /// Sets these headers on each job that sets none of them and has room for all.
    fn default_headers(&mut self, set: &[(&str, &str)]) {
        let bytes_of = |name: &str, value: &str| name.len() + value.len();
        for node in &mut self.nodes {
            let headers = &mut node.options.headers;
            let is_set = headers.iter().any(|(name, _)| set.iter().any(|(it, _)| it == name));
            let given: usize = headers.iter().map(|(name, value)| bytes_of(name, value)).sum();
            let added: usize = set.iter().map(|(name, value)| bytes_of(name, value)).sum();
            let has_room = headers.len() + set.len() <= Headers::MAX_ENTRIES
                && given + added + OWN_HEADER_BYTES <= Headers::MAX_BYTES;
            // A join has no handler that would see them.
            if !is_set && has_room && !matches!(node.content, Content::Join(_)) {
                let set = set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
                headers.extend(set);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// These jobs as the expansion of a job with this policy. They behave as if that job had been
    /// written as this flow: the policy is that of all jobs that have none of their own, and the
    /// store gives it to the tail. A failure inside has to reach the tail before the dependants
    /// can continue, so inside continue is cancel.
    pub(super) fn in_place_of(&mut self, policy: FailurePolicy) {
        match policy {
            FailurePolicy::Block => {}
            FailurePolicy::Continue => self.default_policy(FailurePolicy::Cancel),
            FailurePolicy::Cancel | FailurePolicy::FailFast => self.default_policy(policy),
        }
        self.tail_policy(policy);
    }

    /// The jobs to be stored, the tail last.
    pub(super) fn into_jobs(
        self,
        format: &Format,
        now: Timestamp,
    ) -> Result<Vec<NewJob>, InvalidJob> {
        let ids = JobId::generate_many(now, self.nodes.len())?;
        let nodes = self.nodes.into_iter().zip(&ids);
        let jobs = nodes.map(|(node, id)| node.into_job(id.clone(), &ids, format, now));
        let mut jobs = jobs.collect::<Result<Vec<_>, _>>()?;
        let tail = jobs.remove(self.tail);
        jobs.push(tail);
        Ok(jobs)
    }
}

impl<O, I> Flow<O, I> {
    /// Sets these headers on each job of the flow that sets none of them itself. A job without room
    /// for all of them gets none. Middleware gives the jobs of a flow that a handler returned the trace
    /// of the job that they take the place of.
    pub fn default_headers<'h>(
        mut self,
        set: impl IntoIterator<Item = (&'h str, &'h str)>,
    ) -> Self {
        let set: Vec<_> = set.into_iter().collect();
        self.plan.default_headers(&set);
        self
    }
}

impl Node {
    fn into_job(
        self,
        id: JobId,
        ids: &[JobId],
        format: &Format,
        now: Timestamp,
    ) -> Result<NewJob, InvalidJob> {
        let (options, headers) = (&self.options, format.headers().clone());
        let mut job = match self.content {
            Content::Typed { job_type, rust_type, payload } => {
                let payload = format.encode_erased(&*payload, rust_type)?;
                draft::job(id, job_type, payload, headers, options, now)?
            }
            Content::Raw { job_type, payload } => {
                draft::job(id, &job_type, payload, headers, options, now)?
            }
            Content::Join(reading) => {
                let join = NewJob::join(id, QueueName::new(options.queue_name())?, []);
                join.read_as(reading).headers(draft::labelled(headers, options)?)
            }
        };
        job.parents = self.parents.iter().map(|&at| ids[at].clone()).collect();
        job.condition = self.condition;
        job.on_failure = options.failure_policy.or(self.fallback).unwrap_or_default();
        Ok(job)
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.nodes.iter().map(Node::name)).finish()
    }
}
