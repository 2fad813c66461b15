//! Reads of jobs, queues and flows for operators.

use std::{collections::BTreeMap, ops::Bound};

use taskharbor_core::{
    Timestamp,
    admin::{Cursor, List, ListSettings, Order, Page, QueueCounts, Setting},
    error::InvalidRequest,
    flow::{FlowRecord, ListFlows},
    job::{JobRecord, JobSummary},
    life::Stage,
};

use crate::{
    queue::{Position, Queue},
    store::{JobSlot, Store},
};

impl Store {
    /// All there is to know about a job. ADM-1.
    pub(crate) fn inspect(&self, slot: JobSlot, now: Timestamp) -> JobRecord {
        let entry = &self.jobs[slot];
        let held_back = self.queues[entry.queue].gate.held_back(&entry.new.lane, now);
        self.record(slot, now).held_back(held_back)
    }

    fn record(&self, slot: JobSlot, now: Timestamp) -> JobRecord {
        let entry = &self.jobs[slot];
        let parents = entry.new.parents.clone();
        JobRecord::assemble(&entry.new, entry.created_at, &entry.life, parents, now)
    }

    pub(crate) fn list(&self, request: &List) -> Result<Page<JobSummary>, InvalidRequest> {
        let none = BTreeMap::new();
        let candidates = match &request.filter.flow {
            Some(id) => self.flow_ids.get(id).map_or(&none, |flow| &self.flows[*flow].members),
            None => &self.by_seq,
        };
        let turn = Turn { of: "job", order: request.order, after: request.after.as_ref() };
        let mut looked_at = None;
        // ADM-12
        let page = page(&turn, candidates, request.limit, request.scan, |slot| {
            let new = &self.jobs[slot].new;
            looked_at = Some(self.jobs[slot].created_at);
            let job = self.record(slot, request.now).summary();
            let key = new.idempotency_key.as_ref();
            request.filter.matches(&job, key, &new.headers).then_some(job)
        })?;
        let is_last = page.next.is_none();
        Ok(page.looked_at(looked_at.filter(|_| !is_last)))
    }

    pub(crate) fn list_flows(
        &self,
        request: &ListFlows,
    ) -> Result<Page<FlowRecord>, InvalidRequest> {
        let turn = Turn { of: "flow", order: request.order, after: request.after.as_ref() };
        // ADM-9
        page(&turn, &self.flows_by_seq, request.limit, usize::MAX, |flow| {
            let flow = self.flow_record(flow, request.now);
            request.matches(&flow).then_some(flow)
        })
    }

    pub(crate) fn settings(&self, request: &ListSettings) -> Result<Page<Setting>, InvalidRequest> {
        let begin = request.begin()?;
        let mut paused: Vec<_> = self
            .queues
            .iter()
            .filter_map(|(_, queue)| Some((&queue.name, queue.paused_since?)))
            .collect();
        // PAU-3
        paused.sort();
        let paused = paused
            .into_iter()
            .map(|(queue, since)| Setting::PausedQueue { queue: queue.clone(), since });
        let owners = self.schedules.owners.iter();
        let owners = owners
            .map(|(owner, version)| Setting::Owner { owner: owner.clone(), version: *version });
        let schedules = self.schedules.records.values();
        let schedules = schedules.map(|record| Setting::Schedule(Box::new(record.clone())));
        let wanted = |setting: &Setting| {
            let at = (setting.kind(), setting.name());
            begin.is_none_or(|begin| at > begin)
                && request.kind.is_none_or(|kind| kind == at.0)
                && request.name.as_ref().is_none_or(|name| name == at.1)
        };
        let mut settings =
            paused.chain(owners).chain(schedules).chain(self.limit_settings()).filter(wanted);
        let page: Vec<_> = settings.by_ref().take(request.limit).collect();
        let last = page.last().map(Setting::cursor).filter(|_| settings.next().is_some());
        Ok(Page::new(page, last))
    }

    /// Exact above the cap, too: most counts are kept up to date, and ready jobs are counted one by one.
    pub(crate) fn counts(&self, now: Timestamp) -> Vec<QueueCounts> {
        // ADM-4. A queue that has nothing but limits or a hold is not counted.
        let is_counted = |queue: &&Queue| queue.counts.total() > 0 || queue.paused_since.is_some();
        let mut all: Vec<_> =
            self.queues.iter().map(|(_, queue)| queue).filter(is_counted).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        let counted = all.into_iter().map(|queue| {
            let waiting = |place: &&Position| self.jobs[place.2].life.stage == Stage::Waiting;
            let ready: Vec<Timestamp> =
                queue.available(now).filter(waiting).map(|(due_at, ..)| *due_at).collect();
            // ADM-14
            let mut counts = QueueCounts::new(queue.name.clone());
            counts.states = queue.counts;
            counts.states.scheduled = counts.states.ready - ready.len();
            counts.states.ready = ready.len();
            counts.oldest_ready = ready.into_iter().min();
            counts.paused_since = queue.paused_since;
            counts
        });
        counted.collect()
    }
}

/// Where a page begins and which way it goes.
struct Turn<'a> {
    of: &'static str,
    order: Order,
    after: Option<&'a Cursor>,
}

impl Turn<'_> {
    /// Cursors say of what list and in which order they are a position, so that one list does not
    /// take another's.
    fn prefix(&self) -> String {
        match self.order {
            Order::OldestFirst => format!("{}>", self.of),
            Order::NewestFirst => format!("{}<", self.of),
        }
    }

    fn cursor(&self, seq: u64) -> Cursor {
        Cursor::new(format!("{}{seq}", self.prefix()))
    }

    /// The candidates from here on.
    fn range(&self) -> Result<(Bound<u64>, Bound<u64>), InvalidRequest> {
        let Some(cursor) = self.after else { return Ok((Bound::Unbounded, Bound::Unbounded)) };
        let seq = cursor.as_str().strip_prefix(&self.prefix()).and_then(|seq| seq.parse().ok());
        // ADM-13
        let from = Bound::Excluded(seq.ok_or(InvalidRequest::Cursor)?);
        Ok(match self.order {
            Order::OldestFirst => (from, Bound::Unbounded),
            Order::NewestFirst => (Bound::Unbounded, from),
        })
    }
}

/// The first `limit` candidates that `show` does not pass over, of no more than `scan`.
fn page<T>(
    turn: &Turn<'_>,
    candidates: &BTreeMap<u64, usize>,
    limit: usize,
    scan: usize,
    mut show: impl FnMut(usize) -> Option<T>,
) -> Result<Page<T>, InvalidRequest> {
    let mut range = candidates.range(turn.range()?);
    let mut items = Vec::new();
    // ADM-2
    for looked in 1.. {
        let next = match turn.order {
            Order::OldestFirst => range.next(),
            Order::NewestFirst => range.next_back(),
        };
        let Some((seq, candidate)) = next else { break };
        items.extend(show(*candidate));
        if items.len() == limit || looked == scan {
            return Ok(Page::new(items, Some(turn.cursor(*seq))));
        }
    }
    Ok(Page::new(items, None))
}
