//! Jobs on their way from or to another store.

use serde_json::{Value as Json, json};
use taskharbor_core::{
    DriverError, JobId, JobType, NewJob, QueueName, State, Timestamp,
    admin::{Cursor, Page},
    driver::{Lease, LeaseToken},
    error::InvalidRequest,
    export::{EdgeState, ExportUnit, ExportedFlow, ExportedJob, Imported},
    life::{ActiveLease, Finish, Life, Stage},
    name::{FlowName, Holder},
};
use tokio_postgres::Row;

use crate::{
    PostgresDriver,
    answer::{
        blob, count, get, headers, id, name, number, optional_id, optional_number, optional_time,
        text, time, unknown,
    },
    column,
    record::{ended, failures, hold_of_key, key, kind, policy, timeout},
    value::{Bits, Value},
};

/// What a cursor of this kind of list begins with.
const CURSOR: &str = "parcel";

impl PostgresDriver {
    pub(crate) async fn export_page(
        &self,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<ExportUnit>, DriverError> {
        let after = match &after {
            Some(cursor) => {
                let seq = cursor.as_str().strip_prefix(CURSOR).and_then(|seq| seq.parse().ok());
                seq.ok_or(InvalidRequest::Cursor)?
            }
            None => 0,
        };
        let statements = &self.shared.statements;
        let values =
            [Value::BigInt(Some(after)), Value::BigInt(column::place(limit).map(|it| it - 1))];
        let mut units: Vec<(i64, Option<i64>)> = Vec::new();
        for row in self.query(&statements.export_units, &values).await? {
            units.push((get(&row, 0)?, get(&row, 1)?));
        }
        let next = units.last().filter(|_| units.len() == limit).map(|(seq, _)| *seq);
        let (flows, alone): (Vec<_>, Vec<_>) = units.iter().partition(|(_, flow)| flow.is_some());
        let values = [
            Value::BigInts(alone.iter().map(|(seq, _)| Some(*seq)).collect()),
            Value::BigInts(flows.iter().map(|(_, flow)| *flow).collect()),
        ];
        let heads = self.query(&statements.export_flows, &values[1..]).await?;
        let rows = self.query(&statements.export, &values).await?;
        let mut jobs = Vec::with_capacity(rows.len());
        for row in &rows {
            let unit: (i64, Option<i64>) = (get(row, 0)?, get(row, 22)?);
            jobs.push((unit, stored(row)?));
        }
        let mut parcels = Vec::with_capacity(units.len());
        for (seq, flow) in units {
            let belongs = |of: &(i64, Option<i64>)| match flow {
                Some(flow) => of.1 == Some(flow),
                None => of.0 == seq,
            };
            let (mine, others) = jobs.into_iter().partition::<Vec<_>, _>(|(of, _)| belongs(of));
            jobs = others;
            let jobs = mine.into_iter().map(|(_, job)| job).collect();
            let is_head = |row: &&Row| get::<i64>(row, 0).is_ok_and(|seq| Some(seq) == flow);
            let head = heads.iter().find(is_head).map(stored_flow).transpose()?;
            let parcel = ExportUnit::new(head, jobs);
            // What was removed meanwhile is not there.
            if !parcel.jobs.is_empty() {
                parcels.push(parcel);
            }
        }
        Ok(Page::new(parcels, next.map(|seq| Cursor::new(format!("{CURSOR}{seq}")))))
    }

    pub(crate) async fn import_all(
        &self,
        parcels: Vec<ExportUnit>,
    ) -> Result<Vec<Imported>, DriverError> {
        let mut answers = Vec::with_capacity(parcels.len());
        for parcel in parcels {
            let head = parcel.flow.as_ref().map(|flow| head(flow).to_string());
            let jobs = Json::Array(parcel.jobs.iter().map(job).collect()).to_string();
            let payloads = parcel.jobs.iter().map(|job| Some(&*job.new.payload)).collect();
            let outputs = parcel.jobs.iter().map(|job| job.life.output.as_deref()).collect();
            let values = [
                Value::Text(head.as_deref()),
                Value::Text(Some(&jobs)),
                Value::Byteas(payloads),
                Value::Byteas(outputs),
            ];
            let rows = self.query(&self.shared.statements.import, &values).await?;
            let row = rows.first().ok_or_else(|| unknown("answer", "nothing"))?;
            let because = optional_id(get(row, 1)?)?;
            answers.push(match (get::<&str>(row, 0)?, because) {
                ("stored", _) => Imported::Stored,
                ("existing", _) => Imported::Existing,
                ("overlap", Some(job)) => Imported::Overlap(job),
                ("key", Some(job)) => Imported::KeyHeld(job),
                (other, _) => return Err(unknown("verdict", other)),
            });
            let queues = parcel.jobs.into_iter().map(|job| job.new.queue).collect();
            self.put_in_line(queues, 0);
        }
        Ok(answers)
    }
}

fn stored_flow(row: &Row) -> Result<ExportedFlow, DriverError> {
    let flow_name =
        get::<Option<&str>>(row, 2)?.map(|text| name(FlowName::new(text))).transpose()?;
    Ok(ExportedFlow::new(id(get(row, 1)?)?, flow_name, time(get(row, 3)?)?, id(get(row, 4)?)?))
}

/// A job as `sql/export.sql` tells it.
fn stored(row: &Row) -> Result<ExportedJob, DriverError> {
    let mut new = NewJob::new(
        id(get(row, 1)?)?,
        name(QueueName::new(get::<&str>(row, 2)?))?,
        name(JobType::new(get::<&str>(row, 3)?))?,
        get::<&[u8]>(row, 4)?,
    );
    new.headers = headers(get(row, 5)?)?;
    new.kind = kind(get(row, 6)?)?;
    new.key_hold = hold_of_key(get(row, 7)?)?;
    new.on_failure = policy(get(row, 8)?)?;
    new.timeout = timeout(get(row, 9)?)?;
    new.max_attempts = optional_number(get(row, 10)?)?;
    new.idempotency_key = key(get(row, 12)?)?;
    let created_at = time(get(row, 11)?)?;
    let parents: Vec<&str> = get(row, 37)?;
    new.parents = parents.into_iter().map(id).collect::<Result<_, _>>()?;
    let ties = ties(row)?;

    let mut life = Life::new(&new, 0, optional_id(get(row, 45)?)?, created_at);
    life.stage = stage(row)?;
    life.pending = ties.iter().filter(|tie| **tie == EdgeState::Open).count();
    life.priority = number(get(row, 13)?)?;
    life.run_at = optional_time(get(row, 14)?)?;
    life.due_at = optional_time(get(row, 25)?)?.unwrap_or(created_at);
    life.output = blob(get(row, 19)?);
    life.reason = text(get(row, 20)?);
    life.expanded_into = optional_id(get(row, 21)?)?;
    life.started_at = optional_time(get(row, 30)?)?;
    life.deliveries = count(get(row, 31)?)?;
    life.attempts = count(get(row, 32)?)?;
    life.expirations = count(get(row, 33)?)?;
    life.epoch = count(get(row, 34)?)?;
    life.attempt_limit = optional_number(get(row, 35)?)?;
    life.progress = text(get(row, 36)?);
    life.errors = failures(row, 41)?;
    Ok(ExportedJob::new(new, created_at, life, ties, get(row, 44)?))
}

fn stage(row: &Row) -> Result<Stage, DriverError> {
    if let Some(ended_as) = get::<Option<&str>>(row, 15)? {
        let (at, kept_until) = (time(get(row, 16)?)?, time(get(row, 17)?)?);
        let token = get::<Option<Bits>>(row, 18)?;
        let by = token.map(|Bits(bits)| Lease::new(LeaseToken::from_bits(bits), kept_until));
        return Ok(Stage::Finished(Finish { state: ended(ended_as)?, at, by }));
    }
    let lease = (get::<Option<i64>>(row, 26)?, get::<Option<Bits>>(row, 27)?);
    Ok(match (lease, get::<Option<&str>>(row, 28)?) {
        ((Some(expires_at), Some(Bits(bits))), Some(holder)) => Stage::Inflight(ActiveLease {
            lease: Lease::new(LeaseToken::from_bits(bits), time(expires_at)?),
            holder: name(Holder::new(holder))?,
            cancel_requested: get(row, 29)?,
        }),
        _ if get(row, 24)? => Stage::Blocked,
        _ => Stage::Waiting,
    })
}

fn ties(row: &Row) -> Result<Vec<EdgeState>, DriverError> {
    let (ties, states): (Vec<&str>, Vec<Option<&str>>) = (get(row, 38)?, get(row, 39)?);
    let reasons: Vec<Option<&str>> = get(row, 40)?;
    let all = ties.into_iter().zip(states).zip(reasons);
    all.map(|((tie, state), reason)| {
        Ok(match (tie, state) {
            ("o", _) => EdgeState::Open,
            ("c", _) => EdgeState::Closed,
            ("s", Some(state)) => EdgeState::Spent { state: ended(state)?, reason: text(reason) },
            (other, _) => return Err(unknown("tie", other)),
        })
    })
    .collect()
}

fn head(flow: &ExportedFlow) -> Json {
    json!({
        "id": flow.id.as_str(),
        "name": flow.name.as_ref().map(FlowName::as_str),
        "created_at": flow.created_at.as_micros(),
        "tail": flow.tail.as_str(),
    })
}

/// A job as `th_import_v1` reads it.
fn job(stored: &ExportedJob) -> Json {
    let ExportedJob { new, created_at, life, ties, holds_key, .. } = stored;
    let micros = |at: Option<Timestamp>| at.map(Timestamp::as_micros);
    let headers: serde_json::Map<_, _> =
        new.headers.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    let parents = new.parents.iter().zip(ties).map(|(parent, tie)| match tie {
        EdgeState::Open => json!({"id": parent.as_str(), "tie": "o"}),
        EdgeState::Closed => json!({"id": parent.as_str(), "tie": "c"}),
        EdgeState::Spent { state, reason } => json!({
            "id": parent.as_str(),
            "tie": "s",
            "state": end(*state),
            "reason": reason.as_ref().map(taskharbor_core::Text::as_str),
        }),
    });
    let errors = life.errors.iter().map(|failure| {
        json!({
            "attempts": failure.attempts,
            "failed_at": failure.failed_at.as_micros(),
            "error": failure.error.as_str(),
        })
    });
    let (finish, hold) = (life.finish(), life.active_lease());
    let token = |lease: Lease| format!("{:032x}", lease.token.to_bits());
    json!({
        "id": new.id.as_str(),
        "queue": new.queue.as_str(),
        "type": new.job_type.as_str(),
        "headers": (!headers.is_empty()).then_some(headers),
        "kind": column::kind(new).unwrap_or("w"),
        "key_hold": column::key_hold(new).unwrap_or("p"),
        "on_failure": column::policy(new).unwrap_or("h"),
        "timeout_us": new.timeout.map(|it| i64::try_from(it.as_micros()).unwrap_or(i64::MAX)),
        "max_attempts": new.max_attempts,
        "created_at": created_at.as_micros(),
        "key": new.idempotency_key.as_ref().map(taskharbor_core::name::IdempotencyKey::as_str),
        "holds_key": holds_key,
        "priority": life.priority,
        "run_at": micros(life.run_at),
        "due_at": life.due_at.as_micros(),
        "blocked": life.stage == Stage::Blocked,
        "pending": life.pending,
        "lease_exp": hold.map(|hold| hold.lease.expires_at.as_micros()),
        "secret": hold.map(|hold| token(hold.lease)),
        "holder": hold.map(|hold| hold.holder.as_str()),
        "cancel": hold.is_some_and(|hold| hold.cancel_requested),
        "state": finish.map(|finish| end(finish.state)),
        "finished_at": finish.map(|finish| finish.at.as_micros()),
        "kept_until": micros(life.kept_until()),
        "settled_by": finish.and_then(|finish| finish.by).map(token),
        "started_at": micros(life.started_at),
        "deliveries": life.deliveries,
        "attempts": life.attempts,
        "expirations": life.expirations,
        "epoch": life.epoch,
        "attempt_limit": life.attempt_limit,
        "progress": life.progress.as_ref().map(taskharbor_core::Text::as_str),
        "reason": life.reason.as_ref().map(taskharbor_core::Text::as_str),
        "expanded_into": life.expanded_into.as_ref().map(JobId::as_str),
        "parents": parents.collect::<Vec<_>>(),
        "errors": errors.collect::<Vec<_>>(),
    })
}

const fn end(state: State) -> &'static str {
    match state {
        State::Dlq => "q",
        State::Cancelled => "c",
        _ => "d",
    }
}
