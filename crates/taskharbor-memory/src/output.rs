//! Reading what jobs produced.

use taskharbor_core::{
    State, Timestamp,
    driver::{Limits, OutputEntry, OutputOf, OutputPage, OutputQuery, Outputs},
    error::Refusal,
    job::JobKind,
};

use crate::store::{Entry, Link, Store, Tie, Whereabouts};

impl Store {
    pub(crate) fn outputs(&self, request: &Outputs) -> Vec<Result<OutputPage, Refusal>> {
        request.items.iter().map(|query| self.output_page(query, request.limit)).collect()
    }

    fn output_page(&self, query: &OutputQuery, limit: usize) -> Result<OutputPage, Refusal> {
        let slot = self.slot(&query.id).ok_or(Refusal::JobNotFound)?;
        Ok(match query.of {
            OutputOf::Itself => {
                let whole = [self.place_of(slot)];
                page(&whole, query.from, limit, |place| self.output_of(*place))
            }
            OutputOf::Parents => {
                let links = &self.jobs[slot].links;
                page(links, query.from, limit, |link| self.input_through(link))
            }
        })
    }

    fn input_through(&self, link: &Link) -> OutputEntry {
        match &link.tie {
            Tie::Open | Tie::Closed => self.output_of(link.parent),
            Tie::Spent { state, reason } => {
                OutputEntry::Failed { state: *state, reason: reason.clone() }
            }
        }
    }

    fn output_of(&self, mut place: Whereabouts) -> OutputEntry {
        loop {
            match self.still_at(place) {
                Some(Entry { grown: Some(next), .. }) => place = *next,
                Some(entry) => return output(entry),
                None => return OutputEntry::Missing,
            }
        }
    }
}

fn output(entry: &Entry) -> OutputEntry {
    match entry.life.state(Timestamp::MAX) {
        State::Done if entry.new.kind == JobKind::Join => {
            OutputEntry::List { join: entry.new.id.clone(), len: entry.links.len() }
        }
        State::Done => OutputEntry::Done(entry.life.output.clone()),
        state @ (State::Dlq | State::Cancelled) => {
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
        if bytes > Limits::PAGE_BYTES && !entries.is_empty() {
            break;
        }
        entries.push(entry);
    }
    let end = from.saturating_add(entries.len());
    OutputPage::new(entries, (end < whole.len()).then_some(end))
}
