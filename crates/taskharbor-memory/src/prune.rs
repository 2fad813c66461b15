//! [`Retired`]: what is over, by the time until which it must be kept, and its removal.

use std::collections::BTreeSet;

use taskharbor_core::{State, Timestamp, admin::Prune};

use crate::{queue::Place, store::Store};

/// Jobs without a flow and whole flows that are over.
#[derive(Debug, Default)]
pub(crate) struct Retired {
    done: Shelf,
    dlq: Shelf,
    cancelled: Shelf,
}

/// What ended in one way.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    pub(crate) jobs: BTreeSet<Place>,
    pub(crate) flows: BTreeSet<Place>,
}

impl Retired {
    pub(crate) fn add_job(&mut self, state: State, place: Place) {
        self.shelf_mut(state).jobs.insert(place);
    }

    pub(crate) fn remove_job(&mut self, state: State, place: &Place) {
        self.shelf_mut(state).jobs.remove(place);
    }

    pub(crate) fn add_flow(&mut self, state: State, place: Place) {
        self.shelf_mut(state).flows.insert(place);
    }

    pub(crate) fn remove_flow(&mut self, state: State, place: &Place) {
        self.shelf_mut(state).flows.remove(place);
    }

    pub(crate) fn shelf(&self, state: State) -> &Shelf {
        match state {
            State::Dlq => &self.dlq,
            State::Cancelled => &self.cancelled,
            _ => &self.done,
        }
    }

    fn shelf_mut(&mut self, state: State) -> &mut Shelf {
        match state {
            State::Dlq => &mut self.dlq,
            State::Cancelled => &mut self.cancelled,
            _ => &mut self.done,
        }
    }
}

/// The next thing to remove.
enum Oldest {
    Job(usize),
    Flow(usize),
}

impl Store {
    pub(crate) fn prune(&mut self, request: &Prune) -> usize {
        let mut removed = 0;
        while removed < request.limit {
            match self.oldest(request) {
                Some(Oldest::Job(slot)) => {
                    self.remove(slot);
                    removed += 1;
                }
                Some(Oldest::Flow(flow)) => removed += self.remove_flow(flow),
                None => break,
            }
        }
        removed
    }

    fn oldest(&self, request: &Prune) -> Option<Oldest> {
        let mut oldest: Option<(Timestamp, u64, Oldest)> = None;
        for state in [State::Done, State::Dlq, State::Cancelled] {
            let Some(before) = request.before(state) else {
                continue;
            };
            let shelf = self.retired.shelf(state);
            let job = shelf.jobs.first().map(|&(at, seq, slot)| (at, seq, Oldest::Job(slot)));
            let flow = shelf.flows.first().map(|&(at, seq, flow)| (at, seq, Oldest::Flow(flow)));
            for candidate in [job, flow].into_iter().flatten() {
                let is_older = oldest
                    .as_ref()
                    .is_none_or(|(at, seq, _)| (candidate.0, candidate.1) < (*at, *seq));
                if candidate.0 <= before && is_older {
                    oldest = Some(candidate);
                }
            }
        }
        oldest.map(|(.., oldest)| oldest)
    }
}
