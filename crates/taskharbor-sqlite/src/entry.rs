//! [`Entry`]: the narrow row of a job, as the life that core knows the rules of.
//!
//! Two things are left in the store when a row is read to be changed: what the job produced, which
//! is there only when nothing changes any more, and its recorded failures. So of an entry's life,
//! `errors` are those to be added, and an output is one to be written.

use std::time::Duration;

use rusqlite::{Row, types::ValueRef};
use taskharbor_core::{
    JobId, QueueName, State, Text, Timestamp,
    driver::{Lease, LeaseMark},
    job::{Condition, FailurePolicy, JobKind, JoinReading, KeyHold, ReleaseNote},
    life::{ActiveLease, Finish, Life, Stage},
    name::{Holder, LaneName},
};

use crate::{error::Fault, token::from_stored};

/// The states as the store keeps them.
pub(crate) mod state {
    pub(crate) const WAITING: i64 = 0;
    pub(crate) const BLOCKED: i64 = 1;
    pub(crate) const INFLIGHT: i64 = 2;
    pub(crate) const DONE: i64 = 3;
    pub(crate) const DLQ: i64 = 4;
    pub(crate) const CANCELLED: i64 = 5;
}

/// How many columns a narrow row has.
pub(crate) const COLUMNS: usize = 34;

/// A job as its narrow row has it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) seq: i64,
    pub(crate) id: JobId,
    pub(crate) queue: QueueName,
    pub(crate) lane: Option<LaneName>,
    pub(crate) kind: JobKind,
    pub(crate) condition: Condition,
    pub(crate) key_hold: KeyHold,
    pub(crate) on_failure: FailurePolicy,
    /// Whether it was enqueued with a key.
    pub(crate) keyed: bool,
    /// The number of its flow, which stands for that of its life.
    pub(crate) flow: Option<i64>,
    /// The number of the job that it expanded into.
    pub(crate) expanded: Option<i64>,
    /// How many failures were recorded in all.
    pub(crate) failures: i64,
    /// The number of the state that is in the row.
    pub(crate) stored_state: i64,
    pub(crate) life: Life,
}

impl Entry {
    pub(crate) fn is_terminal(&self) -> bool {
        self.life.finish().is_some()
    }
}

pub(crate) fn number_of(state: State) -> i64 {
    match state {
        State::Blocked => state::BLOCKED,
        State::Inflight => state::INFLIGHT,
        State::Done => state::DONE,
        State::Dlq => state::DLQ,
        State::Cancelled => state::CANCELLED,
        _ => state::WAITING,
    }
}

/// The number under which the store keeps where a life stands.
pub(crate) fn stage_number(life: &Life) -> i64 {
    match &life.stage {
        Stage::Waiting => state::WAITING,
        Stage::Blocked => state::BLOCKED,
        Stage::Inflight(_) => state::INFLIGHT,
        Stage::Finished(finish) => number_of(finish.state),
    }
}

/// The state that a number stands for at `now`, of a job that is available from
/// `available_at` on.
pub(crate) fn state_of(
    number: i64,
    available_at: Option<i64>,
    now: Timestamp,
) -> Result<State, Fault> {
    Ok(match number {
        state::WAITING if available_at.is_some_and(|at| at <= now.as_micros()) => State::Ready,
        state::WAITING => State::Scheduled,
        state::BLOCKED => State::Blocked,
        state::INFLIGHT => State::Inflight,
        other => ended_as(other)?,
    })
}

pub(crate) fn ended_as(number: i64) -> Result<State, Fault> {
    match number {
        state::DONE => Ok(State::Done),
        state::DLQ => Ok(State::Dlq),
        state::CANCELLED => Ok(State::Cancelled),
        _ => Err(Fault::damaged("a state")),
    }
}

/// The row as it is read by the statements that start with its columns.
pub(crate) fn read(row: &Row<'_>) -> Result<Entry, Fault> {
    let queue = name(QueueName::new(text(row, 24)?))?;
    let id = name(JobId::new(text(row, 23)?))?;
    read_known(row, id, queue)
}

/// As [`read`], where the names are known and need not be made anew.
pub(crate) fn read_known(row: &Row<'_>, id: JobId, queue: QueueName) -> Result<Entry, Fault> {
    let expanded: Option<i64> = row.get(22)?;
    let mut life = Life::in_stage(stage(row, &id)?, time(row.get(3)?)?);
    life.run_at = optional_time(row, 17)?;
    life.priority = number(row, 4)?;
    life.attempts = number(row, 10)?;
    life.attempt_limit = optional_number(row, 21)?;
    life.deliveries = number(row, 11)?;
    life.started_at = optional_time(row, 18)?;
    life.expirations = number(row, 12)?;
    life.epoch = number(row, 13)?;
    life.pending = number(row, 5)?;
    life.progress = optional_text(row, 28)?;
    life.reason = optional_text(row, 29)?;
    life.released = released(row, 32)?;
    if expanded.is_some() {
        life.expanded_into = Some(name(JobId::new(text(row, 26)?))?);
    }
    let (kind, condition) = kind(row.get(6)?)?;
    Ok(Entry {
        seq: row.get(0)?,
        id,
        queue,
        lane: lane(row, 33)?,
        kind,
        condition,
        key_hold: key_hold(row.get(7)?, optional_number(row, 30)?)?,
        on_failure: policy(row.get(8)?)?,
        keyed: row.get::<_, i64>(9)? != 0,
        flow: row.get(16)?,
        expanded,
        failures: row.get(14)?,
        stored_state: row.get(1)?,
        life,
    })
}

/// The number under which the store keeps what a job is.
pub(crate) fn kind_number(kind: JobKind, condition: Condition) -> i64 {
    match (kind, condition) {
        (JobKind::Work, Condition::ParentsDone) => 0,
        (JobKind::Work, Condition::ParentsFailed) => 1,
        (JobKind::Join(JoinReading::List), _) => 2,
        (JobKind::Join(JoinReading::Gather), _) => 3,
        (JobKind::Join(JoinReading::Empty), _) => 4,
        (JobKind::Join(JoinReading::Discard), _) => 5,
        (JobKind::Join(JoinReading::First), _) => 6,
    }
}

pub(crate) fn kind(number: i64) -> Result<(JobKind, Condition), Fault> {
    let reading = match number {
        0 => return Ok((JobKind::Work, Condition::ParentsDone)),
        1 => return Ok((JobKind::Work, Condition::ParentsFailed)),
        2 => JoinReading::List,
        3 => JoinReading::Gather,
        4 => JoinReading::Empty,
        5 => JoinReading::Discard,
        6 => JoinReading::First,
        _ => return Err(Fault::damaged("a kind")),
    };
    Ok((JobKind::Join(reading), Condition::ParentsDone))
}

/// The number under which the store keeps how long a key is held, and the time in microseconds if
/// it is held for one.
pub(crate) fn key_hold_number(hold: KeyHold) -> (i64, Option<i64>) {
    match hold {
        KeyHold::UntilPruned => (0, None),
        KeyHold::UntilDone => (1, None),
        KeyHold::UntilTerminal => (2, None),
        // KEY-11: the range was checked, so nothing is cut off.
        KeyHold::For(time) => (3, Some(i64::try_from(time.as_micros()).unwrap_or(i64::MAX))),
    }
}

fn key_hold(number: i64, micros: Option<u64>) -> Result<KeyHold, Fault> {
    match (number, micros) {
        (0, _) => Ok(KeyHold::UntilPruned),
        (1, _) => Ok(KeyHold::UntilDone),
        (2, _) => Ok(KeyHold::UntilTerminal),
        (3, Some(micros)) => Ok(KeyHold::For(Duration::from_micros(micros))),
        _ => Err(Fault::damaged("a time for which a key is held")),
    }
}

fn stage(row: &Row<'_>, id: &JobId) -> Result<Stage, Fault> {
    Ok(match row.get(1)? {
        state::WAITING => Stage::Waiting,
        state::BLOCKED => Stage::Blocked,
        state::INFLIGHT => {
            let lease = lease(row, id)?.ok_or_else(|| Fault::damaged("a lease"))?;
            let holder = name(Holder::new(text(row, 25)?))?;
            let cancel_requested = row.get::<_, i64>(15)? != 0;
            let mark = match row.get(31)? {
                0 => None,
                1 => Some(LeaseMark::Started),
                2 => Some(LeaseMark::Leaving),
                _ => return Err(Fault::damaged("a mark of a lease")),
            };
            Stage::Inflight(ActiveLease::new(lease, holder, cancel_requested).marked(mark))
        }
        other => {
            let at = optional_time(row, 20)?.ok_or_else(|| Fault::damaged("an end"))?;
            Stage::Finished(Finish::new(ended_as(other)?, at, lease(row, id)?))
        }
    })
}

/// How `stage` reads it.
pub(crate) const fn mark_number(mark: Option<LeaseMark>) -> i64 {
    match mark {
        None => 0,
        Some(LeaseMark::Started) => 1,
        Some(LeaseMark::Leaving) => 2,
    }
}

fn lease(row: &Row<'_>, id: &JobId) -> Result<Option<Lease>, Fault> {
    let Some(expires_at) = optional_time(row, 19)? else { return Ok(None) };
    let token = match row.get_ref(27)? {
        ValueRef::Blob(bytes) => from_stored(bytes, id, row.get(0)?),
        _ => None,
    };
    let token = token.ok_or_else(|| Fault::damaged("a token"))?;
    Ok(Some(Lease::new(token, expires_at)))
}

pub(crate) fn policy_number(policy: FailurePolicy) -> i64 {
    match policy {
        FailurePolicy::Block => 0,
        FailurePolicy::Cancel => 1,
        FailurePolicy::FailFast => 2,
        FailurePolicy::Continue => 3,
    }
}

fn policy(number: i64) -> Result<FailurePolicy, Fault> {
    match number {
        0 => Ok(FailurePolicy::Block),
        1 => Ok(FailurePolicy::Cancel),
        2 => Ok(FailurePolicy::FailFast),
        3 => Ok(FailurePolicy::Continue),
        _ => Err(Fault::damaged("a policy")),
    }
}

/// A time as the store keeps it (TIM-2).
pub(crate) fn time(micros: i64) -> Result<Timestamp, Fault> {
    Timestamp::from_micros(micros).map_err(|_| Fault::damaged("a time"))
}

pub(crate) fn optional_time(row: &Row<'_>, at: usize) -> Result<Option<Timestamp>, Fault> {
    row.get::<_, Option<i64>>(at)?.map(time).transpose()
}

pub(crate) fn number<T: TryFrom<i64>>(row: &Row<'_>, at: usize) -> Result<T, Fault> {
    T::try_from(row.get::<_, i64>(at)?).map_err(|_| Fault::damaged("a number"))
}

pub(crate) fn optional_number<T: TryFrom<i64>>(
    row: &Row<'_>,
    at: usize,
) -> Result<Option<T>, Fault> {
    let found = row.get::<_, Option<i64>>(at)?;
    found.map(|it| T::try_from(it).map_err(|_| Fault::damaged("a number"))).transpose()
}

pub(crate) fn text<'a>(row: &'a Row<'_>, at: usize) -> Result<&'a str, Fault> {
    row.get_ref(at)?.as_str().map_err(|_| Fault::damaged("a text"))
}

pub(crate) fn optional_text(row: &Row<'_>, at: usize) -> Result<Option<Text>, Fault> {
    match row.get_ref(at)? {
        ValueRef::Null => Ok(None),
        found => Ok(Some(Text::new(found.as_str().map_err(|_| Fault::damaged("a text"))?))),
    }
}

pub(crate) fn lane(row: &Row<'_>, at: usize) -> Result<Option<LaneName>, Fault> {
    match row.get_ref(at)? {
        ValueRef::Null => Ok(None),
        _ => Ok(Some(name(LaneName::new(text(row, at)?))?)),
    }
}

/// SET-12
fn released(row: &Row<'_>, at: usize) -> Result<Option<ReleaseNote>, Fault> {
    let stored = row.get_ref(at)?.as_str_or_null().map_err(|_| Fault::damaged("a text"))?;
    Ok(stored.and_then(ReleaseNote::parse))
}

pub(crate) fn name<T, E>(made: Result<T, E>) -> Result<T, Fault> {
    made.map_err(|_| Fault::damaged("a name"))
}
