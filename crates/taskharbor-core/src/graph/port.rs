//! [`Graph`]: what a store offers to the rules over several jobs.

use crate::{
    JobId, NewJob, Timestamp,
    export::EdgeState,
    flow::ResolvedEdges,
    job::{Condition, FailurePolicy, JobKind, KeyHold},
    life::Life,
};

/// The stored jobs and edges that the rules walk over.
pub trait Graph {
    /// Names a stored job inside one step.
    type Job: Copy + Eq;
    /// Names a stored flow inside one step.
    type Flow: Copy + Eq;
    /// Why the store failed; the step is then undone as a whole.
    type Error;

    /// What the rules need to know of a job that does not change.
    fn facts(&self, job: Self::Job) -> Result<Facts<Self::Flow>, Self::Error>;

    /// The id of a job.
    fn id(&self, job: Self::Job) -> Result<JobId, Self::Error>;

    /// Reads a job's life.
    fn read<T>(&self, job: Self::Job, read: impl FnOnce(&Life) -> T) -> Result<T, Self::Error>;

    /// Changes a job's life, and everything in the store that follows from it: positions, counts,
    /// the end of its flow.
    fn change<T>(
        &mut self,
        job: Self::Job,
        change: impl FnOnce(&mut Life) -> T,
    ) -> Result<T, Self::Error>;

    /// The dependants of a job whose edges to it are open, and which of their edges each is, in the
    /// order of insertion.
    fn dependants(&self, job: Self::Job) -> Result<Vec<(Self::Job, usize)>, Self::Error>;

    /// Closes one edge of a job.
    fn close_edge(
        &mut self,
        job: Self::Job,
        edge: usize,
        state: EdgeState,
    ) -> Result<(), Self::Error>;

    /// The members of a flow that are ready, scheduled or blocked, in the order of insertion.
    fn not_started(&self, flow: Self::Flow) -> Result<Vec<Self::Job>, Self::Error>;

    /// The members of a flow that are not terminal, in the order of insertion.
    fn not_terminal(&self, flow: Self::Flow) -> Result<Vec<Self::Job>, Self::Error>;

    /// The member whose output is the flow's.
    fn tail(&self, flow: Self::Flow) -> Result<Self::Job, Self::Error>;

    /// The job under whose id the flow began: its first tail, or the job that expanded into it.
    fn first_tail(&self, flow: Self::Flow) -> Result<Option<Self::Job>, Self::Error>;

    /// Frees the key of a job, if it holds one.
    fn free_key(&mut self, job: Self::Job) -> Result<(), Self::Error>;

    /// The job that holds the key of `job`, if another does at `now`.
    fn key_taken_by(&self, job: Self::Job, now: Timestamp) -> Result<Option<JobId>, Self::Error>;

    /// Lets a job hold its key, which is free.
    fn hold_key(&mut self, job: Self::Job) -> Result<(), Self::Error>;

    /// Takes a terminal job out of its flow: [`Life::detach`] on its life, no flow in its record, and no
    /// edge open at either end.
    fn leave_flow(&mut self, job: Self::Job) -> Result<(), Self::Error>;

    /// Whether an edge of this failure job is closed because the parent is done.
    fn is_not_needed(&self, job: Self::Job) -> Result<bool, Self::Error>;

    /// The flow of a job; one that begins now, under the job's id and with the job as its tail, if
    /// the job has none.
    fn own_flow(&mut self, job: Self::Job, now: Timestamp) -> Result<Self::Flow, Self::Error>;

    /// Stores members of a flow with their edges.
    fn add_members(
        &mut self,
        flow: Self::Flow,
        jobs: Vec<NewJob>,
        edges: &ResolvedEdges,
        now: Timestamp,
    ) -> Result<Vec<Self::Job>, Self::Error>;

    /// Moves every open edge that leads to `job` over to `tail`, and lets readers of the output of
    /// `job` find that of `tail`.
    fn replace(&mut self, job: Self::Job, tail: Self::Job) -> Result<(), Self::Error>;

    /// Changes which member's output is the flow's.
    fn set_tail(&mut self, flow: Self::Flow, tail: Self::Job) -> Result<(), Self::Error>;

    /// Wakes the workers that wait for jobs in the queue of this job.
    fn wake(&mut self, job: Self::Job) -> Result<(), Self::Error>;
}

/// What the rules need to know of a job that does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts<F> {
    /// A worker's job, or a join.
    pub kind: JobKind,
    /// The condition on its parents.
    pub condition: Condition,
    /// Its failure policy: what happens to its dependants if it fails.
    pub on_failure: FailurePolicy,
    /// How long its key is held, if it was enqueued with one.
    pub key: Option<KeyHold>,
    /// Its flow.
    pub flow: Option<F>,
}

impl<F> Facts<F> {
    /// These facts.
    #[must_use]
    pub const fn new(
        kind: JobKind,
        condition: Condition,
        on_failure: FailurePolicy,
        key: Option<KeyHold>,
        flow: Option<F>,
    ) -> Self {
        Self { kind, condition, on_failure, key, flow }
    }
}
