//! Acks of members of flows that come together.
//!
//! Each closes its own edges at once. By how many parents less their dependants wait is written once
//! for all of them: a join behind ten thousand members would otherwise be written ten thousand times.
//! A member with failure jobs behind it takes the general path.

use std::collections::{BTreeMap, btree_map};

use rusqlite::params;
use taskharbor_core::{
    State, Timestamp,
    driver::{Settlement, Transition},
    graph::{self, Graph},
};

use super::{Store, flow::Flow, micros};
use crate::{
    entry::{Entry, state},
    error::Fault,
    statement as sql,
};

/// What the acks so far have left to be written.
#[derive(Debug, Default)]
pub(super) struct Acked {
    /// The flows of the members.
    flows: BTreeMap<i64, Flow>,
    /// By dependant: how many of its parents are done.
    dependants: BTreeMap<i64, usize>,
}

impl Store<'_> {
    /// Records the ack of a member if it is one that can be written with others; its token has been
    /// looked at. Before anything else happens, [`Store::unblock_dependants`] writes what is left.
    pub(super) fn ack_member(
        &mut self,
        entry: &mut Entry,
        item: &Settlement,
        acked: &mut Acked,
        now: Timestamp,
    ) -> Result<bool, Fault> {
        let (Some(seq), Transition::Ack { .. }) = (entry.flow, &item.transition) else {
            return Ok(false);
        };
        let flow = match acked.flows.entry(seq) {
            btree_map::Entry::Occupied(known) => known.into_mut(),
            btree_map::Entry::Vacant(unknown) => unknown.insert(self.flow(seq)?),
        };
        let frees_key = entry.keyed && entry.key_hold.is_freed_by(State::Done);
        // Keys are freed, and failure jobs cancelled, one by one.
        if flow.tail == entry.seq || frees_key || flow.watched && self.is_watched(entry.seq)? {
            return Ok(false);
        }
        if entry.life.settle(item.token, &item.transition, now).is_err() {
            return Ok(false);
        }
        self.write_ack(entry)?;
        self.count_live(seq, -1);
        for dependant in self.find_all(sql::CLOSE_EDGES, [entry.seq])? {
            *acked.dependants.entry(dependant).or_default() += 1;
        }
        Ok(true)
    }

    /// Whether a failure job waits for this one.
    fn is_watched(&self, seq: i64) -> Result<bool, Fault> {
        Ok(self.find::<i64>(sql::FAILURE_DEPENDANTS, [seq])?.is_some())
    }

    /// Writes what the ack of an inflight job changes in its row.
    pub(super) fn write_ack(&mut self, entry: &mut Entry) -> Result<(), Fault> {
        self.forget(entry.seq);
        let (ended_at, kept) = (entry.life.finish().map(|it| it.at), entry.life.kept_until());
        let output = entry.life.output.as_deref();
        self.execute(sql::ACK, params![entry.seq, micros(ended_at), micros(kept), output])?;
        self.recount.moved(&entry.queue, entry.stored_state, state::DONE);
        entry.stored_state = state::DONE;
        Ok(())
    }

    /// Writes what acks have left, and unblocks the dependants that wait for no parent any more.
    pub(super) fn unblock_dependants(
        &mut self,
        acked: &mut Acked,
        now: Timestamp,
    ) -> Result<(), Fault> {
        let Acked { dependants, .. } = std::mem::take(acked);
        for (dependant, parents) in dependants {
            self.forget(dependant);
            let edges = i64::try_from(parents).unwrap_or(i64::MAX);
            if self.execute(sql::WAIT_FOR_FEWER, [dependant, edges])? > 0 {
                continue;
            }
            let kind = self.facts(dependant)?.kind;
            // FLO-1, FLO-8
            let unblocked = self.change(dependant, |life| {
                let states = (0..parents).map(|_| life.unblock(kind, now));
                states.flatten().last()
            })?;
            match unblocked {
                Some(State::Done) => graph::succeeded(self, dependant, now)?,
                Some(_) => self.wake(dependant)?,
                None => {}
            }
        }
        Ok(())
    }
}
