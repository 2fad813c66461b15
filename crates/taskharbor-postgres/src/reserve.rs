//! Granting and extending leases: the parameters that are sent, and the answers.

use std::time::Duration;

use taskharbor_core::{
    DriverError, JobType, NewJob, QueueName, Text, Timestamp,
    driver::{
        Answers, Demand, ExtendLeases, Extended, Extension, Lease, LeaseMark, Leased, Limits,
        Reserve, Reserved,
    },
    error::Refusal,
    job::JobView,
    life::{Life, Stage},
};
use tokio_postgres::Row;

use crate::{
    PostgresDriver,
    answer::{
        self, count, get, headers, id, name, optional_id, optional_number, optional_time, time,
        unknown,
    },
    column::texts,
    lane_turn::{LaneTurns, Start, Stopped, Turned},
    record,
    scan_start::{Beginning, Position, Walk},
    settle::refusal,
    token::{self, Token},
    value::Value,
};

macro_rules! columns {
    ($($name:ident)*) => {
        /// The columns of an answer, by their places.
        #[expect(non_camel_case_types, reason = "they are called as the columns are")]
        enum Column {
            $($name,)*
        }

        /// The statement that reserves: it names its columns in the order in which they are read.
        pub(crate) const STATEMENT: &str = concat!(
            "SELECT ",
            $("r.", stringify!($name), ", ",)*
            "NULL FROM {schema}.th_reserve_v1($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16) r"
        );
    };
}

columns! {
    id queue job_type payload headers priority run_at timeout_us created_at attempts max_attempts
    last_error failed_at deliveries expirations idempotency_key flow parents available_at seq kind
    on_failure released lane next_due wakes seen_queues seen_priorities lease_ends is_long walked_us
    turn_queue turn_lane turn_used stopped_priority stopped_lane round_due
}

fn column<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a Row,
    column: Column,
) -> Result<T, DriverError> {
    get(row, column as usize)
}

impl PostgresDriver {
    pub(crate) async fn reserve_jobs(&self, request: Reserve) -> Result<Reserved, DriverError> {
        // TIM-3, RES-6
        let expires_at = request.check()?;
        if request.demands.is_empty() {
            return Ok(Reserved::new(Vec::new(), None));
        }
        let shared = &self.shared;
        let random = token::random()?;
        let now = request.now.as_micros();
        let look = shared.wakeups.begin_look(&request.demands);
        let beginning = shared.scan_starts.of(&request.demands, now);
        let turns = shared.turns.of(&request.demands, |queue| look.is_woken(queue));
        let values = values(&request, expires_at, random, &shared.limits, &beginning, &turns);
        let rows = self.query(&shared.statements.reserve, &values).await?;
        let expires_us = expires_at.as_micros();
        let mut walk = Walk { now, expires_at: expires_us, ..Walk::default() };
        let mut granted: Vec<(Position, Leased)> = Vec::with_capacity(rows.len());
        let mut end = End::default();
        for row in &rows {
            if column::<Option<&str>>(row, Column::id)?.is_none() {
                end.add(row, &mut walk)?;
                continue;
            }
            match read(row, random, expires_at) {
                Ok((position, leased)) => granted.push((position, leased)),
                // A row was written past the functions. It must not keep the others from their
                // worker.
                Err(error) => {
                    tracing::error!(%error, "a stored job is invalid and was skipped");
                }
            }
        }
        let is_by_turns = end.keep_turns(&shared.turns, &turns, &request, &granted)?;
        // Positions of queues that are granted by turns say nothing about what stands before them.
        let by_position = granted.iter().filter(|(_, it)| !is_by_turns.contains(&it.job.queue));
        let place = |(position, leased): &(Position, Leased)| (leased.job.queue.clone(), *position);
        walk.granted = by_position.map(place).collect();
        shared.scan_starts.learn(&request.demands, &beginning, &walk);
        let due = end.next_due;
        self.put_in_line(answer::queues(Some(end.wakes)), now);
        // RES-7: a look that began behind leases does not know when they end.
        let again = beginning.look_again.filter(|_| !walk.exhausted.is_empty());
        let next_due = due.into_iter().chain(again).min().and_then(|at| time(at).ok());
        let jobs = in_order(&request.demands, granted);
        let next_due_in = next_due.map(|due| due.since(request.now));
        shared.wakeups.end_look(look, &request.demands, &jobs, next_due_in);
        Ok(Reserved::new(jobs, next_due))
    }

    pub(crate) async fn extend(&self, request: ExtendLeases) -> Answers<Extended, Refusal> {
        let expires_at = request.check()?;
        if request.items.is_empty() {
            return Ok(Vec::new());
        }
        let values = extension(&request, expires_at);
        let rows = self.query(&self.shared.statements.extend, &values).await?;
        rows.iter().zip(&request.items).map(|(row, item)| extended(row, item)).collect()
    }
}

/// What the statement that reserves is given.
fn values<'a>(
    request: &'a Reserve,
    expires_at: Timestamp,
    random: i64,
    limits: &Limits,
    beginning: &Beginning,
    turns: &'a [Start],
) -> Vec<Value<'a>> {
    let wanted: usize = request.demands.iter().map(|demand| demand.limit).sum();
    // Only where payloads could be too much for one answer are they measured.
    let could_be = wanted.saturating_mul(limits.payload_bytes());
    let most = if could_be > Limits::MAX_CALL_BYTES { Limits::MAX_CALL_BYTES } else { 0 };
    let number = |number: usize| i64::try_from(number).ok();
    let starts = || beginning.starts.iter();
    vec![
        Value::Texts(request.demands.iter().map(|it| Some(it.queue.as_str())).collect()),
        Value::BigInts(request.demands.iter().map(|it: &Demand| number(it.limit)).collect()),
        Value::Text(Some(request.holder.as_str())),
        Value::BigInt(Some(request.now.as_micros())),
        Value::BigInt(Some(expires_at.as_micros())),
        Value::BigInt(Some(random)),
        Value::BigInt(number(most)),
        Value::BigInts(starts().map(|(demand, _)| crate::column::place(*demand)).collect()),
        Value::BigInts(starts().map(|(_, it)| Some(i64::from(it.priority))).collect()),
        Value::BigInts(starts().map(|(_, it)| Some(it.at)).collect()),
        Value::BigInts(starts().map(|(_, it)| Some(it.seq)).collect()),
        Value::BigInts(turns.iter().map(|it| crate::column::place(it.demand)).collect()),
        Value::Texts(turns.iter().map(|it| Some(it.lane.as_str())).collect()),
        Value::BigInts(turns.iter().map(|it| Some(i64::from(it.used))).collect()),
        Value::BigInts(turns.iter().map(|it| Some(it.stopped.as_ref()?.priority)).collect()),
        Value::Texts(turns.iter().map(|it| Some(it.stopped.as_ref()?.lane.as_str())).collect()),
    ]
}

/// A job that was granted, and its position.
fn read(row: &Row, random: i64, expires_at: Timestamp) -> Result<(Position, Leased), DriverError> {
    let new = NewJob::new(
        id(column(row, Column::id)?)?,
        name(QueueName::new(column::<&str>(row, Column::queue)?))?,
        name(JobType::new(column::<&str>(row, Column::job_type)?))?,
        column::<&[u8]>(row, Column::payload)?,
    );
    let mut job = JobView::assemble(&new, time(column(row, Column::created_at)?)?, &blank());
    job.headers = headers(column(row, Column::headers)?)?;
    job.priority = answer::number(column(row, Column::priority)?)?;
    job.run_at = optional_time(column(row, Column::run_at)?)?;
    job.timeout = record::timeout(column(row, Column::timeout_us)?)?;
    job.attempts = count(column(row, Column::attempts)?)?;
    job.max_attempts = optional_number(column(row, Column::max_attempts)?)?;
    job.last_error = column::<Option<&str>>(row, Column::last_error)?.map(Text::new);
    job.failed_at = optional_time(column(row, Column::failed_at)?)?;
    job.deliveries = count(column(row, Column::deliveries)?)?;
    job.expirations = count(column(row, Column::expirations)?)?;
    job.idempotency_key = record::key(column(row, Column::idempotency_key)?)?;
    job.flow = optional_id(column(row, Column::flow)?)?;
    job.parent_count = count(column(row, Column::parents)?)?;
    let (at, seq) = (column(row, Column::available_at)?, column(row, Column::seq)?);
    // JOB-8
    job.available_at = time(at)?;
    job.condition = record::kind(column(row, Column::kind)?)?.1;
    job.on_failure = record::policy(column(row, Column::on_failure)?)?;
    job.released = record::released(column(row, Column::released)?);
    job.lane = record::lane(column(row, Column::lane)?)?;
    let position = Position { priority: job.priority, at, seq };
    let lease = Lease::new(Token { random, seq }.lease_token(&job.id), expires_at);
    Ok((position, Leased::new(job, lease)))
}

/// What the rows without a job tell: one of each queue that is granted by turns, and one of all others.
#[derive(Debug, Default)]
struct End {
    next_due: Option<i64>,
    wakes: Vec<String>,
    turned: Vec<Turned>,
}

impl End {
    /// Keeps whose turn was last, and answers the queues that were granted by turns. Where no job had a lane, the last turn
    /// was that of the jobs without one. LAN-2.
    fn keep_turns(
        &mut self,
        turns: &LaneTurns,
        starts: &[Start],
        request: &Reserve,
        granted: &[(Position, Leased)],
    ) -> Result<Vec<QueueName>, DriverError> {
        let mut by_turns = Vec::with_capacity(self.turned.len());
        for turned in self.turned.drain(..) {
            let demand = request.demands.get(turned.demand);
            let demand = demand.ok_or_else(|| unknown("queue", "one that was not asked for"))?;
            let start = starts.iter().find(|start| start.demand == turned.demand);
            let of_queue = granted.iter().filter(|(_, it)| it.job.queue == demand.queue).count();
            let (is_met, now) = (of_queue == demand.limit, request.now.as_micros());
            let due = turns.learn(&demand.queue, start, turned, is_met, now);
            self.next_due = self.next_due.into_iter().chain(due).min();
            by_turns.push(demand.queue.clone());
        }
        for of_queue in granted.chunk_by(|a, b| a.1.job.queue == b.1.job.queue) {
            let queue = &of_queue[0].1.job.queue;
            if !by_turns.contains(queue) {
                turns.keep(queue, "", 1);
            }
        }
        Ok(by_turns)
    }

    fn add(&mut self, row: &Row, walk: &mut Walk) -> Result<(), DriverError> {
        let due: Option<i64> = column(row, Column::next_due)?;
        self.wakes.extend(column::<Option<Vec<String>>>(row, Column::wakes)?.unwrap_or_default());
        if let Some(queue) = column::<Option<i64>>(row, Column::turn_queue)? {
            let priority: Option<i64> = column(row, Column::stopped_priority)?;
            let stopped = |priority| -> Result<Stopped, DriverError> {
                let lane = column::<Option<&str>>(row, Column::stopped_lane)?.unwrap_or_default();
                Ok(Stopped { priority, lane: lane.to_owned() })
            };
            self.turned.push(Turned {
                demand: answer::number(queue - 1)?,
                lane: column::<Option<&str>>(row, Column::turn_lane)?
                    .unwrap_or_default()
                    .to_owned(),
                used: optional_number(column(row, Column::turn_used)?)?.unwrap_or(0),
                stopped: priority.map(stopped).transpose()?,
                next_due: due,
                round_due: column(row, Column::round_due)?,
            });
            return Ok(());
        }
        self.next_due = self.next_due.into_iter().chain(due).min();
        let queues: Option<Vec<i64>> = column(row, Column::seen_queues)?;
        let priorities: Option<Vec<i64>> = column(row, Column::seen_priorities)?;
        let ends: Option<Vec<Option<i64>>> = column(row, Column::lease_ends)?;
        let seen = queues.into_iter().flatten().zip(priorities.into_iter().flatten());
        for ((queue, priority), end) in seen.zip(ends.into_iter().flatten()) {
            walk.exhausted.push((answer::number(queue - 1)?, answer::number(priority)?, end));
        }
        walk.is_long = column(row, Column::is_long)?;
        walk.walked = Duration::from_micros(answer::number(column(row, Column::walked_us)?)?);
        Ok(())
    }
}

/// The jobs queue by queue in the order of the demands, each queue in its order. ORD-1, ORD-2.
fn in_order(demands: &[Demand], mut granted: Vec<(Position, Leased)>) -> Vec<Leased> {
    let queue = |leased: &Leased| demands.iter().position(|it| it.queue == leased.job.queue);
    if demands.len() > 1 {
        granted.sort_by_cached_key(|(it, leased)| {
            (queue(leased), -i32::from(it.priority), it.at, it.seq)
        });
    } else {
        granted.sort_by_key(|(it, _)| (-i32::from(it.priority), it.at, it.seq));
    }
    granted.into_iter().map(|(_, leased)| leased).collect()
}

/// A life of which everything is still to be filled in.
pub(crate) const fn blank() -> Life {
    Life::in_stage(Stage::Waiting, Timestamp::EPOCH)
}

/// What the statement that extends is given.
fn extension<'a>(request: &'a ExtendLeases, expires_at: Timestamp) -> Vec<Value<'a>> {
    let progress = |item: &'a Extension| item.progress.as_ref().map(Text::as_str);
    let random = |item: &Extension| Some(Token::read(item.token, &item.id).random);
    vec![
        Value::Texts(request.items.iter().map(|item| Some(item.id.as_str())).collect()),
        Value::BigInts(request.items.iter().map(random).collect()),
        Value::Uuids(request.items.iter().map(|item| item.token.to_bits()).collect()),
        texts(request.items.iter().map(progress).collect()),
        texts(request.items.iter().map(|item| item.mark.map(LeaseMark::as_str)).collect()),
        Value::BigInt(Some(request.now.as_micros())),
        Value::BigInt(Some(expires_at.as_micros())),
    ]
}

fn extended(row: &Row, item: &Extension) -> Result<Result<Extended, Refusal>, DriverError> {
    match get::<&str>(row, "verdict")? {
        "applied" => {
            let expires_at: Option<i64> = get(row, "lease_expires_at")?;
            let expires_at = expires_at.ok_or_else(|| unknown("lease", "none"))?;
            let lease = Lease::new(item.token, time(expires_at)?);
            Ok(Ok(Extended::new(lease, get(row, "cancel_requested")?)))
        }
        other => refusal(other).map(Err),
    }
}
