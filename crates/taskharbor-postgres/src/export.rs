//! Export and import of jobs with every field (MOV-2), so that they continue in the new store as they would
//! have in the old one (MOV-7).

use std::collections::{HashMap, HashSet, hash_map::Entry};

use serde_json::{Value as Json, json};
use taskharbor_core::{
    DriverError, JobId, QueueName, Timestamp,
    admin::{Cursor, Page},
    driver::{Answers, Lease, LeaseMark, LeaseToken, Limits},
    error::InvalidRequest,
    export::{
        EdgeState, ExportUnit, ExportedFlow, ExportedJob, ExportedKey, ImportRefused, Imported,
    },
    life::{ActiveLease, Finish, Life, Stage},
    name::{FlowName, Holder, IdempotencyKey, LaneName},
};
use tokio_postgres::Row;

use crate::{
    PostgresDriver,
    answer::{
        blob, count, get, id, name, number, optional_id, optional_number, optional_time, text,
        time, unknown,
    },
    column,
    error::is_duplicate,
    record::{self, ended, failures},
    token::{self, Token},
    value::{Bits, Value},
};

/// What cursors begin with: the job after which a page starts, or the key, by queue and key.
const JOB: &str = "export:job:";
const KEY: &str = "export:key:";

/// How many single jobs one call imports, and how many bytes of payloads and outputs.
const TOGETHER: usize = 500;
const TOGETHER_BYTES: usize = 4 * 1024 * 1024;
/// How often a page is read again whose jobs become members of flows at the same time.
const EXPORT_TRIES: usize = 5;
/// How often a unit is sent whose jobs other calls store at the same time.
const IMPORT_TRIES: usize = 5;

/// Where a page starts. Jobs come first, then the keys that outlived theirs. MOV-1.
#[derive(Debug)]
enum ExportCursor {
    Job(i64),
    Key(String, String),
}

impl ExportCursor {
    fn of(after: Option<&Cursor>) -> Result<Self, InvalidRequest> {
        let Some(cursor) = after.map(Cursor::as_str) else { return Ok(Self::Job(0)) };
        if let Some(seq) = cursor.strip_prefix(JOB) {
            return seq.parse().map(Self::Job).map_err(|_| InvalidRequest::Cursor);
        }
        // A name has no control character, so the first newline is where the key begins.
        let key = cursor.strip_prefix(KEY).and_then(|rest| rest.split_once('\n'));
        let (queue, key) = key.ok_or(InvalidRequest::Cursor)?;
        if QueueName::new(queue).is_ok() && IdempotencyKey::new(key).is_ok() {
            return Ok(Self::Key(queue.to_owned(), key.to_owned()));
        }
        Err(InvalidRequest::Cursor)
    }

    fn cursor(&self) -> Cursor {
        Cursor::new(match self {
            Self::Job(seq) => format!("{JOB}{seq}"),
            Self::Key(queue, key) => format!("{KEY}{queue}\n{key}"),
        })
    }
}

impl PostgresDriver {
    pub(crate) async fn export_page(
        &self,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<ExportUnit>, DriverError> {
        ExportUnit::check_limit(limit)?;
        match ExportCursor::of(after.as_ref())? {
            ExportCursor::Job(seq) => self.export_jobs(seq, limit).await,
            ExportCursor::Key(queue, key) => self.export_keys(&queue, &key, limit).await,
        }
    }

    /// The units of a page, each by the number of its first job and that of its flow, and the rows of
    /// their jobs. `None` if a job has become a member of a flow between the two statements.
    async fn read_units(
        &self,
        after: i64,
        limit: usize,
    ) -> Result<Option<(Vec<(i64, Option<i64>)>, Vec<Row>)>, DriverError> {
        let statements = &self.shared.statements;
        let values = [Value::BigInt(Some(after)), Value::BigInt(i64::try_from(limit).ok())];
        let mut places: Vec<(i64, Option<i64>)> = Vec::new();
        for row in self.query(&statements.export_units, &values).await? {
            places.push((get(&row, "seq")?, get(&row, "flow")?));
        }
        let flows: HashSet<i64> = places.iter().filter_map(|(_, flow)| *flow).collect();
        let alone = places.iter().filter(|(_, flow)| flow.is_none());
        let values = [
            Value::BigInts(alone.map(|(seq, _)| Some(*seq)).collect()),
            Value::BigInts(flows.iter().copied().map(Some).collect()),
        ];
        let rows = self.query(&statements.export, &values).await?;
        for row in &rows {
            if get::<Option<i64>>(row, "flow_seq")?.is_some_and(|flow| !flows.contains(&flow)) {
                return Ok(None);
            }
        }
        Ok(Some((places, rows)))
    }

    async fn export_jobs(&self, after: i64, limit: usize) -> Result<Page<ExportUnit>, DriverError> {
        let mut read = None;
        for _ in 0..EXPORT_TRIES {
            read = self.read_units(after, limit).await?;
            if read.is_some() {
                break;
            }
        }
        let Some((places, rows)) = read else {
            return Err(DriverError::unavailable("jobs of the page keep expanding"));
        };
        let last = places.last().filter(|_| places.len() == limit);
        let next = last.map(|(seq, _)| ExportCursor::Job(*seq).cursor());
        let left = limit - places.len();
        // A job that was removed meanwhile is left out.
        let mut alone: HashMap<i64, ExportedJob> = HashMap::new();
        let mut flows: HashMap<i64, ExportUnit> = HashMap::new();
        for row in &rows {
            let job = stored(row)?;
            match get::<Option<i64>>(row, "flow_seq")? {
                None => drop(alone.insert(get(row, "seq")?, job)),
                Some(flow) => match flows.entry(flow) {
                    Entry::Occupied(mut unit) => unit.get_mut().jobs.push(job),
                    Entry::Vacant(unit) => {
                        unit.insert(ExportUnit::flow(stored_flow(row)?, vec![job]));
                    }
                },
            }
        }
        let unit = |(seq, flow): (i64, Option<i64>)| match flow {
            None => alone.remove(&seq).map(ExportUnit::job),
            Some(flow) => flows.remove(&flow),
        };
        let mut units: Vec<_> = places.into_iter().filter_map(unit).collect();
        if left == 0 {
            return Ok(Page::new(units, next));
        }
        // After the last job come the keys.
        let keys = self.export_keys("", "", left).await?;
        units.extend(keys.items);
        Ok(Page::new(units, keys.next))
    }

    async fn export_keys(
        &self,
        queue: &str,
        key: &str,
        limit: usize,
    ) -> Result<Page<ExportUnit>, DriverError> {
        let limit_value = Value::BigInt(i64::try_from(limit).ok());
        let values = [Value::Text(Some(queue)), Value::Text(Some(key)), limit_value];
        let rows = self.query(&self.shared.statements.export_keys, &values).await?;
        let keys = rows.iter().map(stored_key).collect::<Result<Vec<_>, _>>()?;
        let last = keys.last().filter(|_| keys.len() == limit);
        let place = |key: &ExportedKey| {
            ExportCursor::Key(key.queue.as_str().to_owned(), key.key.as_str().to_owned())
        };
        let next = last.map(|key| place(key).cursor());
        Ok(Page::new(keys.into_iter().map(ExportUnit::key).collect(), next))
    }

    pub(crate) async fn import_all(
        &self,
        units: Vec<ExportUnit>,
    ) -> Answers<Imported, ImportRefused> {
        check_size(&units)?;
        let mut answers = Vec::with_capacity(units.len());
        let mut rest = units.as_slice();
        while let Some(unit) = rest.first() {
            // MOV-6
            if let Err(damage) = unit.check(&self.shared.limits) {
                answers.push(Err(ImportRefused::Damaged(damage)));
                rest = &rest[1..];
                continue;
            }
            let (together, others) = rest.split_at(self.jobs_together(rest));
            if together.len() > 1 && self.import_together(together).await? {
                answers.extend(together.iter().map(|_| Ok(Imported::Stored)));
                rest = others;
                continue;
            }
            for unit in &rest[..together.len().max(1)] {
                answers.push(self.import_unit(unit).await?);
            }
            rest = &rest[together.len().max(1)..];
        }
        Ok(answers)
    }

    /// How many units at the start are sound single jobs that share neither an id nor a key, and are
    /// not too many for one call.
    fn jobs_together(&self, units: &[ExportUnit]) -> usize {
        let (mut ids, mut keys, mut bytes) = (HashSet::new(), HashSet::new(), 0);
        for (count, unit) in units.iter().take(TOGETHER).enumerate() {
            let ([job], None, None) = (unit.jobs.as_slice(), &unit.flow, &unit.key) else {
                return count;
            };
            let key = job.new.idempotency_key.as_ref().filter(|_| job.holds_key);
            bytes += job.new.payload.len() + job.life.output.as_ref().map_or(0, |it| it.len());
            let fits = bytes <= TOGETHER_BYTES
                && ids.insert(&job.new.id)
                && key.is_none_or(|key| keys.insert((&job.new.queue, key)))
                && unit.check(&self.shared.limits).is_ok();
            if !fits {
                return count;
            }
        }
        units.len().min(TOGETHER)
    }

    /// Stores single jobs by one call, if none of them meets what is stored.
    async fn import_together(&self, units: &[ExportUnit]) -> Result<bool, DriverError> {
        let jobs: Vec<_> = units.iter().flat_map(|unit| &unit.jobs).collect();
        match self.import_jobs(None, &jobs).await {
            Err(error) if is_duplicate(&error) => Ok(false),
            answer => Ok(answer? == Ok(Imported::Stored)),
        }
    }

    async fn import_unit(
        &self,
        unit: &ExportUnit,
    ) -> Result<Result<Imported, ImportRefused>, DriverError> {
        let Some(key) = &unit.key else {
            let (flow, jobs) = (unit.flow.as_ref(), unit.jobs.iter().collect::<Vec<_>>());
            // MOV-3: a job that another call stored meanwhile is met when the store is asked again.
            for _ in 1..IMPORT_TRIES {
                match self.import_jobs(flow, &jobs).await {
                    Err(error) if is_duplicate(&error) => {}
                    answer => return answer,
                }
            }
            return self.import_jobs(flow, &jobs).await;
        };
        let values = [
            Value::Text(Some(key.queue.as_str())),
            Value::Text(Some(key.key.as_str())),
            Value::Text(Some(key.job.as_str())),
            Value::BigInt(Some(key.held_until.as_micros())),
        ];
        imported(&self.query(&self.shared.statements.import_key, &values).await?)
    }

    async fn import_jobs(
        &self,
        flow: Option<&ExportedFlow>,
        jobs: &[&ExportedJob],
    ) -> Result<Result<Imported, ImportRefused>, DriverError> {
        // A token that another store issued stands for one of this store's.
        let native_token = token::random()?;
        let head = flow.map(|flow| head(flow).to_string());
        let texts = Json::Array(jobs.iter().map(|it| job(it, native_token)).collect()).to_string();
        let values = [
            Value::Text(head.as_deref()),
            Value::Text(Some(&texts)),
            Value::Byteas(jobs.iter().map(|job| Some(&*job.new.payload)).collect()),
            Value::Byteas(jobs.iter().map(|job| job.life.output.as_deref()).collect()),
        ];
        let answer = imported(&self.query(&self.shared.statements.import, &values).await?)?;
        let mut queues: Vec<_> = jobs.iter().map(|job| job.new.queue.clone()).collect();
        queues.dedup();
        self.put_in_line(queues, 0);
        Ok(answer)
    }
}

/// A call carries no more jobs than an enqueue of flows may. ENQ-6.
fn check_size(units: &[ExportUnit]) -> Result<(), InvalidRequest> {
    let (what, max) = ("the number of jobs in one call", Limits::MAX_FLOW_JOBS);
    let value = units.iter().map(|unit| unit.jobs.len().max(1)).sum();
    if value > max {
        return Err(InvalidRequest::OutOfRange { what: what.into(), value, min: 0, max });
    }
    Ok(())
}

fn imported(rows: &[Row]) -> Result<Result<Imported, ImportRefused>, DriverError> {
    let row = rows.first().ok_or_else(|| unknown("answer", "nothing"))?;
    Ok(match (get::<&str>(row, "verdict")?, optional_id(get(row, "id")?)?) {
        ("stored", _) => Ok(Imported::Stored),
        ("existing", _) => Ok(Imported::Existing),
        ("overlap", Some(job)) => Err(ImportRefused::Overlap(job)),
        ("key", Some(job)) => Err(ImportRefused::KeyHeld(job)),
        (other, _) => return Err(unknown("verdict", other)),
    })
}

fn stored_key(row: &Row) -> Result<ExportedKey, DriverError> {
    let queue = name(QueueName::new(get::<&str>(row, "queue")?))?;
    let key = name(IdempotencyKey::new(get::<&str>(row, "key")?))?;
    Ok(ExportedKey::new(queue, key, id(get(row, "job")?)?, time(get(row, "held_until")?)?))
}

/// The flow of a member as `sql/export.sql` tells it.
fn stored_flow(row: &Row) -> Result<ExportedFlow, DriverError> {
    let flow_name =
        get::<Option<&str>>(row, "flow_name")?.map(|text| name(FlowName::new(text))).transpose()?;
    let created_at = time(get(row, "flow_created_at")?)?;
    Ok(ExportedFlow::new(id(get(row, "flow")?)?, flow_name, created_at, id(get(row, "tail")?)?))
}

/// A job as `sql/export.sql` tells it.
fn stored(row: &Row) -> Result<ExportedJob, DriverError> {
    let mut new = record::new_job(row)?;
    new.max_attempts = optional_number(get(row, "max_attempts")?)?;
    let created_at = time(get(row, "created_at")?)?;
    let parents: Vec<&str> = get(row, "parent_ids")?;
    new.parents = parents.into_iter().map(id).collect::<Result<_, _>>()?;
    let edges = edges(row)?;

    let position = optional_time(get(row, "position")?)?.unwrap_or(created_at);
    let mut life = Life::in_stage(stage(row, &new.id)?, position);
    life.flow = optional_id(get(row, "flow")?)?;
    life.pending = edges.iter().filter(|edge| **edge == EdgeState::Open).count();
    life.priority = number(get(row, "priority")?)?;
    life.run_at = optional_time(get(row, "run_at")?)?;
    life.output = blob(get(row, "output")?);
    life.reason = text(get(row, "reason")?);
    life.expanded_into = optional_id(get(row, "expanded_id")?)?;
    life.started_at = optional_time(get(row, "started_at")?)?;
    life.deliveries = count(get(row, "deliveries")?)?;
    life.attempts = count(get(row, "attempts")?)?;
    life.expirations = count(get(row, "expirations")?)?;
    life.epoch = count(get(row, "epoch")?)?;
    life.attempt_limit = optional_number(get(row, "attempt_limit")?)?;
    life.progress = text(get(row, "progress")?);
    life.released = record::released(get(row, "released")?);
    life.errors = failures(row)?;
    Ok(ExportedJob::new(new, created_at, life, edges, get(row, "holds_key")?))
}

fn stage(row: &Row, id: &JobId) -> Result<Stage, DriverError> {
    if let Some(ended_as) = get::<Option<&str>>(row, "ended_as")? {
        let (at, kept_until) = (time(get(row, "finished_at")?)?, time(get(row, "kept_until")?)?);
        let token = lease_token(row, "settled_by", id)?;
        let by = token.map(|token| Lease::new(token, kept_until));
        return Ok(Stage::Finished(Finish::new(ended(ended_as)?, at, by)));
    }
    let lease =
        (get::<Option<i64>>(row, "lease_expires_at")?, lease_token(row, "lease_token", id)?);
    Ok(match (lease, get::<Option<&str>>(row, "holder")?) {
        ((Some(expires_at), Some(token)), Some(holder)) => {
            let (lease, holder) =
                (Lease::new(token, time(expires_at)?), name(Holder::new(holder))?);
            let hold = ActiveLease::new(lease, holder, get(row, "cancel_requested")?);
            let mark = get::<Option<&str>>(row, "lease_mark")?;
            Stage::Inflight(hold.marked(mark.map(lease_mark).transpose()?))
        }
        _ if get(row, "blocked")? => Stage::Blocked,
        _ => Stage::Waiting,
    })
}

fn lease_mark(name: &str) -> Result<LeaseMark, DriverError> {
    let mark = LeaseMark::ALL.into_iter().find(|mark| mark.as_str() == name);
    mark.ok_or_else(|| unknown("mark of a lease", name))
}

/// The token whose random half is in this column, as its store issued it. MOV-2.
fn lease_token(row: &Row, column: &str, id: &JobId) -> Result<Option<LeaseToken>, DriverError> {
    let Some(random) = get::<Option<i64>>(row, column)? else { return Ok(None) };
    let imported =
        (get::<Option<i64>>(row, "imported_for")?, get::<Option<Bits>>(row, "imported_token")?);
    Ok(Some(match imported {
        (Some(imported_for), Some(Bits(bits))) if imported_for == random => {
            LeaseToken::from_bits(bits)
        }
        _ => Token { random, seq: get(row, "seq")? }.lease_token(id),
    }))
}

/// The states of a job's edges.
fn edges(row: &Row) -> Result<Vec<EdgeState>, DriverError> {
    let edges: Vec<&str> = get(row, "edges")?;
    let states: Vec<Option<&str>> = get(row, "failed_states")?;
    let reasons: Vec<Option<&str>> = get(row, "failed_reasons")?;
    let all = edges.into_iter().zip(states).zip(reasons);
    let edges = all.map(|((edge, state), reason)| {
        Ok(match (edge, state) {
            ("open", _) => EdgeState::Open,
            ("closed", _) => EdgeState::Closed,
            ("failed", Some(state)) => {
                EdgeState::Spent { state: ended(state)?, reason: text(reason) }
            }
            (other, _) => return Err(unknown("state of an edge", other)),
        })
    });
    edges.collect()
}

fn head(flow: &ExportedFlow) -> Json {
    json!({
        "id": flow.id.as_str(),
        "name": flow.name.as_ref().map(FlowName::as_str),
        "created_at": flow.created_at.as_micros(),
        "tail": flow.tail.as_str(),
    })
}

/// A job as `th_import_v1` reads it. What is left out is NULL there, so only what says something is
/// sent: the server reads each job several times.
fn job(stored: &ExportedJob, native_token: i64) -> Json {
    let ExportedJob { new, created_at, life, edges, holds_key, .. } = stored;
    let micros = |at: Option<Timestamp>| at.map(Timestamp::as_micros);
    let headers: serde_json::Map<_, _> =
        new.headers.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    let (open, closed) = match (new.is_failure_job(), &life.flow) {
        (true, Some(_)) => ("waits_for_failure", "not_needed"),
        (true, None) => ("waits_for_failure", "satisfied"),
        (false, _) => ("waits_for_success", "satisfied"),
    };
    let parents = new.parents.iter().zip(edges).map(|(parent, edge)| match edge {
        EdgeState::Open => json!({"id": parent.as_str(), "status": open}),
        EdgeState::Closed => json!({"id": parent.as_str(), "status": closed}),
        EdgeState::Spent { state, reason } => json!({
            "id": parent.as_str(),
            "status": "failed",
            "state": state.as_str(),
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
    let by = hold.map(|hold| hold.lease).or_else(|| finish.and_then(|finish| finish.by));
    let counted = |count: u32| (count > 0).then_some(count);
    let mut job = json!({
        "id": new.id.as_str(),
        "queue": new.queue.as_str(),
        "lane": new.lane.as_ref().map(LaneName::as_str),
        "type": new.job_type.as_str(),
        "headers": (!headers.is_empty()).then_some(headers),
        "kind": column::kind(new),
        "key_hold": column::key_hold(new),
        "key_time": column::key_time(new),
        "on_failure": column::policy(new),
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
        "lease_expires_at": hold.map(|hold| hold.lease.expires_at.as_micros()),
        "token": by.map(|lease| format!("{:032x}", lease.token.to_bits())),
        "native_token": by.map(|_| native_token),
        "holder": hold.map(|hold| hold.holder.as_str()),
        "cancel": hold.is_some_and(|hold| hold.cancel_requested),
        "mark": hold.and_then(|hold| hold.mark).map(LeaseMark::as_str),
        "state": finish.map(|finish| finish.state.as_str()),
        "finished_at": finish.map(|finish| finish.at.as_micros()),
        "kept_until": micros(life.kept_until()),
        "started_at": micros(life.started_at),
        "deliveries": counted(life.deliveries),
        "attempts": counted(life.attempts),
        "expirations": counted(life.expirations),
        "epoch": counted(life.epoch),
        "attempt_limit": life.attempt_limit,
        "released": life.released.as_ref().map(ToString::to_string),
        "progress": life.progress.as_ref().map(taskharbor_core::Text::as_str),
        "reason": life.reason.as_ref().map(taskharbor_core::Text::as_str),
        "expanded_into": life.expanded_into.as_ref().map(JobId::as_str),
        "parents": parents.collect::<Vec<_>>(),
        "errors": errors.collect::<Vec<_>>(),
    });
    let says_something = |value: &Json| match value {
        Json::Null | Json::Bool(false) => false,
        Json::Array(items) => !items.is_empty(),
        _ => true,
    };
    if let Json::Object(fields) = &mut job {
        fields.retain(|_, value| says_something(value));
    }
    job
}
