//! Reading what jobs produced.

use taskharbor_core::{
    JobKind, Limits, OutputEntry, OutputOf, OutputPage, OutputQuery, Outputs, Refusal, State,
    Timestamp,
};

use crate::store::{Slot, Store};

impl Store {
    pub(crate) fn outputs(&self, request: &Outputs) -> Vec<Result<OutputPage, Refusal>> {
        request.items.iter().map(|query| self.output_page(query, request.limit)).collect()
    }

    fn output_page(&self, query: &OutputQuery, limit: usize) -> Result<OutputPage, Refusal> {
        let slot = self.slot(&query.id).ok_or(Refusal::JobNotFound)?;
        let mut page = PageWriter { skip: query.from, limit, bytes: 0, entries: Vec::new() };
        // What is still to be written, the next of it last.
        let mut rest = Vec::new();
        let room = match query.of {
            OutputOf::Itself => {
                rest.push(Some(self.grown_into(slot)));
                true
            }
            OutputOf::Parents => {
                self.push_parents(slot, &mut rest);
                page.write(|| OutputEntry::List(self.jobs[slot].links.len()))
            }
        };
        let mut room = room;
        while let (true, Some(next)) = (room, rest.pop()) {
            room = match next {
                Some(slot) if self.is_done_join(slot) => {
                    self.push_parents(slot, &mut rest);
                    page.write(|| OutputEntry::List(self.jobs[slot].links.len()))
                }
                Some(slot) => page.write(|| self.output_entry(slot)),
                None => page.write(|| OutputEntry::Missing),
            };
        }
        let next = (!room).then_some(query.from + page.entries.len());
        Ok(OutputPage::new(page.entries, next))
    }

    fn push_parents(&self, slot: Slot, rest: &mut Vec<Option<Slot>>) {
        let parents = self.jobs[slot].links.iter().rev();
        let parents =
            parents.map(|link| self.is_linked(*link).then(|| self.grown_into(link.parent)));
        rest.extend(parents);
    }

    fn grown_into(&self, mut slot: Slot) -> Slot {
        while let Some(next) = &self.jobs[slot].life.grown_into
            && let Some(next) = self.slot(next)
        {
            slot = next;
        }
        slot
    }

    fn is_done_join(&self, slot: Slot) -> bool {
        let entry = &self.jobs[slot];
        let done = entry.life.finish().is_some_and(|finish| finish.state == State::Done);
        done && entry.new.kind == JobKind::Join
    }

    fn output_entry(&self, slot: Slot) -> OutputEntry {
        let life = &self.jobs[slot].life;
        match life.state(Timestamp::MAX) {
            State::Done => OutputEntry::Done(life.output.clone()),
            state @ (State::Dlq | State::Cancelled) => {
                OutputEntry::Failed { state, reason: life.reason.clone() }
            }
            _ => OutputEntry::Pending,
        }
    }
}

/// Skips the entries of earlier pages and stops when this one is full.
struct PageWriter {
    skip: usize,
    limit: usize,
    bytes: usize,
    entries: Vec<OutputEntry>,
}

impl PageWriter {
    /// Writes the next entry of the whole; `false` if there was no room for it.
    fn write(&mut self, entry: impl FnOnce() -> OutputEntry) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return true;
        }
        if self.entries.len() == self.limit {
            return false;
        }
        let entry = entry();
        if let OutputEntry::Done(Some(output)) = &entry {
            self.bytes += output.len();
            if self.bytes > Limits::PAGE_BYTES && !self.entries.is_empty() {
                return false;
            }
        }
        self.entries.push(entry);
        true
    }
}
