//! What people see of jobs, queues and flows.

use std::{collections::BTreeMap, ops::Bound};

use taskharbor_core::{
    Timestamp,
    admin::{Cursor, List, Page, QueueCounts},
    error::InvalidRequest,
    flow::{FlowRecord, ListFlows},
    job::{JobRecord, JobSummary},
    life::Stage,
};

use crate::{
    queue::Place,
    store::{Slot, Store},
};

impl Store {
    pub(crate) fn record(&self, slot: Slot, now: Timestamp) -> JobRecord {
        let entry = &self.jobs[slot];
        let parents = entry.new.parents.clone();
        JobRecord::assemble(&entry.new, entry.created_at, &entry.life, parents, now)
    }

    pub(crate) fn list(&self, request: &List) -> Result<Page<JobSummary>, InvalidRequest> {
        let nobody = BTreeMap::new();
        let candidates = match &request.filter.flow {
            Some(id) => self.flow_ids.get(id).map_or(&nobody, |flow| &self.flows[*flow].members),
            None => &self.by_seq,
        };
        page("job", candidates, request.after.as_ref(), request.limit, |slot| {
            let job = self.record(slot, request.now).summary();
            request.filter.matches(&job).then_some(job)
        })
    }

    pub(crate) fn list_flows(
        &self,
        request: &ListFlows,
    ) -> Result<Page<FlowRecord>, InvalidRequest> {
        page("flow", &self.flows_by_seq, request.after.as_ref(), request.limit, |flow| {
            let flow = self.flow_record(flow, request.now);
            request.matches(&flow).then_some(flow)
        })
    }

    pub(crate) fn counts(&self, now: Timestamp) -> Vec<QueueCounts> {
        let mut all: Vec<_> = self.queues.iter().map(|(_, queue)| queue).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        let counted = all.into_iter().map(|queue| {
            let waiting = |place: &&Place| self.jobs[place.2].life.stage == Stage::Waiting;
            let ready: Vec<Timestamp> =
                queue.available(now).filter(waiting).map(|(due_at, ..)| *due_at).collect();
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

/// The first `limit` candidates after the cursor that `show` does not pass over. Cursors say what
/// they are a place in, so that one list does not take another's.
fn page<T>(
    of: &str,
    candidates: &BTreeMap<u64, usize>,
    after: Option<&Cursor>,
    limit: usize,
    show: impl Fn(usize) -> Option<T>,
) -> Result<Page<T>, InvalidRequest> {
    let start = match after {
        Some(cursor) => {
            let seq = cursor.as_str().strip_prefix(of).and_then(|seq| seq.parse::<u64>().ok());
            Bound::Excluded(seq.ok_or(InvalidRequest::Cursor)?)
        }
        None => Bound::Unbounded,
    };
    let mut items = Vec::new();
    for (seq, candidate) in candidates.range((start, Bound::Unbounded)) {
        items.extend(show(*candidate));
        if items.len() == limit {
            return Ok(Page::new(items, Some(Cursor::new(format!("{of}{seq}")))));
        }
    }
    Ok(Page::new(items, None))
}
