//! [`Flow`]: jobs that wait for each other, as a value that a client starts or a handler returns.
//!
//! The type of a flow has its input and its output, so that a step which does not fit the one
//! before it does not compile. Jobs are encoded only when the codec is known: a flow that a handler
//! returns is written with the codec of the handler's job.

mod each;
mod failure;
pub(crate) mod graph;
pub mod json;
mod plan;
pub(crate) mod read;

use std::{fmt, marker::PhantomData};

use taskharbor_core::{
    Blob, NewJob, Timestamp,
    job::{FailurePolicy, JoinReading},
};

use crate::{Job, Options, Step, codec::Format, draft::InvalidJob};

pub(crate) use each::is_each;
pub use each::{Each, Inputs};
pub use failure::Failure;
pub use graph::{FlowMember, FlowTree};
use plan::Plan;

/// Jobs that wait for each other; `O` is the output of the last one, `I` the input of the first
/// ones.
///
/// A job is a flow of one step. Flows are combined with [`Flow::then`], [`Flow::group`] and the
/// other functions, to any depth, and a flow can be a step wherever a job can:
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// use taskharbor::{Flow, Job, Options};
///
/// #[derive(Serialize, Deserialize, Job)]
/// #[job(type = "fetch", output = Vec<u8>)]
/// struct Fetch;
/// #[derive(Serialize, Deserialize, Job)]
/// #[job(type = "resize", input = Vec<u8>, output = u64)]
/// struct Resize { width: u32 }
/// #[derive(Serialize, Deserialize, Job)]
/// #[job(type = "sum", input = Vec<u64>, output = u64)]
/// struct Sum;
///
/// let sizes = [64, 256].map(|width| Resize { width }.with(Options::new().queue("images")));
/// let flow: Flow<u64> = Flow::first(Fetch).then(Flow::group(sizes)).then(Sum);
/// ```
#[must_use = "a flow runs when it is started or returned by a handler"]
pub struct Flow<O, I = ()> {
    plan: Plan,
    types: PhantomData<fn(I) -> O>,
}

/// A type that can be a step of a flow: a job, a job with options, or a flow.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a step of a flow",
    note = "a step is a job, `job.with(options)`, or a `Flow`"
)]
pub trait IntoFlow {
    /// The output that the step before it has to produce.
    type Input;
    /// Its output.
    type Output;
    /// Converts the step into a flow.
    fn into_flow(self) -> Flow<Self::Output, Self::Input>;
}

/// An input that a step can take after a step with the output `O`: `O` itself, or [`Each`] of its
/// elements one by one if it is a list.
#[diagnostic::on_unimplemented(
    message = "this step takes `{Self}`, but the one before it produces `{O}`",
    label = "the steps do not fit together",
    note = "put a step between them that takes `{O}` and produces `{Self}`"
)]
pub trait ProducedBy<O> {}

impl<O> ProducedBy<O> for O {}
impl<T> ProducedBy<Vec<T>> for Each<T> {}

/// The input of a job or flow that can run without a step before it: none.
#[diagnostic::on_unimplemented(
    message = "this takes the output of a step before it, which is `{Self}`, and cannot be run by itself",
    label = "no step before it produces its input",
    note = "make it a step of a flow: `client.start(Flow::first(…).then(…))`, after one that produces `{Self}`"
)]
pub trait NoInput {}

impl NoInput for () {}

/// An input that a failure job may take: the [`Failure`], or nothing.
#[diagnostic::on_unimplemented(
    message = "a job that runs because a flow failed takes the `Failure` or nothing, but this one takes `{Self}`",
    label = "no step produces its input",
    note = "let it take `()`, or `taskharbor::Failure` to learn what went wrong"
)]
pub trait TakesFailure {}

impl TakesFailure for () {}
impl TakesFailure for Failure {}

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
        Flow::of(Plan::of(self))
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
    /// Creates a flow that starts with this step.
    pub fn first<F: IntoFlow>(first: F) -> Flow<F::Output, F::Input> {
        first.into_flow()
    }

    /// Steps that run one after another. Each takes the output of the one before it, so all have the
    /// same input and output type. An empty chain produces its input. Use [`Flow::then`] to chain
    /// steps of different types.
    pub fn chain<F>(steps: impl IntoIterator<Item = F>) -> Flow<F::Output, F::Input>
    where
        F: IntoFlow,
        F::Input: ProducedBy<F::Output>,
    {
        let steps = steps.into_iter().map(|step| step.into_flow().plan);
        Flow::of(steps.reduce(Plan::then).unwrap_or_else(|| Plan::all([], JoinReading::First)))
    }

    /// Members that run in parallel. When the last of them is done, the group produces the list of
    /// their outputs, in their order. An empty group completes immediately.
    pub fn group<F: IntoFlow>(
        members: impl IntoIterator<Item = F>,
    ) -> Flow<Vec<F::Output>, F::Input> {
        Flow::of(Plan::all(plans(members), JoinReading::List))
    }

    /// Members that run in parallel. The next step runs when all of them are terminal, whether they
    /// succeeded or failed, and takes an output or a [`Failure`] for each.
    ///
    /// A member that is itself a flow has failed when its last step has failed, so its other steps
    /// get the policy [`FailurePolicy::Cancel`] unless they have one of their own.
    pub fn gather<F: IntoFlow>(
        members: impl IntoIterator<Item = F>,
    ) -> Flow<Vec<Result<F::Output, Failure>>, F::Input> {
        Flow::of(Plan::gather(plans(members)))
    }

    /// Two steps of different types that run in parallel. The flow's output is the pair of their
    /// outputs.
    pub fn join<A, B>(a: A, b: B) -> Flow<(A::Output, B::Output), A::Input>
    where
        A: IntoFlow,
        B: IntoFlow<Input = A::Input>,
    {
        Flow::of(Plan::all([a.into_flow().plan, b.into_flow().plan], JoinReading::List))
    }

    /// A [`Flow::group`] followed by a finalizer, which takes the list of the members' outputs, in
    /// their order.
    pub fn chord<F, N>(
        members: impl IntoIterator<Item = F>,
        finalizer: N,
    ) -> Flow<N::Output, F::Input>
    where
        F: IntoFlow,
        N: IntoFlow,
        N::Input: ProducedBy<Vec<F::Output>>,
    {
        Flow::group(members).then(finalizer)
    }
}

fn plans<F: IntoFlow>(members: impl IntoIterator<Item = F>) -> impl Iterator<Item = Plan> {
    members.into_iter().map(|member| member.into_flow().plan)
}

impl Flow<Blob> {
    /// One job, by the name of its type and its bytes.
    pub(crate) fn raw(job_type: String, payload: Blob) -> Self {
        Self::of(Plan::raw(job_type, payload, Options::new()))
    }
}

impl<O, I> Flow<O, I> {
    const fn of(plan: Plan) -> Self {
        Self { plan, types: PhantomData }
    }

    /// Adds a step, which takes the output of the flow so far.
    pub fn then<N>(self, next: N) -> Flow<N::Output, I>
    where
        N: IntoFlow,
        N::Input: ProducedBy<O>,
    {
        Flow::of(self.plan.then(next.into_flow().plan))
    }

    /// Drops the output of the flow so far, so that the next step takes nothing.
    pub fn discard(self) -> Flow<(), I> {
        Flow::of(Plan::all([self.plan], JoinReading::Discard))
    }

    /// Sets the failure policy: what happens to the dependants of a step that fails. It applies to
    /// all steps so far that have no policy of their own. A flow that a step's handler returns
    /// inherits it; inside that flow [`FailurePolicy::Continue`] applies to the last step, and the
    /// others get [`FailurePolicy::Cancel`]. Defaults to [`FailurePolicy::Block`].
    pub fn policy(mut self, policy: FailurePolicy) -> Self {
        self.plan.default_policy(policy);
        self
    }

    /// Labels this part of the flow in diagrams and lists: the label of its last step, or of the
    /// group that it is. For a single job, use [`Options::label`].
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.plan.label_tail(label.into());
        self
    }

    /// Runs this job if the last step of the flow so far is dead-lettered, or is cancelled other than
    /// by cancelling the flow. The job takes the [`Failure`] or nothing. Its output is not used. Steps
    /// that follow wait for the flow, not for this job.
    ///
    /// The job is stored with the flow and stays blocked until the flow fails, whatever the policies
    /// are: fail-fast does not cancel it. If the flow succeeds, the store cancels the job as not
    /// needed in the step in which the flow's last step is done, so no worker has to serve its
    /// queue. It does not run if a person cancels the flow as a whole.
    ///
    /// A blocked flow has not failed, so the failure job would never run. Therefore the steps of
    /// the flow get the policy [`FailurePolicy::Cancel`] unless another is set, for the step or
    /// with [`Flow::policy`] before or after this. The handler of the failure job can return a
    /// flow; its steps get the same policy unless the failure job has one of its own. See
    /// [the guide](crate::guide::workflows#failure-jobs).
    pub fn on_failure<N>(self, job: N) -> Self
    where
        N: IntoStep,
        N::Input: TakesFailure,
    {
        Self::of(self.plan.on_failure(Plan::of(job.into_step())))
    }

    /// The same jobs, whose output is looked at as bytes.
    pub(crate) fn untyped<B>(self) -> Flow<B, I> {
        Flow::of(self.plan)
    }

    /// The same jobs, the last one with these options where they are set.
    pub(crate) fn with_options(mut self, options: Options) -> Self {
        self.plan.tail_options(options);
        self
    }

    /// Whether a job may not run before a fixed instant.
    pub(crate) fn has_fixed_time(&self) -> bool {
        self.plan.has_fixed_time()
    }

    /// The same jobs, which take nothing.
    pub(crate) fn taking_nothing(self) -> Flow<O>
    where
        I: NoInput,
    {
        Flow::of(self.plan)
    }

    /// The number of its jobs, including the joins, which the store completes by itself.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a flow has at least one job")]
    pub fn len(&self) -> usize {
        self.plan.len()
    }

    /// The same jobs, as the expansion of a job with this policy.
    pub(crate) fn in_place_of(mut self, policy: FailurePolicy) -> Self {
        self.plan.in_place_of(policy);
        self
    }

    /// The jobs, the tail last.
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
        f.debug_tuple("Flow").field(&self.plan).finish()
    }
}

/// A single step: a job, or a job with options.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a single job",
    note = "give a job or `job.with(options)`; its handler can return a flow"
)]
pub trait IntoStep: IntoFlow + single::Single {}

impl<J: Job> IntoStep for J {}
impl<J: Job> IntoStep for Step<J> {}

/// Keeps flows from being single steps.
pub(crate) mod single {
    use super::{Job, Step};
    use crate::Options;

    pub trait Single {
        #[doc(hidden)]
        type Job: Job;
        #[doc(hidden)]
        fn into_step(self) -> Step<Self::Job>;
    }

    impl<J: Job> Single for J {
        type Job = J;
        fn into_step(self) -> Step<J> {
            self.with(Options::new())
        }
    }

    impl<J: Job> Single for Step<J> {
        type Job = J;
        fn into_step(self) -> Self {
            self
        }
    }
}
