//! [`TerminalIndex`]: what is terminal, by the time until which it must be kept, and its removal.

use std::{collections::BTreeSet, convert::Infallible};

use taskharbor_core::{State, Timestamp, admin::Prune, graph};

use crate::{queue::Position, store::Store};

/// Terminal jobs without a flow, and whole flows that have ended.
#[derive(Debug, Default)]
pub(crate) struct TerminalIndex {
    done: Shelf,
    dlq: Shelf,
    cancelled: Shelf,
}

/// What ended in one way.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    pub(crate) jobs: BTreeSet<Position>,
    pub(crate) flows: BTreeSet<Position>,
}

impl TerminalIndex {
    pub(crate) fn add_job(&mut self, state: State, place: Position) {
        self.shelf_mut(state).jobs.insert(place);
    }

    pub(crate) fn remove_job(&mut self, state: State, place: &Position) {
        self.shelf_mut(state).jobs.remove(place);
    }

    pub(crate) fn add_flow(&mut self, state: State, place: Position) {
        self.shelf_mut(state).flows.insert(place);
    }

    pub(crate) fn remove_flow(&mut self, state: State, place: &Position) {
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

/// A job without a flow, or a whole flow.
pub(crate) enum Unit {
    Job(usize),
    Flow(usize),
}

impl Store {
    pub(crate) fn prune(&mut self, request: &Prune) -> usize {
        let Ok(removed) = graph::prune(self, request);
        self.forget_keys(request.now);
        self.forget_ended(request.now);
        self.forget_workers(request.now);
        removed
    }
}

impl graph::Shelf for Store {
    type Unit = Unit;
    type Error = Infallible;

    fn oldest(&self, state: State) -> Result<[Option<(Timestamp, u64, Unit)>; 2], Infallible> {
        let shelf = self.terminal.shelf(state);
        let job = shelf.jobs.first().map(|&(at, seq, slot)| (at, seq, Unit::Job(slot)));
        let flow = shelf.flows.first().map(|&(at, seq, flow)| (at, seq, Unit::Flow(flow)));
        Ok([job, flow])
    }

    fn remove(&mut self, unit: Unit) -> Result<usize, Infallible> {
        Ok(match unit {
            Unit::Job(slot) => {
                self.remove(slot);
                1
            }
            Unit::Flow(flow) => self.remove_flow(flow),
        })
    }
}
