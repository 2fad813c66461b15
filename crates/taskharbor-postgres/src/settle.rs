//! Recording what became of inflight jobs: what is sent and what the answers mean.

use taskharbor_core::{
    DriverError, NewJob, Text, Timestamp,
    driver::{Limits, Settle, Settled, Settlement, Transition},
    error::{InvalidTransition, Refusal, Rejected},
    flow::{Expansion, ResolvedEdges},
};

use crate::{
    answer::{self, Verdict},
    column::{Columns, numbers, place, texts},
    enqueue::edges,
    value::Value,
};

/// The answers to the items of a call, once there are any.
pub(crate) type Answered = Vec<Option<Result<Settled, Refusal>>>;

/// What to do about jobs and flows that other transactions have locked at this moment. REF-6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Wait a moment, or fail as a whole.
    Moment,
    /// Pass by what is not free.
    None,
    /// Wait a moment, for flows too.
    Brief,
    /// Wait a second.
    Second,
    /// Wait, as the application's own transaction does.
    Transaction,
}

impl Patience {
    fn value(self) -> Value<'static> {
        Value::BigInt(Some(match self {
            Self::Moment => 0,
            Self::None => 1,
            Self::Second => 2,
            Self::Transaction => 3,
            Self::Brief => 4,
        }))
    }
}

/// The items that can be sent, as positions in the request.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    items: Vec<(usize, &'a Settlement)>,
    expansions: Vec<(usize, &'a Expansion, ResolvedEdges)>,
}

/// Sorts out what could be applied to no job: SET-11, EXP-3, FLO-9.
pub(crate) fn batch<'a>(request: &'a Settle, limits: &Limits) -> (Batch<'a>, Answered) {
    let mut batch =
        Batch { items: Vec::with_capacity(request.items.len()), expansions: Vec::new() };
    let mut answers: Answered = vec![None; request.items.len()];
    for (at, item) in request.items.iter().enumerate() {
        match item.transition.check(limits) {
            Ok(shape) => {
                if let (Transition::Expand(expansion), Some(shape)) = (&item.transition, shape) {
                    batch.expansions.push((batch.items.len(), expansion, shape));
                }
                batch.items.push((at, item));
            }
            Err(invalid) => answers[at] = Some(Err(Refusal::Invalid(invalid))),
        }
    }
    (batch, answers)
}

impl<'a> Batch<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// The jobs of all expansions, one after another.
    pub(crate) fn columns(&self) -> Result<Columns<'a>, DriverError> {
        let jobs: Vec<&NewJob> = self.expansions.iter().flat_map(|(_, it, _)| &it.jobs).collect();
        Columns::of(jobs)
    }

    /// What the statement is given.
    pub(crate) fn values(
        &self,
        columns: &'a Columns<'a>,
        patience: Patience,
        now: Timestamp,
        channel: Option<&'a str>,
    ) -> Vec<Value<'a>> {
        let transitions = || self.items.iter().map(|(_, item)| &item.transition);
        let failures = || transitions().map(failure);
        let outputs: Vec<_> = transitions().map(output).collect();
        let no_output = outputs.iter().all(Option::is_none);
        let mut values = vec![
            patience.value(),
            Value::BigInt(Some(now.as_micros())),
            Value::Texts(self.items.iter().map(|(_, item)| Some(item.id.as_str())).collect()),
            Value::Uuids(self.items.iter().map(|(_, item)| item.token.to_bits()).collect()),
            Value::Texts(transitions().map(|it| Some(kind(it))).collect()),
            Value::Byteas(if no_output { Vec::new() } else { outputs }),
            numbers(failures().map(|it| it.map(|it| i64::from(it.attempts))).collect()),
            texts(failures().map(|it| it.map(|it| it.error.as_str())).collect()),
            numbers(failures().map(|it| it.map(|it| it.failed_at.as_micros())).collect()),
            numbers(transitions().map(|it| run_at(it).map(Timestamp::as_micros)).collect()),
            texts(transitions().map(|it| reason(it).map(Text::as_str)).collect()),
        ];
        values.extend(self.expansion_values(columns));
        values.push(Value::Text(channel));
        values
    }

    fn expansion_values(&self, columns: &'a Columns<'a>) -> Vec<Value<'a>> {
        let items = self.expansions.iter().map(|(item, ..)| place(*item)).collect();
        let tails = self.expansions.iter().map(|(.., shape)| place(shape.tail)).collect();
        let owners = |(item, expansion, _): &(usize, &Expansion, ResolvedEdges)| {
            vec![place(*item); expansion.jobs.len()]
        };
        let mut of_edges = (Vec::new(), Vec::new(), Vec::new());
        for (item, _, shape) in &self.expansions {
            let (children, parents) = edges(shape);
            of_edges.0.extend(vec![place(*item); children.len()]);
            of_edges.1.extend(children);
            of_edges.2.extend(parents);
        }
        let mut values = vec![
            Value::BigInts(items),
            Value::BigInts(tails),
            Value::BigInts(self.expansions.iter().flat_map(owners).collect()),
        ];
        values.extend(columns.common());
        values.extend([
            columns.kinds(),
            Value::BigInts(of_edges.0),
            Value::BigInts(of_edges.1),
            Value::BigInts(of_edges.2),
        ]);
        values
    }

    /// Adds the verdicts to the answers (REF-3); answers what is left because it was busy.
    pub(crate) fn conclude(
        self,
        verdicts: &[Verdict],
        answers: &mut Answered,
    ) -> Result<Self, DriverError> {
        for (at, _) in &self.items {
            answers[*at] = Some(Ok(Settled::Applied));
        }
        let mut busy = vec![false; self.items.len()];
        for verdict in verdicts {
            let Some(at) = verdict.at().filter(|at| *at < self.items.len()) else { continue };
            busy[at] = verdict.verdict.as_deref() == Some("busy");
            answers[self.items[at].0] = if busy[at] { None } else { Some(settled(verdict)?) };
        }
        let mut left = Self { items: Vec::new(), expansions: Vec::new() };
        for (at, item) in self.items.into_iter().enumerate().filter(|(at, _)| busy[*at]) {
            let expands = |(of, ..): &&(usize, &Expansion, ResolvedEdges)| *of == at;
            if let Some((_, expansion, shape)) = self.expansions.iter().find(expands) {
                left.expansions.push((left.items.len(), expansion, shape.clone()));
            }
            left.items.push(item);
        }
        Ok(left)
    }
}

fn settled(verdict: &Verdict) -> Result<Result<Settled, Refusal>, DriverError> {
    Ok(match verdict.verdict.as_deref().unwrap_or_default() {
        "applied" => Ok(Settled::Applied),
        "already" => Ok(Settled::AlreadyTerminal),
        "overlap" => {
            let job = answer::id(verdict.detail.as_deref().unwrap_or_default())?;
            Err(InvalidTransition::Expansion(Rejected::Overlap { job }).into())
        }
        other => Err(refusal(other)?),
    })
}

/// Why a change was refused.
pub(crate) fn refusal(said: &str) -> Result<Refusal, DriverError> {
    match said {
        "not_found" => Ok(Refusal::JobNotFound),
        "not_inflight" | "already" => Ok(Refusal::JobNotInflight),
        "mismatch" => Ok(Refusal::LeaseMismatch),
        "expired" => Ok(Refusal::LeaseExpired),
        other => Err(answer::unknown("refusal", other)),
    }
}

fn kind(transition: &Transition) -> &'static str {
    match transition {
        Transition::Ack { .. } => "a",
        Transition::Expand(_) => "e",
        Transition::Retry { .. } => "r",
        Transition::Fail { .. } => "f",
        Transition::Release { .. } => "l",
    }
}

fn output(transition: &Transition) -> Option<&[u8]> {
    match transition {
        Transition::Ack { output } => output.as_deref(),
        _ => None,
    }
}

fn failure(transition: &Transition) -> Option<&taskharbor_core::job::FailedAttempt> {
    match transition {
        Transition::Retry { failure, .. } | Transition::Fail { failure, .. } => Some(failure),
        _ => None,
    }
}

fn run_at(transition: &Transition) -> Option<Timestamp> {
    match transition {
        Transition::Retry { run_at, .. } | Transition::Release { run_at } => *run_at,
        _ => None,
    }
}

fn reason(transition: &Transition) -> Option<&Text> {
    match transition {
        Transition::Fail { reason, .. } => Some(reason),
        _ => None,
    }
}
