//! Storing sets: one call for all unrelated jobs that stand together, one for each flow.

use std::collections::HashSet;

use taskharbor_core::{
    CheckedSet, DriverError, Enqueue, Enqueued, FailurePolicy, FlowName, IdempotencyKey, JobId,
    JobSet, Limits, NewJob, QueueName, Rejected, SetKind, Shape, Timestamp,
};

use crate::{
    answer::{self, Verdict},
    column::{Columns, key_hold, place},
    statement::Statements,
    value::Value,
};

/// The answers to the sets of a call.
pub(crate) type Answered = Vec<Result<Vec<Enqueued>, Rejected>>;

/// Sets that can be stored by one statement.
#[derive(Debug)]
pub(crate) enum Part<'a> {
    /// Unrelated jobs, and the set of each; and whether ids or keys occur twice among them.
    Plain { jobs: Vec<(usize, &'a NewJob)>, repeats: bool },
    /// A flow.
    Flow { set: usize, jobs: &'a [NewJob], name: Option<&'a str>, shape: Shape },
}

/// Sorts the sets of a call into what can be stored by one statement each, in their order. Sets
/// that break a rule are answered here.
pub(crate) fn parts<'a>(request: &'a Enqueue, limits: &Limits) -> (Vec<Part<'a>>, Answered) {
    let (mut parts, mut answers) = (Vec::new(), Vec::with_capacity(request.sets.len()));
    for (at, set) in request.sets.iter().enumerate() {
        match set.check(limits) {
            Ok(CheckedSet::Plain) => {
                let jobs = set.jobs.iter().map(|job| (at, job));
                match parts.last_mut() {
                    Some(Part::Plain { jobs: together, .. }) => together.extend(jobs),
                    _ => parts.push(Part::Plain { jobs: jobs.collect(), repeats: false }),
                }
                answers.push(Ok(Vec::with_capacity(set.jobs.len())));
            }
            Ok(CheckedSet::Flow(shape)) => {
                parts.push(Part::Flow { set: at, jobs: &set.jobs, name: name(set), shape });
                answers.push(Ok(Vec::with_capacity(set.jobs.len())));
            }
            Err(rejected) => answers.push(Err(rejected)),
        }
    }
    parts.retain(|part| !matches!(part, Part::Plain { jobs, .. } if jobs.is_empty()));
    for part in &mut parts {
        if let Part::Plain { jobs, repeats } = part {
            *repeats = has_repeats(jobs);
        }
    }
    (parts, answers)
}

fn name(set: &JobSet) -> Option<&str> {
    match &set.kind {
        SetKind::Flow { name } => name.as_ref().map(FlowName::as_str),
        SetKind::Plain => None,
    }
}

impl Part<'_> {
    /// The jobs.
    pub(crate) fn jobs(&self) -> Vec<&NewJob> {
        match self {
            Part::Plain { jobs, .. } => jobs.iter().map(|(_, job)| *job).collect(),
            Part::Flow { jobs, .. } => jobs.iter().collect(),
        }
    }

    /// The statement that stores it, and what it is given.
    pub(crate) fn statement<'a>(
        &'a self,
        columns: &'a Columns<'_>,
        statements: &'a Statements,
        now: Timestamp,
        channel: Option<&'a str>,
    ) -> (&'a str, Vec<Value<'a>>) {
        let mut values = vec![Value::BigInt(Some(now.as_micros()))];
        let sql = match self {
            Part::Plain { repeats, .. } => {
                values.push(Value::Bool(*repeats));
                values.extend(columns.common());
                values.extend([columns.keys(), columns.key_holds()]);
                &statements.enqueue
            }
            Part::Flow { jobs, name, shape, .. } => {
                let tail = &jobs[shape.tail];
                let key = tail.idempotency_key.as_ref().map(IdempotencyKey::as_str);
                let (children, parents) = edges(shape);
                values.push(Value::Text(*name));
                values.extend(columns.common());
                values.extend([
                    columns.kinds(),
                    Value::Text(key),
                    Value::Text(key_hold(tail)),
                    Value::BigInt(place(shape.tail)),
                    Value::BigInts(children),
                    Value::BigInts(parents),
                ]);
                &statements.enqueue_flow
            }
        };
        values.push(Value::Text(channel));
        (sql, values)
    }

    /// Whether there is a shorter way to store it: see [`short_cut`].
    pub(crate) fn has_short_cut(&self) -> bool {
        let Part::Plain { jobs, repeats: false } = self else { return false };
        jobs.iter().all(|(_, job)| job.idempotency_key.is_none())
    }

    /// Adds what became of its jobs to the answers; answers the queues in which there is work now.
    pub(crate) fn conclude(
        &self,
        verdicts: Vec<Verdict>,
        answers: &mut Answered,
    ) -> Result<Vec<QueueName>, DriverError> {
        match self {
            Part::Plain { jobs, .. } => {
                let mut existing: Vec<Option<JobId>> = vec![None; jobs.len()];
                for verdict in &verdicts {
                    if let Some(place) = verdict.at().and_then(|at| existing.get_mut(at)) {
                        *place = answer::optional_id(verdict.detail.as_deref())?;
                    }
                }
                let mut wakes = Vec::new();
                for ((set, job), existing) in jobs.iter().zip(existing) {
                    let Ok(answered) = &mut answers[*set] else { continue };
                    if existing.is_none() && wakes.last() != Some(&job.queue) {
                        wakes.push(job.queue.clone());
                    }
                    answered.push(match existing {
                        Some(id) => Enqueued::Existing(id),
                        None => Enqueued::Inserted(job.id.clone()),
                    });
                }
                Ok(wakes)
            }
            Part::Flow { set, jobs, .. } => {
                let verdict = verdicts.into_iter().next();
                let verdict = verdict.ok_or_else(|| answer::unknown("answer", "nothing"))?;
                let id = answer::optional_id(verdict.detail.as_deref())?;
                let all = |of: fn(JobId) -> Enqueued| jobs.iter().map(move |it| of(it.id.clone()));
                answers[*set] = match (verdict.verdict.as_deref(), id) {
                    (Some("inserted"), _) => Ok(all(Enqueued::Inserted).collect()),
                    (Some("existing"), None) => Ok(all(Enqueued::Existing).collect()),
                    (Some("existing"), Some(holder)) => {
                        Ok(vec![Enqueued::Existing(holder); jobs.len()])
                    }
                    (Some("overlap"), Some(job)) => Err(Rejected::Overlap { job }),
                    (other, _) => {
                        return Err(answer::unknown("verdict", other.unwrap_or_default()));
                    }
                };
                Ok(answer::queues(verdict.wakes))
            }
        }
    }
}

/// A shorter way to store jobs: a statement that fails if one of them is stored already, and else
/// has nothing to answer.
pub(crate) fn short_cut<'a>(
    columns: &'a Columns<'_>,
    statements: &'a Statements,
    now: Timestamp,
) -> (&'a str, Vec<Value<'a>>) {
    let mut values = vec![Value::BigInt(Some(now.as_micros()))];
    if columns.jobs.iter().all(|job| is_bare(job)) {
        values.extend(columns.bare());
        return (&statements.enqueue_bare, values);
    }
    values.extend(columns.common());
    (&statements.enqueue_plain, values)
}

/// Whether nothing was said about when, how long or how often it may run, nor what if it fails.
fn is_bare(job: &NewJob) -> bool {
    job.priority == 0
        && job.run_at.is_none()
        && job.timeout.is_none()
        && job.max_attempts.is_none()
        && job.on_failure == FailurePolicy::Hold
}

/// Whether an id, or a key in its queue, occurs twice.
fn has_repeats(jobs: &[(usize, &NewJob)]) -> bool {
    let (mut ids, mut keys) = (HashSet::with_capacity(jobs.len()), HashSet::new());
    jobs.iter().any(|(_, job)| {
        let key = job.idempotency_key.as_ref();
        !ids.insert(&job.id) || key.is_some_and(|key| !keys.insert((&job.queue, key)))
    })
}

/// The edges of a shape as two columns of positions, the parents of each child in declared order.
pub(crate) fn edges(shape: &Shape) -> (Vec<Option<i64>>, Vec<Option<i64>>) {
    let edges = shape.parents.iter().enumerate();
    edges
        .flat_map(|(child, parents)| {
            parents.iter().map(move |parent| (place(child), place(*parent)))
        })
        .unzip()
}
