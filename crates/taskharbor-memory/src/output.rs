//! Reading the outputs of jobs.

use taskharbor_core::{
    State, Timestamp,
    driver::{JoinList, Limits, OutputEntry, OutputOf, OutputPage, OutputQuery, Outputs},
    error::Refusal,
    export::EdgeState,
    job::JobKind,
};

use crate::store::{Edge, Entry, JobRef, JobSlot, Store};

impl Store {
    pub(crate) fn outputs(&self, request: &Outputs) -> Vec<Result<OutputPage, Refusal>> {
        request.items.iter().map(|query| self.output_page(query, request.limit)).collect()
    }

    fn output_page(&self, query: &OutputQuery, limit: usize) -> Result<OutputPage, Refusal> {
        // OUT-5
        let slot = self.slot(&query.id).ok_or(Refusal::JobNotFound)?;
        let page_of = |slot: JobSlot| {
            let edges = &self.jobs[slot].edges;
            page(edges, query.from, limit, |edge| self.input_through(edge))
        };
        Ok(match query.of {
            OutputOf::Itself => {
                let whole = [self.job_ref(slot)];
                page(&whole, query.from, limit, |job| self.output_of(*job))
            }
            OutputOf::Parents => page_of(slot),
            OutputOf::Input => match self.only_join_of(slot) {
                Some((join, list)) => page_of(join).of_join(list),
                None => page_of(slot),
            },
        })
    }

    /// The join that is done and is all that a job waits for.
    fn only_join_of(&self, slot: JobSlot) -> Option<(JobSlot, JoinList)> {
        let [edge] = &self.jobs[slot].edges[..] else { return None };
        // OUT-6
        match self.input_through(edge) {
            OutputEntry::List(list) => Some((self.slot(&list.join)?, list)),
            _ => None,
        }
    }

    fn input_through(&self, edge: &Edge) -> OutputEntry {
        // OUT-1
        match &edge.state {
            EdgeState::Open | EdgeState::Closed => self.output_of(edge.parent),
            EdgeState::Spent { state, reason } => {
                OutputEntry::Failed { state: *state, reason: reason.clone() }
            }
        }
    }

    fn output_of(&self, mut job: JobRef) -> OutputEntry {
        loop {
            match self.resolve(job) {
                // OUT-3
                Some(Entry { expanded: Some(next), .. }) => job = *next,
                Some(entry) => return output(entry),
                None => return OutputEntry::Missing,
            }
        }
    }
}

fn output(entry: &Entry) -> OutputEntry {
    match (entry.life.state(Timestamp::MAX), entry.new.kind) {
        // OUT-2
        (State::Done, JobKind::Join(reading)) => {
            OutputEntry::List(JoinList::new(entry.new.id.clone(), entry.edges.len(), reading))
        }
        (State::Done, JobKind::Work) => OutputEntry::Done(entry.life.output.clone()),
        (state @ (State::Dlq | State::Cancelled), _) => {
            OutputEntry::Failed { state, reason: entry.life.reason.clone() }
        }
        _ => OutputEntry::Pending,
    }
}

/// As many entries as the limit and the size of a page allow, but one at least if there is one.
fn page<T>(whole: &[T], from: usize, limit: usize, read: impl Fn(&T) -> OutputEntry) -> OutputPage {
    let mut entries: Vec<OutputEntry> = Vec::new();
    let mut bytes = 0;
    for item in whole.iter().skip(from).take(limit) {
        let entry = read(item);
        if let OutputEntry::Done(Some(output)) = &entry {
            bytes += output.len();
        }
        // OUT-4
        if bytes > Limits::PAGE_BYTES && !entries.is_empty() {
            break;
        }
        entries.push(entry);
    }
    let end = from.saturating_add(entries.len());
    OutputPage::new(entries, (end < whole.len()).then_some(end))
}
