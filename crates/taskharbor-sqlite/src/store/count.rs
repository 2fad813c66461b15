//! Counts of jobs by queue and state.
//!
//! How many jobs of a queue are blocked, inflight or terminal is kept in a table, which each call
//! writes once at its end. Jobs that wait are counted by their positions: time alone tells which of
//! them are ready, and counting them can stop at a cap.

use std::collections::BTreeMap;

use rusqlite::params;
use taskharbor_core::{
    QueueName, State, Timestamp,
    admin::{Counts, QueueCounts},
};

use super::{Store, enqueue::place};
use crate::{
    entry::{self, ended_as, number, optional_time, state, text, time},
    error::Fault,
    statement as sql,
};

/// How many numbers stand for states.
const STATES: usize = 6;

/// By how much the counts have changed in this call.
#[derive(Debug, Default)]
pub(super) struct Recount(Vec<(QueueName, [i64; STATES])>);

impl Recount {
    /// A job of this queue was in the state with the number `from` and is in another now. Jobs that
    /// wait are not counted, and so a job comes from there and goes there.
    pub(super) fn moved(&mut self, queue: &QueueName, from: i64, to: i64) {
        if from == to {
            return;
        }
        // Calls are about few queues, and mostly about the one they were about before.
        let at = self.0.iter().rposition(|(of, _)| of == queue).unwrap_or_else(|| {
            self.0.push((queue.clone(), [0; STATES]));
            self.0.len() - 1
        });
        let counts = &mut self.0[at].1;
        for (number, more) in [(from, -1), (to, 1)] {
            if let Some(count) = usize::try_from(number).ok().and_then(|at| counts.get_mut(at)) {
                *count += more;
            }
        }
    }
}

impl Store<'_> {
    /// Writes by how much the counts have changed.
    pub(super) fn write_counts(&mut self) -> Result<(), Fault> {
        for (queue, counts) in std::mem::take(&mut self.recount).0 {
            for (number, more) in (0..).zip(counts) {
                if more == 0 || number == state::WAITING {
                    continue;
                }
                let row = params![queue.as_str(), number, more];
                let left: Option<i64> = self.find(sql::ADD_COUNT, row)?;
                // A queue without terminal jobs may be one that is not used any more.
                if left == Some(0) && number >= state::DONE {
                    self.execute(sql::DROP_COUNTS, [queue.as_str()])?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn counts(&self, request: &Counts) -> Result<Vec<QueueCounts>, Fault> {
        let mut queues = BTreeMap::new();
        let mut statement = self.statement(sql::COUNTS)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let counts = counts_of(&mut queues, text(row, 0)?)?;
            *counts.states.get_mut(counted_as(row.get(1)?)?) = number(row, 2)?;
        }
        let mut statement = self.statement(sql::PAUSES)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            counts_of(&mut queues, text(row, 0)?)?.paused_since = optional_time(row, 1)?;
        }
        let mut queue = String::new();
        while let Some(next) = self.find::<String>(sql::NEXT_QUEUE, [&queue])? {
            queue = next;
            self.count_waiting(counts_of(&mut queues, &queue)?, request)?;
        }
        // ADM-4
        Ok(queues.into_values().collect())
    }

    /// Counts the jobs of a queue that wait, priority by priority.
    fn count_waiting(&self, counts: &mut QueueCounts, request: &Counts) -> Result<(), Fault> {
        let (queue, now) = (counts.queue.clone(), request.now.as_micros());
        let mut below = i64::from(i16::MAX) + 1;
        while let Some(priority) =
            self.find::<i64>(sql::NEXT_PRIORITY, params![queue.as_str(), below])?
        {
            below = priority;
            for (state, sql) in
                [(State::Ready, sql::COUNT_READY), (State::Scheduled, sql::COUNT_SCHEDULED)]
            {
                let count = counts.states.get_mut(state);
                // ADM-14
                let left = request.at_most.map_or(-1, |most| place(most.saturating_sub(*count)));
                let row = params![queue.as_str(), priority, now, left];
                let found: i64 = self.find(sql, row)?.unwrap_or(0);
                *count += usize::try_from(found).map_err(|_| Fault::damaged("a number"))?;
            }
            let row = params![queue.as_str(), priority, now];
            if let Some(at) = self.find::<i64>(sql::OLDEST_READY, row)? {
                let oldest = counts.oldest_ready.map_or(i64::MAX, Timestamp::as_micros);
                counts.oldest_ready = Some(time(at.min(oldest))?);
            }
        }
        Ok(())
    }
}

/// The state under which jobs with this number are counted.
fn counted_as(number: i64) -> Result<State, Fault> {
    match number {
        state::BLOCKED => Ok(State::Blocked),
        state::INFLIGHT => Ok(State::Inflight),
        other => ended_as(other),
    }
}

fn counts_of<'a>(
    queues: &'a mut BTreeMap<String, QueueCounts>,
    queue: &str,
) -> Result<&'a mut QueueCounts, Fault> {
    if !queues.contains_key(queue) {
        let counts = QueueCounts::new(entry::name(QueueName::new(queue))?);
        queues.insert(queue.to_owned(), counts);
    }
    queues.get_mut(queue).ok_or_else(|| Fault::damaged("a queue"))
}
