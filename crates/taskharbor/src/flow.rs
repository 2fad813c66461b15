//! [`Flow`]: jobs that wait for each other, as a value that is started or returned by a handler.
//!
//! A flow knows what it takes and what it produces, so that a step which does not fit the one
//! before it does not compile. Nothing is encoded until it is known with which codec: a flow that
//! a handler returns is written as the handler's own job was.

mod each;
mod failure;
pub(crate) mod graph;
pub mod json;
mod plan;
pub(crate) mod read;
mod shape;

use std::{fmt, marker::PhantomData};

use taskharbor_core::{
    NewJob, Timestamp,
    job::{FailurePolicy, Headers},
};

use crate::{Job, Options, Step, codec::Format, draft::InvalidJob};

pub(crate) use each::is_each;
pub use each::{Each, Inputs};
pub use failure::Failure;
pub use graph::{FlowMember, FlowTree};
use plan::Plan;
pub(crate) use plan::{AFTER_FAILURE_OF, INPUT};
pub(crate) use shape::Shape;

/// Jobs that wait for each other; `O` is what the last one produces, `I` what the first ones take.
///
/// A job is a flow of one step. Flows are put together with [`Flow::then`], [`Flow::group`] and the
/// others, in any depth and order, and each is as good a step as a job:
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

/// What a step takes, if the step before it produces an `O`: `O` itself, or, if that is a list,
/// [`Each`] of it one by one.
#[diagnostic::on_unimplemented(
    message = "this step takes `{Self}`, but the one before it produces `{O}`",
    label = "the steps do not fit together",
    note = "put a step between them that takes `{O}` and produces `{Self}`"
)]
pub trait ProducedBy<O> {}

impl<O> ProducedBy<O> for O {}
impl<T> ProducedBy<Vec<T>> for Each<T> {}

/// The input of what can be run by itself: none.
#[diagnostic::on_unimplemented(
    message = "this takes the output of a step before it, which is `{Self}`, and cannot be run by itself",
    label = "nobody has produced its input",
    note = "make it a step of a flow: `client.start(Flow::first(…).then(…))`, after one that produces `{Self}`"
)]
pub trait NoInput {}

impl NoInput for () {}

/// What a job that runs because a flow failed may take: the [`Failure`], or nothing.
#[diagnostic::on_unimplemented(
    message = "a job that runs because a flow failed takes the `Failure` or nothing, but this one takes `{Self}`",
    label = "nobody produces its input",
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
    /// A flow that starts with this.
    pub fn first<F: IntoFlow>(first: F) -> Flow<F::Output, F::Input> {
        first.into_flow()
    }

    /// One after another; each takes what the one before it produced, so all take and produce the
    /// same. Without any it is the step that hands on what it is given. Steps of different types
    /// are chained with [`Flow::then`].
    pub fn chain<F>(steps: impl IntoIterator<Item = F>) -> Flow<F::Output, F::Input>
    where
        F: IntoFlow,
        F::Input: ProducedBy<F::Output>,
    {
        let steps = steps.into_iter().map(|step| step.into_flow().plan);
        Flow::of(steps.reduce(Plan::then).unwrap_or_else(|| Plan::all([], Shape::First)))
    }

    /// All at once. It produces what they produce, in their order, when the last of them is done;
    /// without any at once.
    pub fn group<F: IntoFlow>(
        members: impl IntoIterator<Item = F>,
    ) -> Flow<Vec<F::Output>, F::Input> {
        Flow::of(Plan::all(plans(members), Shape::List))
    }

    /// As [`Flow::group`], but what comes next runs whatever becomes of the members, and sees each
    /// one's fate.
    ///
    /// A member that is a flow has failed when its last step has, so its other steps get the policy
    /// [`FailurePolicy::Cancel`] unless they have one of their own.
    pub fn gather<F: IntoFlow>(
        members: impl IntoIterator<Item = F>,
    ) -> Flow<Vec<Result<F::Output, Failure>>, F::Input> {
        Flow::of(Plan::gather(plans(members)))
    }

    /// Two that are unlike, at once; it produces both outputs.
    pub fn join<A, B>(a: A, b: B) -> Flow<(A::Output, B::Output), A::Input>
    where
        A: IntoFlow,
        B: IntoFlow<Input = A::Input>,
    {
        Flow::of(Plan::all([a.into_flow().plan, b.into_flow().plan], Shape::List))
    }

    /// All at once, and when the last of them is done the finalizer, which takes what they
    /// produced in their order: a [`Flow::group`] and then the finalizer.
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

impl<O, I> Flow<O, I> {
    const fn of(plan: Plan) -> Self {
        Self { plan, types: PhantomData }
    }

    /// Then this, which takes what the flow so far produces.
    pub fn then<N>(self, next: N) -> Flow<N::Output, I>
    where
        N: IntoFlow,
        N::Input: ProducedBy<O>,
    {
        Flow::of(self.plan.then(next.into_flow().plan))
    }

    /// The same, but what it produces is dropped: the next step takes nothing.
    pub fn discard(self) -> Flow<(), I> {
        Flow::of(Plan::all([self.plan], Shape::Discard))
    }

    /// What becomes of those that wait for a step of this flow if it fails. It holds for all steps so
    /// far that have no policy of their own, and likewise for what they grow into; there
    /// [`FailurePolicy::Continue`] is of the last step, and the others are cancelled. Defaults to
    /// [`FailurePolicy::Block`].
    pub fn policy(mut self, policy: FailurePolicy) -> Self {
        self.plan.default_policy(policy);
        self
    }

    /// What people call this part of the flow: the label of its last step, or of the group that it
    /// is. A single job gets one with [`Options::label`].
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.plan.label_tail(label.into());
        self
    }

    /// Runs this job if the flow so far fails: if its last step is dead-lettered, or cancelled
    /// because another failed. It takes the [`Failure`] or nothing; what it produces is dropped.
    ///
    /// The flow's steps get the policy [`FailurePolicy::Cancel`] unless they have one of their own,
    /// since a flow that is held has not failed; before or after this, [`Flow::policy`] means the
    /// same. Fail-fast would cancel the job along with the rest, so in all of a flow that has such a
    /// job somewhere it is taken for cancel; a job with fail-fast that *grows* into such a flow keeps it,
    /// and the failure job in there may be cancelled. A flow that was cancelled by a person does not run it. While
    /// nothing fails, the job is stored with the flow and waits; when the flow is done a worker of
    /// the job's queue marks it done without running it, and then the flow is over: somebody has to
    /// serve that queue and know the job. See `docs/guides/workflows.md` and
    /// `docs/adr/0012-failure-jobs.md`.
    pub fn on_failure<N>(self, job: N) -> Self
    where
        N: IntoStep,
        N::Input: TakesFailure,
    {
        Self::of(self.plan.on_failure(job.into_plan()))
    }

    /// The same jobs, whose output is looked at as bytes.
    pub(crate) fn untyped<B>(self) -> Flow<B, I> {
        Flow::of(self.plan)
    }

    /// The same jobs, which take nothing.
    pub(crate) fn taking_nothing(self) -> Flow<O>
    where
        I: NoInput,
    {
        Flow::of(self.plan)
    }

    /// How many jobs it has, those included that the store completes by itself.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a flow has at least one job")]
    pub fn len(&self) -> usize {
        self.plan.len()
    }

    /// The same jobs, in the place of one with these headers that grew into them.
    pub(crate) fn in_place_of(mut self, grower: &Headers) -> Self {
        self.plan.in_place_of(grower);
        self
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
        f.debug_tuple("Flow").field(&self.plan).finish()
    }
}

/// A single step: a job, or a job with options.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a single job",
    note = "give a job or `job.with(options)`; a job may grow into a flow by returning one"
)]
pub trait IntoStep: IntoFlow + single::Single {}

impl<J: Job> IntoStep for J {}
impl<J: Job> IntoStep for Step<J> {}

/// Keeps flows from being steps, and the plan private.
mod single {
    use super::{Job, Plan, Step};
    use crate::Options;

    pub trait Single {
        #[doc(hidden)]
        #[expect(private_interfaces, reason = "nobody outside can name the trait")]
        fn into_plan(self) -> Plan;
    }

    impl<J: Job> Single for J {
        #[expect(private_interfaces, reason = "nobody outside can name the trait")]
        fn into_plan(self) -> Plan {
            Plan::of(self.with(Options::new()))
        }
    }

    impl<J: Job> Single for Step<J> {
        #[expect(private_interfaces, reason = "nobody outside can name the trait")]
        fn into_plan(self) -> Plan {
            Plan::of(self)
        }
    }
}
