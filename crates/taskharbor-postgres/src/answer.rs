//! Reading what the functions of the store answer.

use std::fmt;

use taskharbor_core::{
    Blob, DriverError, JobId, QueueName, State, Text, Timestamp, job::Headers, name::NameError,
};
use tokio_postgres::{Row, row::RowIndex, types::FromSql};

/// A row of the answer to an enqueue or settle: the item, its result, and the reason; or, without
/// an item, the queues in which there is work now.
#[derive(Debug)]
pub struct AnswerRow {
    /// Which item, from one.
    pub ord: Option<i64>,
    /// Its result.
    pub verdict: Option<String>,
    /// What there is to say of it.
    pub detail: Option<String>,
    /// Queues in which there is work now.
    pub wakes: Option<Vec<String>>,
}

impl AnswerRow {
    pub(crate) fn read(row: &Row) -> Result<Self, DriverError> {
        Ok(Self {
            ord: get(row, "ord")?,
            verdict: get(row, "verdict")?,
            detail: get(row, "detail")?,
            wakes: get(row, "wakes")?,
        })
    }

    /// The position of its item in a list.
    pub(crate) fn at(&self) -> Option<usize> {
        self.ord.and_then(|ord| usize::try_from(ord - 1).ok())
    }
}

/// A column of a row, by its name or place.
pub(crate) fn get<'a, T: FromSql<'a>>(
    row: &'a Row,
    column: impl RowIndex + fmt::Display,
) -> Result<T, DriverError> {
    row.try_get(column).map_err(DriverError::backend)
}

pub(crate) fn name<T>(name: Result<T, NameError>) -> Result<T, DriverError> {
    name.map_err(DriverError::backend)
}

pub(crate) fn id(text: &str) -> Result<JobId, DriverError> {
    name(JobId::new(text))
}

pub(crate) fn optional_id(text: Option<&str>) -> Result<Option<JobId>, DriverError> {
    text.map(id).transpose()
}

pub(crate) fn time(micros: i64) -> Result<Timestamp, DriverError> {
    Timestamp::from_micros(micros).map_err(DriverError::backend)
}

pub(crate) fn optional_time(micros: Option<i64>) -> Result<Option<Timestamp>, DriverError> {
    micros.map(time).transpose()
}

pub(crate) fn number<T: TryFrom<i64>>(number: i64) -> Result<T, DriverError> {
    T::try_from(number).map_err(|_| DriverError::backend(format!("{number} is out of range")))
}

pub(crate) fn optional_number<T: TryFrom<i64>>(
    optional: Option<i64>,
) -> Result<Option<T>, DriverError> {
    optional.map(number).transpose()
}

/// A count, of which NULL is none.
pub(crate) fn count<T: TryFrom<i64>>(optional: Option<i64>) -> Result<T, DriverError> {
    number(optional.unwrap_or(0))
}

pub(crate) fn text(text: Option<&str>) -> Option<Text> {
    text.map(Text::new)
}

pub(crate) fn blob(bytes: Option<&[u8]>) -> Option<Blob> {
    bytes.map(Blob::from)
}

pub(crate) fn headers(json: Option<&str>) -> Result<Headers, DriverError> {
    let Some(json) = json else {
        return Ok(Headers::new());
    };
    let map: std::collections::BTreeMap<String, String> =
        serde_json::from_str(json).map_err(DriverError::backend)?;
    let all = map.iter().try_fold(Headers::new(), |all, (name, value)| all.with_any(name, value));
    all.map_err(DriverError::backend)
}

pub(crate) fn state(text: &str) -> Result<State, DriverError> {
    let found = State::ALL.iter().copied().find(|state| state.as_str() == text);
    found.ok_or_else(|| unknown("state", text))
}

/// The names of queues that are to be woken.
pub(crate) fn queues(names: Option<Vec<String>>) -> Vec<QueueName> {
    names.into_iter().flatten().filter_map(|name| QueueName::new(name).ok()).collect()
}

/// Something that only another version of the functions can have said.
pub(crate) fn unknown(what: &str, said: &str) -> DriverError {
    DriverError::ContractViolation(format!("the store answered the unknown {what} {said:?}"))
}
