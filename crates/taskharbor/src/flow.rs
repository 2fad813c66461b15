//! [`Flow`]: jobs that wait for each other, as a value that is started or returned by a handler.
//!
//! A flow knows what it takes and what it produces, so that a step which does not fit the one
//! before it does not compile. Nothing is encoded until it is known with which codec: a flow that
//! a handler returns is written as the handler's own job was.

use std::{any::type_name, fmt, marker::PhantomData};

use taskharbor_core::{JobId, NewJob, Timestamp};

use crate::{Job, Options, Step, codec::Format, draft, draft::InvalidJob};

/// Jobs that wait for each other; `O` is what the last one produces, `I` what the first one takes.
#[must_use = "a flow runs when it is started or returned by a handler"]
pub struct Flow<O, I = ()> {
    plan: Plan,
    types: PhantomData<fn(I) -> O>,
}

/// What can be a step of a flow: a job, a job with options, a flow.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a step of a flow",
    note = "a step is a job, `job.with(options)`, or a `Flow`"
)]
pub trait IntoFlow {
    /// What the step before it has to produce.
    type Input;
    /// What it produces.
    type Output;
    /// As a flow.
    fn into_flow(self) -> Flow<Self::Output, Self::Input>;
}

/// What a step takes, if the step before it produces an `O`. Nothing but `O` itself is.
#[diagnostic::on_unimplemented(
    message = "this step takes `{Self}`, but the one before it produces `{O}`",
    label = "the steps do not fit together",
    note = "put a step between them that takes `{O}` and produces `{Self}`"
)]
pub trait ProducedBy<O> {}

impl<O> ProducedBy<O> for O {}

/// The input of what can be run by itself: none.
#[diagnostic::on_unimplemented(
    message = "this takes the output of a step before it, which is `{Self}`, and cannot be run by itself",
    label = "nobody has produced its input",
    note = "make it a step of a flow: `client.start(Flow::first(…).then(…))`, after one that produces `{Self}`"
)]
pub trait NoInput {}

impl NoInput for () {}

impl<J: Job> IntoFlow for J {
    type Input = J::Input;
    type Output = J::Output;
    fn into_flow(self) -> Flow<J::Output, J::Input> {
        self.with(Options::new()).into_flow()
    }
}

impl<J: Job> IntoFlow for Step<J> {
    type Input = J::Input;
    type Output = J::Output;
    fn into_flow(self) -> Flow<J::Output, J::Input> {
        Flow { plan: Plan::of(self), types: PhantomData }
    }
}

impl<O, I> IntoFlow for Flow<O, I> {
    type Input = I;
    type Output = O;
    fn into_flow(self) -> Self {
        self
    }
}

impl Flow<()> {
    /// A flow that starts with this.
    pub fn first<F: IntoFlow>(first: F) -> Flow<F::Output, F::Input> {
        first.into_flow()
    }
}

impl<O, I> Flow<O, I> {
    /// Then this, which takes what the flow so far produces.
    pub fn then<N>(self, next: N) -> Flow<N::Output, I>
    where
        N: IntoFlow,
        N::Input: ProducedBy<O>,
    {
        Flow { plan: self.plan.then(next.into_flow().plan), types: PhantomData }
    }

    /// The same jobs, whose output is looked at as bytes.
    pub(crate) fn untyped<B>(self) -> Flow<B, I> {
        Flow { plan: self.plan, types: PhantomData }
    }

    /// The same jobs, which take nothing.
    pub(crate) fn taking_nothing(self) -> Flow<O>
    where
        I: NoInput,
    {
        Flow { plan: self.plan, types: PhantomData }
    }

    /// How many jobs it has.
    pub(crate) fn len(&self) -> usize {
        self.plan.nodes.len()
    }

    /// The jobs, the last one last.
    pub(crate) fn into_jobs(
        self,
        format: &Format,
        now: Timestamp,
    ) -> Result<Vec<NewJob>, InvalidJob> {
        self.plan.into_jobs(format, now)
    }
}

impl<O, I> fmt::Debug for Flow<O, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types = self.plan.nodes.iter().map(|node| node.job_type);
        f.debug_tuple("Flow").field(&types.collect::<Vec<_>>()).finish()
    }
}

/// Jobs and who waits for whom, as positions in the list. Parents come before children, and the
/// last one is the tail: the job that nobody waits for.
struct Plan {
    nodes: Vec<Node>,
}

struct Node {
    job_type: &'static str,
    rust_type: &'static str,
    payload: Box<dyn erased_serde::Serialize + Send + Sync>,
    options: Options,
    parents: Vec<usize>,
}

impl Plan {
    fn of<J: Job>(step: Step<J>) -> Self {
        let node = Node {
            job_type: J::TYPE,
            rust_type: type_name::<J>(),
            payload: Box::new(step.job),
            options: step.options.over(J::options()),
            parents: Vec::new(),
        };
        Self { nodes: vec![node] }
    }

    /// These jobs, whose tail the first ones of `next` wait for.
    fn then(mut self, next: Self) -> Self {
        let before = self.nodes.len();
        for mut node in next.nodes {
            if node.parents.is_empty() {
                node.parents.push(before - 1);
            } else {
                node.parents.iter_mut().for_each(|parent| *parent += before);
            }
            self.nodes.push(node);
        }
        self
    }

    fn into_jobs(self, format: &Format, now: Timestamp) -> Result<Vec<NewJob>, InvalidJob> {
        let ids = JobId::generate_many(now, self.nodes.len())?;
        let jobs = self.nodes.into_iter().zip(&ids).map(|(node, id)| {
            let payload = format.encode_erased(&*node.payload, node.rust_type)?;
            let headers = format.headers().clone();
            let id = id.clone();
            let job = draft::job(id, node.job_type, payload, headers, &node.options, now)?;
            Ok(job.after(node.parents.iter().map(|&at| ids[at].clone())))
        });
        jobs.collect()
    }
}
