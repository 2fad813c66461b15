//! Counts of jobs by queue and state.
//!
//! How many jobs of a queue are blocked, inflight or terminal is kept in a table, one row for each
//! queue, which a transaction writes once at its end. Jobs that wait are counted by their positions:
//! time alone tells which of them are ready, and counting them can stop at a cap.

use std::collections::BTreeMap;

use rusqlite::params;
use taskharbor_core::{
    QueueName, State,
    admin::{Counts, QueueCounts},
};

use super::{Store, earlier, enqueue::place};
use crate::{
    entry::{self, number, optional_time, text, time},
    error::Fault,
    statement as sql,
};

/// How many numbers stand for states.
const STATES: usize = 6;
/// The states that are counted in the table, in the order of its columns and of their numbers.
const COUNTED: [State; STATES - 1] =
    [State::Blocked, State::Inflight, State::Done, State::Dlq, State::Cancelled];

/// By how much the counts have changed.
#[derive(Debug, Default)]
pub(crate) struct Recount(Vec<(QueueName, [i64; STATES])>);

impl Recount {
    /// A job of this queue was in the state with the number `from` and is in another now. Jobs that
    /// wait are not counted, and so a job comes from there and goes there.
    pub(super) fn moved(&mut self, queue: &QueueName, from: i64, to: i64) {
        if from == to {
            return;
        }
        self.add(queue, from, -1);
        self.add(queue, to, 1);
    }

    /// This many more jobs of this queue are in the state with this number.
    pub(super) fn add(&mut self, queue: &QueueName, number: i64, more: i64) {
        let counts = self.of(queue);
        if let Some(count) = usize::try_from(number).ok().and_then(|at| counts.get_mut(at)) {
            *count += more;
        }
    }

    /// The queues that have fewer inflight jobs now.
    pub(super) fn freed(&self) -> impl Iterator<Item = &QueueName> {
        let has_fewer = |(_, [_, _, inflight, ..]): &&(QueueName, [i64; STATES])| *inflight < 0;
        self.0.iter().filter(has_fewer).map(|(queue, _)| queue)
    }

    /// What another call has changed.
    pub(crate) fn merge(&mut self, other: Self) {
        for (queue, counts) in other.0 {
            for (sum, more) in self.of(&queue).iter_mut().zip(counts) {
                *sum += more;
            }
        }
    }

    /// The counts of a queue. Calls are about few queues, and mostly about the one they were about
    /// before.
    fn of(&mut self, queue: &QueueName) -> &mut [i64; STATES] {
        let at = self.0.iter().rposition(|(of, _)| of == queue).unwrap_or_else(|| {
            self.0.push((queue.clone(), [0; STATES]));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }
}

impl Store<'_> {
    /// Writes by how much the counts have changed.
    pub(crate) fn write_counts(&self, recount: Recount) -> Result<(), Fault> {
        for (queue, [_, blocked, inflight, done, dlq, cancelled]) in recount.0 {
            if [blocked, inflight, done, dlq, cancelled] == [0; STATES - 1] {
                continue;
            }
            let row = params![queue.as_str(), blocked, inflight, done, dlq, cancelled];
            if self.execute(sql::ADD_COUNTS, row)? == 0 {
                self.execute(sql::FIRST_COUNTS, row)?;
            }
            // A queue that has fewer terminal jobs may be one that is not used any more.
            if done < 0 || dlq < 0 || cancelled < 0 {
                self.execute(sql::DROP_COUNTS, [queue.as_str()])?;
            }
        }
        Ok(())
    }

    pub(crate) fn counts(&self, request: &Counts) -> Result<Vec<QueueCounts>, Fault> {
        let mut queues = BTreeMap::new();
        let mut statement = self.statement(sql::COUNTS)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            if (1..STATES).all(|at| row.get(at) == Ok(0)) {
                continue;
            }
            let counts = counts_of(&mut queues, text(row, 0)?)?;
            for (at, state) in COUNTED.into_iter().enumerate() {
                *counts.states.get_mut(state) = number(row, at + 1)?;
            }
        }
        let mut statement = self.statement(sql::PAUSES)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            counts_of(&mut queues, text(row, 0)?)?.paused_since = optional_time(row, 1)?;
        }
        for waiting in [PLAIN, LANED] {
            let mut queue = String::new();
            while let Some(next) = self.find::<String>(waiting.next_queue, [&queue])? {
                queue = next;
                self.count_waiting(&waiting, counts_of(&mut queues, &queue)?, request)?;
            }
        }
        // ADM-4
        Ok(queues.into_values().collect())
    }

    /// Counts the jobs of a queue that wait, priority by priority.
    fn count_waiting(
        &self,
        waiting: &Waiting,
        counts: &mut QueueCounts,
        request: &Counts,
    ) -> Result<(), Fault> {
        let (queue, now) = (counts.queue.clone(), request.now.as_micros());
        let mut below = i64::from(i16::MAX) + 1;
        while let Some(priority) =
            self.find::<i64>(waiting.next_priority, params![queue.as_str(), below])?
        {
            below = priority;
            for (state, sql) in
                [(State::Ready, waiting.ready), (State::Scheduled, waiting.scheduled)]
            {
                let count = counts.states.get_mut(state);
                // ADM-14
                let left = request.at_most.map_or(-1, |most| place(most.saturating_sub(*count)));
                let row = params![queue.as_str(), priority, now, left];
                let found: i64 = self.find(sql, row)?.unwrap_or(0);
                *count += usize::try_from(found).map_err(|_| Fault::damaged("a number"))?;
            }
            let oldest = match waiting.is_laned {
                true => self.oldest_in_lines(queue.as_str(), priority, now)?,
                false => self.find(sql::OLDEST_READY, params![queue.as_str(), priority, now])?,
            };
            let oldest = oldest.map(time).transpose()?;
            counts.oldest_ready = earlier(counts.oldest_ready, oldest);
        }
        Ok(())
    }

    /// The position of the oldest ready job with a lane.
    fn oldest_in_lines(&self, queue: &str, priority: i64, now: i64) -> Result<Option<i64>, Fault> {
        let row = params![queue, priority, now, None::<&str>];
        let mut oldest: Option<i64> = self.find(sql::OLDEST_IN_LINE, row)?;
        let mut from = String::new();
        while let Some(line) =
            self.find::<String>(sql::NEXT_LINE, params![queue, priority, from])?
        {
            let first = self.find(sql::OLDEST_IN_LINE, params![queue, priority, now, line])?;
            oldest = [oldest, first].into_iter().flatten().min();
            // No name comes between one and the same with a NUL.
            from = line + "\0";
        }
        Ok(oldest)
    }
}

/// The statements that count jobs that wait: without a lane or with one.
struct Waiting {
    is_laned: bool,
    next_queue: &'static str,
    next_priority: &'static str,
    ready: &'static str,
    scheduled: &'static str,
}

const PLAIN: Waiting = Waiting {
    is_laned: false,
    next_queue: sql::NEXT_QUEUE,
    next_priority: sql::NEXT_PRIORITY,
    ready: sql::COUNT_READY,
    scheduled: sql::COUNT_SCHEDULED,
};

const LANED: Waiting = Waiting {
    is_laned: true,
    next_queue: sql::NEXT_LANED_QUEUE,
    next_priority: sql::NEXT_LANED_PRIORITY,
    ready: sql::COUNT_LANED_READY,
    scheduled: sql::COUNT_LANED_SCHEDULED,
};

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
