//! Rules over several jobs: what the end of one means for its dependants, expansion, requeue and
//! detach, the order of pruning.
//!
//! They are written once, over [`Graph`], a small port that a store with rows and transactions can
//! implement: the memory driver and the SQLite driver do. A driver that moves many rows in one
//! statement, as the one for PostgreSQL, translates this text. The model of the conformance suite
//! is independent of it on purpose.
//!
//! All of a rule happens in the step that called it. An edge is closed at most once, so no
//! dependant is unblocked twice.

use crate::{
    JobId, NewJob, State, Timestamp,
    admin::{Prune, Requeue},
    error::Denied,
    export::EdgeState,
    flow::{Expansion, ResolvedEdges},
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

    /// Takes a terminal job out of its flow in the books of the store, with every edge that is still
    /// open at either end.
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
    /// What has to become of its parents.
    pub condition: Condition,
    /// What becomes of its dependants if it fails.
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

/// The job is done: dependants that wait for its success wait for one job less, and those that wait
/// for its failure are not needed.
///
/// # Errors
///
/// What the store answers.
pub fn succeeded<G: Graph>(graph: &mut G, job: G::Job, now: Timestamp) -> Result<(), G::Error> {
    // Most jobs have no dependants, and for them nothing is allocated.
    let (mut done, mut first) = (Vec::new(), Some(job));
    while let Some(job) = first.take().or_else(|| done.pop()) {
        let facts = graph.facts(job)?;
        free_keys(graph, job, &facts, State::Done)?;
        if facts.flow.is_some() {
            close_edges(graph, job, &EdgeState::Closed, &mut done, now)?;
        }
    }
    Ok(())
}

/// The job is dead-lettered or cancelled: its policy applies, and those of the jobs that are
/// cancelled because of it; failure jobs that waited for one of them are unblocked.
///
/// # Errors
///
/// What the store answers.
pub fn failed<G: Graph>(graph: &mut G, job: G::Job, now: Timestamp) -> Result<(), G::Error> {
    let facts = graph.facts(job)?;
    let state = graph.read(job, |life| life.state(now))?;
    free_keys(graph, job, &facts, state)?;
    if facts.flow.is_none() {
        return Ok(());
    }
    let root = graph.id(job)?;
    let mut failed = vec![(job, facts)];
    let mut next = 0;
    // POL-6: all cancellations come first, so the order of dependants makes no difference.
    while let Some(&(job, facts)) = failed.get(next) {
        let is_first = next == 0;
        next += 1;
        for job in cancelled_with(graph, job, &facts, is_first)? {
            let facts = graph.facts(job)?;
            // FAI-3
            if facts.condition == Condition::ParentsFailed {
                continue;
            }
            if graph.change(job, |life| life.cancel_after_failure(&root, now))? {
                free_keys(graph, job, &facts, State::Cancelled)?;
                failed.push((job, facts));
            }
        }
    }
    for (job, facts) in failed {
        let continues = facts.on_failure == FailurePolicy::Continue;
        spend_edges(graph, job, continues, now)?;
    }
    Ok(())
}

/// The jobs that have to be cancelled because this one failed, unless they have started or are
/// terminal.
fn cancelled_with<G: Graph>(
    graph: &G,
    job: G::Job,
    facts: &Facts<G::Flow>,
    is_first: bool,
) -> Result<Vec<G::Job>, G::Error> {
    match (facts.on_failure, facts.flow) {
        // POL-1, POL-4
        (FailurePolicy::Block, _) if is_first => Ok(Vec::new()),
        (FailurePolicy::Continue, _) | (FailurePolicy::FailFast, None) => Ok(Vec::new()),
        // POL-2
        (FailurePolicy::Block | FailurePolicy::Cancel, _) => {
            Ok(graph.dependants(job)?.into_iter().map(|(dependant, _)| dependant).collect())
        }
        // POL-3
        (FailurePolicy::FailFast, Some(flow)) => graph.not_started(flow),
    }
}

/// The job failed for good: failure jobs wait for it no longer, and if the flow `continues` neither
/// does any other dependant. Each reads the failure, whatever becomes of the job.
fn spend_edges<G: Graph>(
    graph: &mut G,
    job: G::Job,
    continues: bool,
    now: Timestamp,
) -> Result<(), G::Error> {
    let (state, reason) = graph.read(job, |life| (life.state(now), life.reason.clone()))?;
    let mut done = Vec::new();
    for (dependant, edge) in graph.dependants(job)? {
        let facts = graph.facts(dependant)?;
        // FAI-1, POL-4
        if continues || facts.condition == Condition::ParentsFailed {
            let spent = EdgeState::Spent { state, reason: reason.clone() };
            graph.close_edge(dependant, edge, spent)?;
            unblock(graph, dependant, facts.kind, &mut done, now)?;
        }
    }
    done.into_iter().try_for_each(|join| succeeded(graph, join, now))
}

/// Closes every open edge to a job that is done; joins that are done by that are added to `done`.
fn close_edges<G: Graph>(
    graph: &mut G,
    job: G::Job,
    state: &EdgeState,
    done: &mut Vec<G::Job>,
    now: Timestamp,
) -> Result<(), G::Error> {
    for (dependant, edge) in graph.dependants(job)? {
        let facts = graph.facts(dependant)?;
        graph.close_edge(dependant, edge, state.clone())?;
        match facts.condition {
            // FLO-1, FLO-2, FLO-8
            Condition::ParentsDone => unblock(graph, dependant, facts.kind, done, now)?,
            // FAI-2
            Condition::ParentsFailed => {
                let id = graph.id(job)?;
                graph.change(dependant, |life| life.cancel_as_not_needed(&id, now))?;
            }
        }
    }
    Ok(())
}

fn unblock<G: Graph>(
    graph: &mut G,
    job: G::Job,
    kind: JobKind,
    done: &mut Vec<G::Job>,
    now: Timestamp,
) -> Result<(), G::Error> {
    match graph.change(job, |life| life.unblock(kind, now))? {
        // FLO-6
        Some(State::Done) => done.push(job),
        // WAK-1
        Some(_) => graph.wake(job)?,
        None => {}
    }
    Ok(())
}

/// Passes on the success of members that are done as soon as they are stored, and wakes the workers
/// for the others that wait for no parent.
///
/// # Errors
///
/// What the store answers.
pub fn started<G: Graph>(
    graph: &mut G,
    members: &[G::Job],
    now: Timestamp,
) -> Result<(), G::Error> {
    let mut done = Vec::new();
    for &job in members {
        let (pending, is_done) = graph.read(job, |life| (life.pending, life.finish().is_some()))?;
        if is_done {
            done.push(job);
        } else if pending == 0 {
            graph.wake(job)?;
        }
    }
    done.into_iter().try_for_each(|job| succeeded(graph, job, now))
}

/// Frees the keys that are held until a job ends in `state`: its own, and, if it is the tail of its
/// flow, that of the job under whose id the flow began.
fn free_keys<G: Graph>(
    graph: &mut G,
    job: G::Job,
    facts: &Facts<G::Flow>,
    state: State,
) -> Result<(), G::Error> {
    for (job, hold) in keys_of(graph, job, facts)? {
        // KEY-4, KEY-5, KEY-7
        if hold.is_freed_by(state) {
            graph.free_key(job)?;
        }
    }
    Ok(())
}

/// The jobs whose keys this job stands for, and how long they are held.
fn keys_of<G: Graph>(
    graph: &G,
    job: G::Job,
    facts: &Facts<G::Flow>,
) -> Result<Vec<(G::Job, KeyHold)>, G::Error> {
    let mut keys: Vec<_> = facts.key.map(|hold| (job, hold)).into_iter().collect();
    if let Some(flow) = facts.flow
        && graph.tail(flow)? == job
        && let Some(first) = graph.first_tail(flow)?
        && first != job
        && let Some(hold) = graph.facts(first)?.key
    {
        keys.push((first, hold));
    }
    Ok(keys)
}

/// Cancels a job, or marks it if it is inflight; the state it is in then.
///
/// # Errors
///
/// [`Denied::WrongState`] if it is terminal; what the store answers.
pub fn cancel<G: Graph>(
    graph: &mut G,
    job: G::Job,
    now: Timestamp,
) -> Result<Result<State, Denied>, G::Error> {
    let cancelled = graph.change(job, |life| life.cancel(now))?;
    if cancelled == Ok(State::Cancelled) {
        failed(graph, job, now)?;
    }
    Ok(cancelled)
}

/// Cancels every member of a flow that is not terminal, or marks it if it is inflight; the state of
/// the tail then.
///
/// # Errors
///
/// [`Denied::WrongState`] of the tail if all members are terminal; what the store answers.
pub fn cancel_flow<G: Graph>(
    graph: &mut G,
    flow: G::Flow,
    now: Timestamp,
) -> Result<Result<State, Denied>, G::Error> {
    let members = graph.not_terminal(flow)?;
    let tail = graph.tail(flow)?;
    // CAN-8
    if members.is_empty() {
        return Ok(Err(Denied::WrongState(graph.read(tail, |life| life.state(now))?)));
    }
    for job in members {
        // CAN-7: no policy applies, so nothing travels along edges.
        if graph.change(job, |life| life.cancel(now))? == Ok(State::Cancelled) {
            let facts = graph.facts(job)?;
            free_keys(graph, job, &facts, State::Cancelled)?;
        }
    }
    Ok(Ok(graph.read(tail, |life| life.state(now))?))
}

/// Gives a dead-lettered or cancelled job another life, in its flow or detached from it; the state
/// it is in then.
///
/// # Errors
///
/// [`Denied`]; what the store answers.
pub fn requeue<G: Graph>(
    graph: &mut G,
    job: G::Job,
    request: &Requeue,
    now: Timestamp,
) -> Result<Result<State, Denied>, G::Error> {
    let state = graph.read(job, |life| life.state(now))?;
    // REQ-1
    if !matches!(state, State::Dlq | State::Cancelled) {
        return Ok(Err(Denied::WrongState(state)));
    }
    let facts = graph.facts(job)?;
    let is_over = is_flow_over_for(graph, job, &facts, now)?;
    // REQ-4
    if is_over && !request.detach {
        return Ok(Err(Denied::FlowOver));
    }
    let taken = keys_to_take(graph, job, &facts)?;
    for &key in &taken {
        // KEY-8
        if let Some(holder) = graph.key_taken_by(key, now)? {
            return Ok(Err(Denied::KeyHeld(holder)));
        }
    }
    if is_over {
        // REQ-5, REQ-6
        spend_edges(graph, job, true, now)?;
        graph.leave_flow(job)?;
    }
    taken.into_iter().try_for_each(|key| graph.hold_key(key))?;
    let requeued = graph.change(job, |life| life.requeue(request, facts.kind, now))?;
    match requeued {
        Ok(State::Done) => succeeded(graph, job, now)?,
        Ok(State::Blocked) | Err(_) => {}
        Ok(_) => graph.wake(job)?,
    }
    Ok(requeued)
}

/// The jobs whose keys a requeue of this job takes again.
fn keys_to_take<G: Graph>(
    graph: &G,
    job: G::Job,
    facts: &Facts<G::Flow>,
) -> Result<Vec<G::Job>, G::Error> {
    let keys = keys_of(graph, job, facts)?.into_iter();
    Ok(keys.filter(|(_, hold)| *hold == KeyHold::UntilTerminal).map(|(job, _)| job).collect())
}

/// Whether no member of its flow would use what the job produces: the flow's tail is done or
/// cancelled, or the job is a failure job that was not needed.
fn is_flow_over_for<G: Graph>(
    graph: &G,
    job: G::Job,
    facts: &Facts<G::Flow>,
    now: Timestamp,
) -> Result<bool, G::Error> {
    let Some(flow) = facts.flow else { return Ok(false) };
    let tail = graph.tail(flow)?;
    if tail == job {
        return Ok(false);
    }
    let ended = graph.read(tail, |life| life.state(now))?;
    // FAI-7: the edge of a failure job to a parent that is done is closed, and nothing opens it.
    let was_not_needed = facts.condition == Condition::ParentsFailed && graph.is_not_needed(job)?;
    Ok(was_not_needed || matches!(ended, State::Done | State::Cancelled))
}

/// Puts an expansion in the place of the job that is done by it.
///
/// # Errors
///
/// What the store answers.
pub fn expanded<G: Graph>(
    graph: &mut G,
    job: G::Job,
    expansion: Expansion,
    edges: &ResolvedEdges,
    now: Timestamp,
) -> Result<(), G::Error> {
    // EXP-1
    let flow = graph.own_flow(job, now)?;
    let mut jobs = expansion.jobs;
    // EXP-2: the dependants go by the policy of the job that they were given.
    if let Some(tail) = jobs.get_mut(edges.tail) {
        tail.on_failure = graph.facts(job)?.on_failure;
    }
    let members = graph.add_members(flow, jobs, edges, now)?;
    if let Some(&tail) = members.get(edges.tail) {
        graph.replace(job, tail)?;
        // EXP-5
        if graph.tail(flow)? == job {
            graph.set_tail(flow, tail)?;
        }
    }
    // EXP-4
    started(graph, &members, now)
}

/// Terminal records of a store, in the order in which they are pruned.
pub trait Shelf {
    /// A job without a flow, or a whole flow.
    type Unit;
    /// Why the store failed.
    type Error;

    /// Of the jobs without a flow and of the flows that ended in `state`, the ones that may go first,
    /// at most one of each: until when they are kept, their number in the order of insertion.
    fn oldest(
        &self,
        state: State,
    ) -> Result<[Option<(Timestamp, u64, Self::Unit)>; 2], Self::Error>;

    /// Removes a unit; how many jobs it had.
    fn remove(&mut self, unit: Self::Unit) -> Result<usize, Self::Error>;
}

/// Removes what is old enough, oldest first, until the limit is reached; how many jobs went.
///
/// # Errors
///
/// What the store answers.
pub fn prune<S: Shelf>(shelf: &mut S, request: &Prune) -> Result<usize, S::Error> {
    let mut removed = 0;
    while removed < request.limit {
        let mut oldest: Option<(Timestamp, u64, S::Unit)> = None;
        for state in [State::Done, State::Dlq, State::Cancelled] {
            let Some(before) = request.before(state) else { continue };
            // PRU-1, PRU-4
            for unit in shelf.oldest(state)?.into_iter().flatten() {
                let is_older =
                    oldest.as_ref().is_none_or(|(at, seq, _)| (unit.0, unit.1) < (*at, *seq));
                if unit.0 <= before && is_older {
                    oldest = Some(unit);
                }
            }
        }
        match oldest {
            Some((.., unit)) => removed += shelf.remove(unit)?,
            None => break,
        }
    }
    Ok(removed)
}
