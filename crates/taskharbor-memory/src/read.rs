//! What people see of jobs, queues and flows.

use std::{collections::BTreeMap, ops::Bound};

use taskharbor_core::{
    Cursor, FlowRecord, InvalidRequest, JobRecord, JobSummary, List, ListFlows, Page, QueueCounts,
    Timestamp,
};

use crate::store::{Slot, Store};

impl Store {
    pub(crate) fn record(&self, slot: Slot, now: Timestamp) -> JobRecord {
        let entry = &self.jobs[slot];
        let parents = entry.new.parents.clone();
        JobRecord::assemble(&entry.new, entry.created_at, &entry.life, parents, now)
    }

    pub(crate) fn list(&self, request: &List) -> Result<Page<JobSummary>, InvalidRequest> {
        let members = request.filter.flow.as_ref().and_then(|id| self.flow_ids.get(id));
        let candidates = members.map_or(&self.by_seq, |flow| &self.flows[*flow].members);
        page(candidates, request.after.as_ref(), request.limit, |slot| {
            let job = self.record(slot, request.now).summary();
            request.filter.matches(&job).then_some(job)
        })
    }

    pub(crate) fn list_flows(
        &self,
        request: &ListFlows,
    ) -> Result<Page<FlowRecord>, InvalidRequest> {
        page(&self.flows_by_seq, request.after.as_ref(), request.limit, |flow| {
            let flow = self.flow_record(flow, request.now);
            request.matches(&flow).then_some(flow)
        })
    }

    pub(crate) fn counts(&self, now: Timestamp) -> Vec<QueueCounts> {
        let mut all: Vec<_> = self.queues.iter().map(|(_, queue)| queue).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        let counted = all.into_iter().map(|queue| {
            let (ready, oldest_ready) = queue.due(now);
            let mut counts = QueueCounts::new(queue.name.clone());
            counts.states = queue.counts;
            counts.states.scheduled = counts.states.ready - ready;
            counts.states.ready = ready;
            counts.oldest_ready = oldest_ready;
            counts.paused_since = queue.paused_since;
            counts
        });
        counted.collect()
    }
}

/// The first `limit` candidates after the cursor that `show` does not pass over.
fn page<T>(
    candidates: &BTreeMap<u64, usize>,
    after: Option<&Cursor>,
    limit: usize,
    show: impl Fn(usize) -> Option<T>,
) -> Result<Page<T>, InvalidRequest> {
    let start = match after {
        Some(cursor) => {
            let seq: u64 = cursor.as_str().parse().map_err(|_| InvalidRequest::Cursor)?;
            Bound::Excluded(seq)
        }
        None => Bound::Unbounded,
    };
    let mut items = Vec::new();
    for (seq, candidate) in candidates.range((start, Bound::Unbounded)) {
        items.extend(show(*candidate));
        if items.len() == limit {
            return Ok(Page::new(items, Some(Cursor::new(seq.to_string()))));
        }
    }
    Ok(Page::new(items, None))
}
