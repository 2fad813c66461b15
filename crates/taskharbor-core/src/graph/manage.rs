//! Cancelling and requeueing, as far as other jobs are concerned.

use super::{Facts, Graph, failed, free_keys, keys_of, spend_edges, succeeded};
use crate::{
    State, Timestamp,
    admin::Requeue,
    error::Denied,
    job::{Condition, KeyHold},
};

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
        // FAI-6, CAN-7: no policy applies, so nothing travels along edges.
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
    // REQ-7
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

/// Whether it is too late for the job in its flow: it is a failure job that was not needed, or the
/// flow's tail is done or cancelled and the job is not a failure job that was unblocked.
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
    if facts.condition == Condition::ParentsFailed {
        // FAI-7: the edge of a failure job to a parent that is done is closed, and nothing opens it.
        if graph.is_not_needed(job)? {
            return Ok(true);
        }
        // FAI-8
        if graph.read(job, |life| life.pending)? == 0 {
            return Ok(false);
        }
    }
    let ended = graph.read(tail, |life| life.state(now))?;
    Ok(matches!(ended, State::Done | State::Cancelled))
}
