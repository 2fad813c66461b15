//! Rules over several jobs: the effects of a terminal job on its dependants, expansion, requeue and
//! detach, the order of pruning.
//!
//! They are written once, over [`Graph`], a trait for stores with rows and transactions: the memory
//! driver and the SQLite driver implement it. The PostgreSQL driver, which changes many rows in one
//! statement, has the same rules in SQL. The model of the conformance suite is independent of this
//! code on purpose.
//!
//! A rule is applied in the same atomic step as the change that causes it. An edge is closed at
//! most once, so no dependant is unblocked twice.

mod manage;
mod port;
mod prune;

pub use manage::{cancel, cancel_flow, requeue};
pub use port::{Facts, Graph};
pub use prune::{Oldest, Shelf, prune};

use crate::{
    State, Timestamp,
    export::EdgeState,
    flow::{Expansion, ResolvedEdges},
    job::{Condition, FailurePolicy, JobKind, KeyHold},
};

/// Propagates the success of a job that is done. Its dependants wait for one parent less, and its
/// failure jobs are cancelled as not needed.
///
/// # Errors
///
/// What the store answers.
pub fn succeeded<G: Graph>(graph: &mut G, job: G::Job, now: Timestamp) -> Result<(), G::Error> {
    // Most jobs have no dependants, and for them nothing is allocated.
    propagate_success(graph, Some(job), Vec::new(), now)
}

/// The same for this job and then for these, in their order, and for the joins that are done by that.
fn propagate_success<G: Graph>(
    graph: &mut G,
    mut first: Option<G::Job>,
    mut done: Vec<G::Job>,
    now: Timestamp,
) -> Result<(), G::Error> {
    let mut next = 0;
    loop {
        let job = match (first.take(), done.get(next)) {
            (Some(job), _) => job,
            (None, Some(&job)) => {
                next += 1;
                job
            }
            (None, None) => return Ok(()),
        };
        let facts = graph.facts(job)?;
        free_keys(graph, job, &facts, State::Done)?;
        if facts.flow.is_some() {
            close_edges(graph, job, &mut done, now)?;
        }
    }
}

/// Propagates the failure of a job that was dead-lettered or cancelled. Its failure policy applies,
/// and so do those of the jobs that are cancelled because of it. Failure jobs that wait for these
/// jobs are unblocked when all their parents have failed.
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
        let is_last = facts.on_failure == FailurePolicy::FailFast;
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
        // Fail-fast cancels every member that another one could still cancel.
        if is_last {
            break;
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

/// The job has failed: failure jobs no longer wait for it and, if its policy is to continue, neither
/// do its other dependants. Each reads the failure, even if the job is requeued later.
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
    propagate_success(graph, None, done, now)
}

/// Closes every open edge to a job that is done; joins that are done by that are added to `done`.
fn close_edges<G: Graph>(
    graph: &mut G,
    job: G::Job,
    done: &mut Vec<G::Job>,
    now: Timestamp,
) -> Result<(), G::Error> {
    for (dependant, edge) in graph.dependants(job)? {
        let facts = graph.facts(dependant)?;
        graph.close_edge(dependant, edge, EdgeState::Closed)?;
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
    propagate_success(graph, None, done, now)
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
        // FAI-5
        graph.replace(job, tail)?;
        // EXP-5
        if graph.tail(flow)? == job {
            graph.set_tail(flow, tail)?;
        }
    }
    // EXP-4
    started(graph, &members, now)
}
