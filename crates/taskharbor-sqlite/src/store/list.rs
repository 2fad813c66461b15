//! Lists of jobs and flows, a page at a time.
//!
//! A list goes by the numbers of its candidates, which an index gives in its order, and looks at one
//! record after the other until the page is full or the scan budget is used up.

use rusqlite::{Row, params};
use taskharbor_core::{
    Blob, JobType, QueueName, State, Timestamp,
    admin::{Cursor, Filter, List, Order, Page},
    error::InvalidRequest,
    flow::{FlowRecord, ListFlows},
    job::JobSummary,
    name::{FlowName, IdempotencyKey, LaneName},
};

use super::{Store, enqueue::place, micros, read::flow_id};
use crate::{
    body::{self, AFTER_BODY},
    entry::{self, number, number_of, optional_text, time},
    error::Fault,
    statement as sql,
};

/// How many candidates are read ahead of the records, unless they have to be sorted anew each time.
const CHUNK: usize = 1_000;

/// The candidates of a list.
enum Candidates {
    All,
    /// Dead-lettered or cancelled: the number of the state.
    Dead(i64),
    /// The members of a flow.
    Members(i64),
}

impl Store<'_> {
    pub(crate) fn list(&self, request: &List) -> Result<Page<JobSummary>, Fault> {
        let turn = Turn { of: "job", order: request.order };
        let mut from = turn.start(request.after.as_ref())?;
        let Some(candidates) = self.candidates(&request.filter)? else {
            return Ok(Page::new(Vec::new(), None));
        };
        let (mut items, mut scan) = (Vec::new(), request.scan);
        loop {
            let chunk = match candidates {
                Candidates::All | Candidates::Dead(_) => scan.min(CHUNK),
                Candidates::Members(_) => scan,
            };
            let seqs = self.next_candidates(&candidates, &turn, from, chunk)?;
            let is_last = seqs.len() < chunk;
            for seq in seqs {
                from = seq;
                scan -= 1;
                items.extend(self.list_row(seq, request)?);
                // ADM-2, ADM-12
                if items.len() == request.limit || scan == 0 {
                    let looked_at = self.find(sql::CREATED_AT, [seq])?.map(time).transpose()?;
                    return Ok(Page::new(items, Some(turn.cursor(seq))).looked_at(looked_at));
                }
            }
            if is_last {
                return Ok(Page::new(items, None));
            }
        }
    }

    /// Where to look for jobs that match; `None` if there are none.
    fn candidates(&self, filter: &Filter) -> Result<Option<Candidates>, Fault> {
        Ok(match (&filter.flow, filter.state) {
            (Some(flow), _) => self.flow_by_id(flow)?.map(Candidates::Members),
            (None, Some(state @ (State::Dlq | State::Cancelled))) => {
                Some(Candidates::Dead(number_of(state)))
            }
            (None, _) => Some(Candidates::All),
        })
    }

    fn next_candidates(
        &self,
        candidates: &Candidates,
        turn: &Turn,
        from: i64,
        limit: usize,
    ) -> Result<Vec<i64>, Fault> {
        let (after, before, of) = match candidates {
            Candidates::All => (sql::JOBS_AFTER, sql::JOBS_BEFORE, None),
            Candidates::Dead(state) => (sql::DEAD_AFTER, sql::DEAD_BEFORE, Some(state)),
            Candidates::Members(flow) => (sql::MEMBERS_AFTER, sql::MEMBERS_BEFORE, Some(flow)),
        };
        let sql = turn.choose(after, before);
        match of {
            Some(of) => self.find_all(sql, [from, place(limit), *of]),
            None => self.find_all(sql, [from, place(limit)]),
        }
    }

    /// The line that stands for a job, if the job matches.
    fn list_row(&self, seq: i64, request: &List) -> Result<Option<JobSummary>, Fault> {
        let filter = &request.filter;
        let mut statement = self.statement(sql::LIST_ROW)?;
        let mut rows = statement.query(params![
            seq,
            filter.queue.as_ref().map(QueueName::as_str),
            filter.state.map(number_of),
            filter.job_type.as_ref().map(JobType::as_str),
            filter.key.as_ref().map(IdempotencyKey::as_str),
            micros(filter.created.from),
            micros(filter.created.before),
            micros(filter.finished.from),
            micros(filter.finished.before),
            filter.error.as_ref(),
            filter.lane.as_ref().map(LaneName::as_str),
        ])?;
        match rows.next()? {
            Some(row) => summary(row, filter, request.now),
            None => Ok(None),
        }
    }

    pub(crate) fn list_flows(&self, request: &ListFlows) -> Result<Page<FlowRecord>, Fault> {
        let turn = Turn { of: "flow", order: request.order };
        let from = turn.start(request.after.as_ref())?;
        let name = request.name.as_ref().map(FlowName::as_str);
        let sql = match name {
            Some(_) => turn.choose(sql::NAMED_FLOWS_AFTER, sql::NAMED_FLOWS_BEFORE),
            None => turn.choose(sql::FLOWS_AFTER, sql::FLOWS_BEFORE),
        };
        let mut statement = self.statement(sql)?;
        let mut rows = statement.query(params![from, name])?;
        let mut items = Vec::new();
        // ADM-9
        while let Some(row) = rows.next()? {
            let flow = self.read_flow(row, request.now)?;
            items.extend(Some(flow).filter(|flow| request.matches(flow)));
            if items.len() == request.limit {
                return Ok(Page::new(items, Some(turn.cursor(row.get(0)?))));
            }
        }
        Ok(Page::new(items, None))
    }
}

fn summary(row: &Row<'_>, filter: &Filter, now: Timestamp) -> Result<Option<JobSummary>, Fault> {
    let mut entry = entry::read(row)?;
    entry.life.flow = flow_id(row, AFTER_BODY + 1)?;
    let body = body::read(row, &entry, Blob::from(&[]))?;
    let last_error = optional_text(row, AFTER_BODY + 2)?;
    let job = body.summary(&entry.life, last_error, number(row, AFTER_BODY)?, now);
    let key = body.new.idempotency_key.as_ref();
    Ok(filter.matches(&job, key, &body.new.headers).then_some(job))
}

/// Which list, and which way it goes.
struct Turn {
    of: &'static str,
    order: Order,
}

impl Turn {
    fn choose(&self, oldest_first: &'static str, newest_first: &'static str) -> &'static str {
        match self.order {
            Order::OldestFirst => oldest_first,
            Order::NewestFirst => newest_first,
        }
    }

    /// Cursors say of what list and in which order they are a position, so that one list does not
    /// take another's.
    fn prefix(&self) -> String {
        format!("{}{}", self.of, self.choose(">", "<"))
    }

    fn cursor(&self, seq: i64) -> Cursor {
        Cursor::new(format!("{}{seq}", self.prefix()))
    }

    /// The number behind which a page begins.
    fn start(&self, cursor: Option<&Cursor>) -> Result<i64, InvalidRequest> {
        match (cursor, self.order) {
            // ADM-13
            (Some(cursor), _) => number_in(cursor, &self.prefix()).ok_or(InvalidRequest::Cursor),
            (None, Order::OldestFirst) => Ok(0),
            (None, Order::NewestFirst) => Ok(i64::MAX),
        }
    }
}

/// The number that follows `prefix` in a cursor.
pub(super) fn number_in(cursor: &Cursor, prefix: &str) -> Option<i64> {
    let digits = cursor.as_str().strip_prefix(prefix)?;
    digits.bytes().all(|it| it.is_ascii_digit()).then(|| digits.parse().ok())?
}
