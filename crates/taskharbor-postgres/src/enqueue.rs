//! Storing sets: one call for all unrelated jobs that stand together, one for each flow.

use std::{collections::HashSet, sync::atomic::Ordering};

use crate::{
    PostgresDriver,
    answer::{self, AnswerRow},
    column::{Columns, key_hold, key_time, place},
    error, held,
    statement::Statements,
    storing::{self, LOCK_WAIT_MS},
    tx,
    value::Value,
    wake::Work,
};
use taskharbor_core::{
    DriverError, JobId, NewJob, Timestamp,
    driver::{Answers, Enqueue, Enqueued, Limits},
    error::Rejected,
    flow::{CheckedSet, ResolvedEdges},
    job::{FailurePolicy, JobSet, KeyHold, SetKind},
    name::{FlowName, IdempotencyKey},
};

/// The answers to the sets of a call.
type Answered = Vec<Result<Vec<Enqueued>, Rejected>>;

/// Sets that can be stored by one statement.
#[derive(Debug)]
enum Part<'a> {
    /// Unrelated jobs, and the set of each; and how they are sent.
    Plain { jobs: Vec<(usize, &'a NewJob)>, order: Order },
    /// A flow.
    Flow { set: usize, jobs: &'a [NewJob], name: Option<&'a str>, shape: ResolvedEdges },
}

/// How unrelated jobs are sent: sorted by id, so concurrent calls cannot deadlock.
#[derive(Debug, Default)]
struct Order {
    /// Whether ids or keys occur twice, and it matters which came first.
    repeats: bool,
    /// The positions of the jobs in the order in which they are sent; empty if that is as given.
    sent: Vec<usize>,
}

impl Order {
    fn of(jobs: &[(usize, &NewJob)]) -> Self {
        let repeats = has_repeats(jobs);
        if !repeats && jobs.is_sorted_by_key(|(_, job)| &job.id) {
            return Self::default();
        }
        let mut sent: Vec<usize> = (0..jobs.len()).collect();
        sent.sort_by_key(|at| &jobs[*at].1.id);
        Self { repeats, sent }
    }

    /// The position of the job that was sent at this one.
    fn given(&self, sent: usize) -> usize {
        self.sent.get(sent).copied().unwrap_or(sent)
    }

    fn places(&self) -> Value<'static> {
        Value::BigInts(self.sent.iter().map(|at| place(*at)).collect())
    }
}

impl PostgresDriver {
    pub(crate) async fn enqueue_sets(&self, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        request.check()?;
        let shared = &self.shared;
        let (parts, mut answers) = parts(&request, &shared.limits);
        for part in parts {
            let call = shared.begin_storing(&part.jobs()).await?;
            let verdicts = self.store(&part, request.now, call.channel).await;
            let (verdicts, announcement) = call.answered(verdicts)?;
            let stored = part.conclude(verdicts, &mut answers, request.now)?;
            announcement.send(stored, request.now);
        }
        Ok(answers)
    }

    /// Stores sets in the application's transaction, whose commit wakes workers.
    pub(crate) async fn enqueue_in(
        &self,
        transaction: &mut impl tx::Statements,
        request: Enqueue,
    ) -> Answers<Vec<Enqueued>, Rejected> {
        request.check()?;
        let shared = &self.shared;
        let (parts, mut answers) = parts(&request, &shared.limits);
        for part in parts {
            let columns = part.columns()?;
            let (sql, mut values) = part.statement(&columns, &shared.statements, request.now, None);
            values.push(Value::Text(shared.channel_in_transactions()));
            let verdicts = tx::run(transaction, sql, &values).await?;
            part.conclude(verdicts, &mut answers, request.now)?;
        }
        Ok(answers)
    }

    /// Stores a part of a call, and tells others so if a channel is given.
    async fn store(
        &self,
        part: &Part<'_>,
        now: Timestamp,
        channel: Option<&str>,
    ) -> Result<Vec<AnswerRow>, DriverError> {
        let shared = &self.shared;
        let columns = part.columns()?;
        let may_be_short = channel.is_none()
            && shared.session.prepares()
            && shared.inserts_directly.load(Ordering::Relaxed);
        if may_be_short
            && let Some((sql, values)) = part.fast_path(&columns, &shared.statements, now)
        {
            match self.verdicts(sql, &values).await {
                Err(error) if error::is_duplicate(&error) => {}
                // The role of a producer may only call the function.
                Err(error) if error.is_not_allowed() => {
                    shared.inserts_directly.store(false, Ordering::Relaxed);
                }
                verdicts => return verdicts,
            }
        }
        let (sql, values) = part.statement(&columns, &shared.statements, now, LOCK_WAIT_MS);
        let rows = self.query_notifying(sql, values, channel).await?;
        rows.iter().map(AnswerRow::read).collect()
    }
}

/// Sorts the sets of a call into what can be stored by one statement each, in their order. Sets
/// that break a rule are answered here: JOB-2, JOB-5, FLO-3, FLO-9, FAI-4, KEY-11.
fn parts<'a>(request: &'a Enqueue, limits: &Limits) -> (Vec<Part<'a>>, Answered) {
    let (mut parts, mut answers) = (Vec::new(), Vec::with_capacity(request.sets.len()));
    for (at, set) in request.sets.iter().enumerate() {
        match set.check(limits) {
            Ok(CheckedSet::Plain) => {
                let jobs = || set.jobs.iter().map(|job| (at, job));
                let alone = |jobs| Part::Plain { jobs, order: Order::default() };
                match parts.last_mut() {
                    // A job whose key is free at once leaves it to the next: they are stored one
                    // after another.
                    _ if jobs().any(|(_, job)| is_key_free_at(job, request.now)) => {
                        parts.extend(jobs().map(|job| alone(vec![job])));
                        parts.push(alone(Vec::new()));
                    }
                    Some(Part::Plain { jobs: together, .. }) => together.extend(jobs()),
                    _ => parts.push(alone(jobs().collect())),
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
        if let Part::Plain { jobs, order } = part {
            *order = Order::of(jobs);
        }
    }
    (parts, answers)
}

pub(crate) fn name(set: &JobSet) -> Option<&str> {
    match &set.kind {
        SetKind::Flow { name } => name.as_ref().map(FlowName::as_str),
        SetKind::Plain => None,
    }
}

impl Part<'_> {
    /// The jobs, as given.
    fn jobs(&self) -> Vec<&NewJob> {
        match self {
            Part::Plain { jobs, .. } => jobs.iter().map(|(_, job)| *job).collect(),
            Part::Flow { jobs, .. } => jobs.iter().collect(),
        }
    }

    /// The jobs as they are sent, column by column.
    fn columns(&self) -> Result<Columns<'_>, DriverError> {
        Columns::of(match self {
            Part::Plain { jobs, order } => {
                (0..jobs.len()).map(|sent| jobs[order.given(sent)].1).collect()
            }
            Part::Flow { .. } => self.jobs(),
        })
    }

    /// The statement that stores it, and what it is given but the channel. It waits so long for transactions that have
    /// stored the same jobs or taken the same keys, or as long as its own transaction does.
    fn statement<'a>(
        &'a self,
        columns: &'a Columns<'_>,
        statements: &'a Statements,
        now: Timestamp,
        wait_ms: Option<i64>,
    ) -> (&'a str, Vec<Value<'a>>) {
        let mut values = vec![Value::BigInt(Some(now.as_micros()))];
        let sql = match self {
            Part::Plain { order, .. } => {
                values.extend([Value::Bool(order.repeats), order.places()]);
                values.extend(columns.common());
                values.extend([columns.keys(), columns.key_holds(), columns.key_times()]);
                &statements.enqueue
            }
            Part::Flow { jobs, name, shape, .. } => {
                let tail = &jobs[shape.tail];
                let key = tail.idempotency_key.as_ref().map(IdempotencyKey::as_str);
                let [children, parents, runs] = edges(shape);
                values.push(Value::Text(*name));
                values.extend(columns.common());
                values.extend([
                    columns.kinds(),
                    Value::Text(key),
                    Value::Text(key_hold(tail)),
                    Value::BigInt(key_time(tail)),
                    Value::BigInt(place(shape.tail)),
                    Value::BigInts(children),
                    Value::BigInts(parents),
                    Value::BigInts(runs),
                ]);
                &statements.enqueue_flow
            }
        };
        values.push(Value::BigInt(wait_ms));
        (sql, values)
    }

    /// A shorter way to store it, if there is one: a statement that fails if something is stored already,
    /// and else has nothing to answer.
    fn fast_path<'a>(
        &'a self,
        columns: &'a Columns<'_>,
        statements: &'a Statements,
        now: Timestamp,
    ) -> Option<(&'a str, Vec<Value<'a>>)> {
        let Part::Plain { jobs, order } = self else { return None };
        // A call that may have to wait for another transaction uses the function, which does not wait for long.
        let may_wait = |job: &NewJob| held::may_wait(job) || job.key_hold != KeyHold::UntilPruned;
        if order.repeats || jobs.iter().any(|(_, job)| may_wait(job)) {
            return None;
        }
        let mut values = vec![Value::BigInt(Some(now.as_micros())), order.places()];
        if columns.jobs.iter().all(|job| has_default_options(job)) {
            values.extend(columns.bare());
            return Some((&statements.enqueue_bare, values));
        }
        values.extend(columns.common());
        Some((&statements.enqueue_plain, values))
    }

    /// Adds the results of its jobs to the answers; returns which queues have work now, or later.
    fn conclude(
        &self,
        verdicts: Vec<AnswerRow>,
        answers: &mut Answered,
        now: Timestamp,
    ) -> Result<Vec<Work>, DriverError> {
        match self {
            Part::Plain { jobs, order } => {
                let mut existing: Vec<Option<JobId>> = vec![None; jobs.len()];
                for verdict in &verdicts {
                    let at = verdict.at().map(|sent| order.given(sent));
                    if let Some(place) = at.and_then(|at| existing.get_mut(at)) {
                        *place = answer::optional_id(verdict.detail.as_deref())?;
                    }
                }
                let mut stored: Vec<Work> = Vec::new();
                for ((set, job), existing) in jobs.iter().zip(existing) {
                    let Ok(answered) = &mut answers[*set] else { continue };
                    if existing.is_none() {
                        storing::add_work(&mut stored, job, now);
                    }
                    answered.push(match existing {
                        Some(id) => Enqueued::Existing(id),
                        None => Enqueued::Inserted(job.id.clone()),
                    });
                }
                Ok(stored)
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
                Ok(answer::queues(verdict.wakes).into_iter().map(Work::new).collect())
            }
        }
    }
}

/// Payloads of more bytes than this are known to be large where jobs stand in line.
const LARGE: usize = 65_536;

/// Whether it is not large, and nothing was said about when, how long or how often it may run, nor
/// what if it fails.
fn has_default_options(job: &NewJob) -> bool {
    job.payload.len() <= LARGE
        && job.priority == 0
        && job.run_at.is_none()
        && job.timeout.is_none()
        && job.max_attempts.is_none()
        && job.on_failure == FailurePolicy::Block
        && job.lane.is_none()
}

/// Whether a key that the job takes at this instant is held for no time at all, since there is no
/// later instant. KEY-10.
pub(crate) fn is_key_free_at(job: &NewJob, now: Timestamp) -> bool {
    job.idempotency_key.is_some() && job.key_hold.held_until(now) == Some(now)
}

/// Whether an id, or a key in its queue, occurs twice.
fn has_repeats(jobs: &[(usize, &NewJob)]) -> bool {
    let (mut ids, mut keys) = (HashSet::with_capacity(jobs.len()), HashSet::new());
    jobs.iter().any(|(_, job)| {
        let key = job.idempotency_key.as_ref();
        !ids.insert(&job.id) || key.is_some_and(|key| !keys.insert((&job.queue, key)))
    })
}

/// Edges as they are sent: children, parents, and how many parents follow from each on.
pub(crate) fn edges(shape: &ResolvedEdges) -> [Vec<Option<i64>>; 3] {
    let mut edges = [Vec::new(), Vec::new(), Vec::new()];
    for (child, parents) in shape.parents.iter().enumerate() {
        for run in parents.chunk_by(|before, after| *after == before + 1) {
            let values = [place(child), place(run[0]), i64::try_from(run.len()).ok()];
            for (column, value) in edges.iter_mut().zip(values) {
                column.push(value);
            }
        }
    }
    edges
}
