//! [`Entry`]: the narrow row of a job, as the life that core knows the rules of.
//!
//! Two things are left in the store when a row is read to be changed: what the job produced, which
//! is there only when nothing changes any more, and its recorded failures. So of an entry's life,
//! `errors` are those to be added, and an output is one to be written.

use rusqlite::{Row, types::ValueRef};
use taskharbor_core::{
    JobId, QueueName, State, Text, Timestamp,
    driver::{Lease, LeaseToken},
    job::{FailurePolicy, JobKind, KeyHold},
    life::{ActiveLease, Finish, Life, Stage},
    name::Holder,
};

use crate::error::Fault;

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
pub(crate) const COLUMNS: usize = 30;

/// A job as its narrow row has it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) seq: i64,
    pub(crate) id: JobId,
    pub(crate) queue: QueueName,
    pub(crate) kind: JobKind,
    pub(crate) key_hold: KeyHold,
    pub(crate) on_failure: FailurePolicy,
    /// Whether it was enqueued with a key.
    pub(crate) keyed: bool,
    /// The number of its flow, which stands for that of its life.
    pub(crate) flow: Option<i64>,
    /// The number of the job it grew into.
    pub(crate) grown: Option<i64>,
    /// How many failures were recorded in all.
    pub(crate) failures: i64,
    pub(crate) life: Life,
}

impl Entry {
    pub(crate) fn is_over(&self) -> bool {
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

/// The state that a number stands for at `now`, of a job that may be granted from `at` on.
pub(crate) fn state_of(number: i64, at: Option<i64>, now: Timestamp) -> Result<State, Fault> {
    Ok(match number {
        state::WAITING if at.is_some_and(|at| at <= now.as_micros()) => State::Ready,
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
    let grown = row.get(22)?;
    let expanded_into = match grown {
        Some(_) => Some(name(JobId::new(text(row, 26)?))?),
        None => None,
    };
    let life = Life {
        stage: stage(row)?,
        run_at: optional_time(row, 17)?,
        due_at: time(row.get(3)?)?,
        priority: number(row, 4)?,
        attempts: number(row, 10)?,
        attempt_limit: optional_number(row, 21)?,
        errors: Vec::new(),
        deliveries: number(row, 11)?,
        started_at: optional_time(row, 18)?,
        expirations: number(row, 12)?,
        epoch: number(row, 13)?,
        pending: number(row, 5)?,
        progress: optional_text(row, 28)?,
        output: None,
        reason: optional_text(row, 29)?,
        flow: None,
        expanded_into,
    };
    Ok(Entry {
        seq: row.get(0)?,
        id,
        queue,
        kind: if row.get::<_, i64>(6)? == 0 { JobKind::Work } else { JobKind::Join },
        key_hold: if row.get::<_, i64>(7)? == 0 {
            KeyHold::UntilPruned
        } else {
            KeyHold::UntilDone
        },
        on_failure: policy(row.get(8)?)?,
        keyed: row.get::<_, i64>(9)? != 0,
        flow: row.get(16)?,
        grown,
        failures: row.get(14)?,
        life,
    })
}

fn stage(row: &Row<'_>) -> Result<Stage, Fault> {
    Ok(match row.get(1)? {
        state::WAITING => Stage::Waiting,
        state::BLOCKED => Stage::Blocked,
        state::INFLIGHT => {
            let lease = lease(row)?.ok_or_else(|| Fault::damaged("a lease"))?;
            let holder = name(Holder::new(text(row, 25)?))?;
            let cancel_requested = row.get::<_, i64>(15)? != 0;
            Stage::Inflight(ActiveLease { lease, holder, cancel_requested })
        }
        other => {
            let at = optional_time(row, 20)?.ok_or_else(|| Fault::damaged("an end"))?;
            Stage::Finished(Finish { state: ended_as(other)?, at, by: lease(row)? })
        }
    })
}

fn lease(row: &Row<'_>) -> Result<Option<Lease>, Fault> {
    let Some(expires_at) = optional_time(row, 19)? else { return Ok(None) };
    let bits = match row.get_ref(27)? {
        ValueRef::Blob(bytes) => <[u8; 16]>::try_from(bytes).ok().map(u128::from_be_bytes),
        _ => None,
    };
    let token = LeaseToken::from_bits(bits.ok_or_else(|| Fault::damaged("a token"))?);
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

pub(crate) fn name<T, E>(made: Result<T, E>) -> Result<T, Fault> {
    made.map_err(|_| Fault::damaged("a name"))
}
