//! Recording the outcomes of inflight jobs: the parameters that are sent, and the answers.

use std::{borrow::Cow, collections::HashSet};

use taskharbor_core::{
    DriverError, Timestamp,
    driver::{Answers, Limits, LockWait, Settle, Settled, Settlement, Transition},
    error::{InvalidTransition, Refusal, Rejected},
    flow::{Expansion, ResolvedEdges},
};

use crate::{
    PostgresDriver,
    answer::{self, AnswerRow, get},
    column::{Columns, numbers, place, texts},
    enqueue::edges,
    error,
    statement::Statements,
    token::Token,
    tx,
    value::Value,
};

/// In the form of [`AnswerRow`].
const NOTIFY_END: &str = "SELECT NULL::bigint AS ord, NULL::text AS verdict, \
    pg_notify($1, $2)::text AS detail, NULL::text[] AS wakes";

/// The answers to the items of a call, once there are any.
pub(crate) type Answered = Vec<Option<Result<Settled, Refusal>>>;

/// A token that acknowledges its job, and the output.
type Ack<'a> = (Token, Option<&'a [u8]>);

/// How long to wait for jobs and flows that other transactions have locked at this moment. REF-6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockWaits {
    /// `None` waits as the transaction does.
    wait_ms: Option<i64>,
    /// What is not waited for is passed by, if it is not free.
    for_jobs: bool,
    for_flows: bool,
}

impl LockWaits {
    /// Waits a moment for jobs, or fails as a whole.
    pub(crate) const MOMENT: Self = Self { wait_ms: Some(250), for_jobs: true, for_flows: false };
    /// Passes by what is not free.
    pub(crate) const NONE: Self = Self { wait_ms: Some(250), for_jobs: false, for_flows: false };
    /// Waits a moment for jobs and flows.
    pub(crate) const BRIEF: Self = Self { wait_ms: Some(250), for_jobs: true, for_flows: true };
    /// Waits a second.
    pub(crate) const SECOND: Self = Self { wait_ms: Some(1_000), for_jobs: true, for_flows: true };
    /// Waits, as the application's own transaction does.
    pub(crate) const TRANSACTION: Self = Self { wait_ms: None, for_jobs: true, for_flows: true };

    fn values(self) -> [Value<'static>; 3] {
        [Value::BigInt(self.wait_ms), Value::Bool(self.for_jobs), Value::Bool(self.for_flows)]
    }
}

/// The items that can be sent, as positions in the request.
#[derive(Debug, Default)]
pub(crate) struct Batch<'a> {
    items: Vec<(usize, &'a Settlement)>,
    /// What each item expands into, if that is what its holder says.
    expansions: Vec<Option<(&'a Expansion, ResolvedEdges)>>,
}

/// What the values of a statement are taken from.
struct Content<'a> {
    /// The jobs of all expansions, one after another.
    jobs: Columns<'a>,
    /// By item.
    reasons: Vec<Option<Cow<'a, str>>>,
}

/// Sorts out what could be applied to no job: SET-11, EXP-3, FLO-9.
pub(crate) fn batch<'a>(request: &'a Settle, limits: &Limits) -> (Batch<'a>, Answered) {
    let mut batch = Batch::default();
    let mut answers: Answered = vec![None; request.items.len()];
    for (at, item) in request.items.iter().enumerate() {
        match item.transition.check(limits) {
            Ok(edges) => {
                let expansion = match &item.transition {
                    Transition::Expand(expansion) => edges.map(|edges| (expansion, edges)),
                    _ => None,
                };
                batch.items.push((at, item));
                batch.expansions.push(expansion);
            }
            Err(invalid) => answers[at] = Some(Err(Refusal::Invalid(invalid))),
        }
    }
    (batch, answers)
}

impl PostgresDriver {
    pub(crate) async fn settle_jobs(&self, request: Settle) -> Answers<Settled, Refusal> {
        request.check()?;
        // REF-2: an item that is refused is written nowhere.
        let (mut batch, mut answers) = batch(&request, &self.shared.limits);
        while !batch.is_empty() {
            let (run, rest) = batch.split_run();
            self.settle_run(run, &request, &mut answers).await?;
            batch = rest;
        }
        self.shared.wakeups.ended(request.items.iter().map(|item| &item.id), false);
        Ok(answers.into_iter().map(|answer| answer.unwrap_or(Err(Refusal::Busy))).collect())
    }

    /// Settles in the application's transaction, which waits for what others have locked.
    pub(crate) async fn settle_in(
        &self,
        transaction: &mut impl tx::Statements,
        request: Settle,
    ) -> Answers<Settled, Refusal> {
        request.check()?;
        let shared = &self.shared;
        let (mut batch, mut answers) = batch(&request, &shared.limits);
        while !batch.is_empty() {
            let (run, rest) = batch.split_run();
            let content = run.content()?;
            let (waits, channel) = (LockWaits::TRANSACTION, shared.channel_in_transactions());
            let (sql, values) =
                run.statement(&content, &shared.statements, waits, request.now, channel);
            let verdicts = tx::run(transaction, sql, &values).await?;
            drop(values);
            run.conclude(&verdicts, &mut answers)?;
            batch = rest;
        }
        self.notify_ends_in(transaction, &request).await?;
        let unanswered = || answer::unknown("verdict", "busy");
        answers.into_iter().map(|answer| answer.ok_or_else(unanswered)).collect()
    }

    /// The commit of the application's transaction wakes callers that wait for the end of these jobs.
    async fn notify_ends_in(
        &self,
        transaction: &mut impl tx::Statements,
        request: &Settle,
    ) -> Result<(), DriverError> {
        let ids = request.items.iter().map(|item| &item.id);
        let (Some(channel), Some(payload)) =
            (self.shared.channel_in_transactions(), self.shared.wakeups.end_payload(ids))
        else {
            return Ok(());
        };
        let values = [Value::Text(Some(channel)), Value::Text(Some(&payload))];
        tx::run(transaction, NOTIFY_END, &values).await.map(drop)
    }

    /// Settles items that one statement can take. Items that stay busy are left without an answer.
    async fn settle_run(
        &self,
        mut batch: Batch<'_>,
        request: &Settle,
        answers: &mut Answered,
    ) -> Result<(), DriverError> {
        let shared = &self.shared;
        // REF-6: rows that other transactions have locked are passed by until the rest is recorded,
        // so that they hold up no other item; nor are they waited for as long then.
        let all = batch.len();
        let mut waits = LockWaits::MOMENT;
        if let Some(acks) = batch.acks() {
            match self.acknowledge(&acks, request.now).await {
                Ok(left) => batch = batch.conclude_acks(&left, answers),
                Err(error) if error::is_lock_timeout(&error) => waits = LockWaits::NONE,
                Err(error) => return Err(error),
            }
        }
        while !batch.is_empty() {
            let content = batch.content()?;
            let (sql, values) =
                batch.statement(&content, &shared.statements, waits, request.now, None);
            let call = shared.wakeups.begin_call(Vec::new());
            let verdicts = self.verdicts(sql, &values).await;
            call.answered(&verdicts);
            let verdicts = match verdicts {
                Err(error) if error::is_lock_timeout(&error) && waits == LockWaits::MOMENT => {
                    waits = LockWaits::NONE;
                    continue;
                }
                Err(error) if error::is_lock_timeout(&error) => break,
                verdicts => verdicts?,
            };
            drop(values);
            batch = batch.conclude(&verdicts, answers)?;
            let wakes = verdicts.into_iter().find_map(|it| it.wakes);
            self.put_in_line(answer::queues(wakes), lowest(request));
            let is_short = request.lock_wait == LockWait::Short || batch.len() < all;
            waits = if is_short { LockWaits::BRIEF } else { LockWaits::SECOND };
        }
        Ok(())
    }

    /// Acknowledges jobs. Returns the numbers of the jobs that are not settled by that.
    async fn acknowledge(
        &self,
        acks: &[Ack<'_>],
        now: Timestamp,
    ) -> Result<HashSet<i64>, DriverError> {
        let no_output = acks.iter().all(|(_, output)| output.is_none());
        let outputs = acks.iter().filter(|_| !no_output).map(|(_, output)| *output);
        let values = [
            Value::BigInt(Some(now.as_micros())),
            Value::BigInts(acks.iter().map(|(token, _)| Some(token.seq)).collect()),
            Value::BigInts(acks.iter().map(|(token, _)| Some(token.random)).collect()),
            Value::Byteas(outputs.collect()),
        ];
        let call = self.shared.wakeups.begin_call(Vec::new());
        let rows = self.query(&self.shared.statements.ack, &values).await;
        call.answered(&rows);
        let rows = rows?;
        let Some(row) = rows.first() else { return Err(answer::unknown("answer", "nothing")) };
        self.put_in_line(answer::queues(get(row, "wakes")?), now.as_micros());
        Ok(get::<Vec<i64>>(row, "remaining")?.into_iter().collect())
    }
}

/// The earliest position that a settlement can have given to a job, in microseconds.
fn lowest(request: &Settle) -> i64 {
    let keeps_position =
        |item: &Settlement| matches!(item.transition, Transition::Release { run_at: None, .. });
    if request.items.iter().any(keeps_position) { 0 } else { request.now.as_micros() }
}

impl<'a> Batch<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// The items that one statement can take, and the others: expansions go by themselves. The order stays (SET-9).
    pub(crate) fn split_run(mut self) -> (Self, Self) {
        let is_expansion = |it: &Option<_>| it.is_some();
        let first = self.expansions.first().is_some_and(is_expansion);
        let len = self.expansions.iter().take_while(|it| is_expansion(it) == first).count();
        let items = self.items.split_off(len);
        let expansions = self.expansions.split_off(len);
        (self, Self { items, expansions })
    }

    /// The tokens and outputs of the items, if all are acknowledgements.
    fn acks(&self) -> Option<Vec<Ack<'a>>> {
        let ack = |(_, item): &(usize, &'a Settlement)| match &item.transition {
            Transition::Ack { output } => {
                Some((Token::read(item.token, &item.id), output.as_deref()))
            }
            _ => None,
        };
        let acks: Vec<_> = self.items.iter().map(ack).collect::<Option<_>>()?;
        // A token of another job or of another store may name a number twice.
        let numbers: HashSet<i64> = acks.iter().map(|(token, _)| token.seq).collect();
        (numbers.len() == acks.len()).then_some(acks)
    }

    /// Returns the items that acknowledgements have settled: all but those with these numbers.
    pub(crate) fn conclude_acks(self, left: &HashSet<i64>, answers: &mut Answered) -> Self {
        let mut rest = Self::default();
        for (at, item) in self.items {
            if left.contains(&Token::read(item.token, &item.id).seq) {
                rest.items.push((at, item));
                rest.expansions.push(None);
            } else {
                answers[at] = Some(Ok(Settled::Applied));
            }
        }
        rest
    }

    /// What the values of the statement are taken from.
    fn content(&self) -> Result<Content<'a>, DriverError> {
        let expansions = self.expansions.iter().flatten();
        let jobs = Columns::of(expansions.flat_map(|(expansion, _)| &expansion.jobs).collect())?;
        let reasons = self.items.iter().map(|(_, item)| reason(&item.transition)).collect();
        Ok(Content { jobs, reasons })
    }

    /// The statement, and what it is given.
    fn statement<'b>(
        &self,
        content: &'b Content<'b>,
        statements: &'b Statements,
        waits: LockWaits,
        now: Timestamp,
        channel: Option<&'b str>,
    ) -> (&'b str, Vec<Value<'b>>)
    where
        'a: 'b,
    {
        let random =
            |(_, item): &(usize, &Settlement)| Some(Token::read(item.token, &item.id).random);
        let mut values = Vec::from(waits.values());
        values.extend([
            Value::BigInt(Some(now.as_micros())),
            Value::Texts(self.items.iter().map(|(_, item)| Some(item.id.as_str())).collect()),
            Value::BigInts(self.items.iter().map(random).collect()),
            Value::Uuids(self.items.iter().map(|(_, item)| item.token.to_bits()).collect()),
        ]);
        let is_expansion = self.expansions.first().is_some_and(Option::is_some);
        if is_expansion {
            values.extend(self.expansion_values(&content.jobs));
        } else {
            values.extend(self.transition_values(content));
        }
        values.push(Value::Text(channel));
        (if is_expansion { &statements.expand } else { &statements.settle }, values)
    }

    fn transition_values<'b>(&self, content: &'b Content<'b>) -> [Value<'b>; 7]
    where
        'a: 'b,
    {
        let transitions = || self.items.iter().map(|(_, item)| &item.transition);
        let failures = || transitions().map(failure);
        let outputs: Vec<_> = transitions().map(output).collect();
        let no_output = outputs.iter().all(Option::is_none);
        [
            Value::Texts(transitions().map(|it| Some(kind(it))).collect()),
            Value::Byteas(if no_output { Vec::new() } else { outputs }),
            numbers(failures().map(|it| it.map(|it| i64::from(it.attempts))).collect()),
            texts(failures().map(|it| it.map(|it| it.error.as_str())).collect()),
            numbers(failures().map(|it| it.map(|it| it.failed_at.as_micros())).collect()),
            numbers(transitions().map(|it| run_at(it).map(Timestamp::as_micros)).collect()),
            texts(content.reasons.iter().map(Option::as_deref).collect()),
        ]
    }

    fn expansion_values<'b>(&self, columns: &'b Columns<'b>) -> Vec<Value<'b>> {
        let (mut tails, mut owners) = (Vec::new(), Vec::new());
        let mut edge_owners = Vec::new();
        let mut of_edges = [Vec::new(), Vec::new(), Vec::new()];
        for (item, (expansion, shape)) in self.expansions.iter().flatten().enumerate() {
            tails.push(place(shape.tail));
            owners.extend(vec![place(item); expansion.jobs.len()]);
            let edges = edges(shape);
            edge_owners.extend(vec![place(item); edges[0].len()]);
            for (all, of_item) in of_edges.iter_mut().zip(edges) {
                all.extend(of_item);
            }
        }
        let mut values = vec![Value::BigInts(tails), Value::BigInts(owners)];
        values.extend(columns.common());
        values.extend([columns.kinds(), Value::BigInts(edge_owners)]);
        values.extend(of_edges.map(Value::BigInts));
        values
    }

    /// Adds the verdicts to the answers (REF-3); returns what is left because it was busy.
    pub(crate) fn conclude(
        self,
        verdicts: &[AnswerRow],
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
        let mut left = Self::default();
        let all = self.items.into_iter().zip(self.expansions).zip(busy);
        for ((item, expansion), _) in all.filter(|(_, busy)| *busy) {
            left.items.push(item);
            left.expansions.push(expansion);
        }
        Ok(left)
    }
}

fn settled(verdict: &AnswerRow) -> Result<Result<Settled, Refusal>, DriverError> {
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
        Transition::Ack { .. } => "ack",
        Transition::Expand(_) => "expand",
        Transition::Retry { .. } => "retry",
        Transition::Fail { .. } => "fail",
        Transition::Release { started: false, .. } => "release",
        Transition::Release { started: true, .. } => "release_started",
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
        Transition::Retry { run_at, .. } | Transition::Release { run_at, .. } => *run_at,
        _ => None,
    }
}

/// Why a job is dead-lettered, or what is noted of its release.
fn reason(transition: &Transition) -> Option<Cow<'_, str>> {
    match transition {
        Transition::Fail { reason, .. } => Some(reason.as_str().into()),
        Transition::Release { note: Some(note), .. } => Some(note.to_string().into()),
        _ => None,
    }
}
