//! Acks of members of flows that come together.
//!
//! Each closes its own edges at once. That a flow has so many members less to wait for, and whoever
//! waits for them so many parents less, is written once for all of them: a join behind ten thousand
//! members would otherwise be written ten thousand times.

use std::collections::BTreeMap;

use rusqlite::params;
use taskharbor_core::{
    State, Timestamp,
    driver::{Settlement, Transition},
    job::KeyHold,
};

use super::{Store, micros};
use crate::{entry::Entry, error::Fault, statement as sql};

/// What the acks so far have left to be written.
#[derive(Debug, Default)]
pub(super) struct Acked {
    /// By flow: its tail, and how many of its members have ended.
    flows: BTreeMap<i64, (i64, i64)>,
    /// By whoever waited for them: how many of its parents are done.
    children: BTreeMap<i64, usize>,
}

impl Store<'_> {
    /// Records the ack of a member if it is one that can be written with others; its token has been
    /// looked at. Whoever does anything else first writes what is left with [`Store::let_go`].
    pub(super) fn ack_member(
        &mut self,
        entry: &mut Entry,
        item: &Settlement,
        acked: &mut Acked,
        now: Timestamp,
    ) -> Result<bool, Fault> {
        let (Some(flow), Transition::Ack { .. }) = (entry.flow, &item.transition) else {
            return Ok(false);
        };
        let tail = match acked.flows.get(&flow) {
            Some((tail, _)) => *tail,
            None => self.flow(flow)?.tail,
        };
        // Keys that are held until then are given back one by one.
        if tail == entry.seq || entry.key_hold == KeyHold::UntilDone {
            return Ok(false);
        }
        if entry.life.settle(item.token, &item.transition, now).is_err() {
            return Ok(false);
        }
        let (ended_at, kept) = (entry.life.finish().map(|it| it.at), entry.life.kept_until());
        let output = entry.life.output.as_deref();
        self.execute(sql::ACK, params![entry.seq, micros(ended_at), micros(kept), output])?;
        acked.flows.entry(flow).or_insert((tail, 0)).1 += 1;
        for child in self.find_all(sql::CLOSE_EDGES, [entry.seq])? {
            *acked.children.entry(child).or_default() += 1;
        }
        Ok(true)
    }

    /// Writes what acks have left, and lets go whoever waits for nobody any more.
    pub(super) fn let_go(&mut self, acked: &mut Acked, now: Timestamp) -> Result<(), Fault> {
        let Acked { flows, children } = std::mem::take(acked);
        for (flow, (_, ended)) in flows {
            self.count_live(flow, -ended)?;
        }
        for (child, parents) in children {
            let links = i64::try_from(parents).unwrap_or(i64::MAX);
            if self.execute(sql::WAIT_FOR_FEWER, [child, links])? > 0 {
                continue;
            }
            let mut entry = self.member(child)?;
            let kind = entry.kind;
            let unblock = |life: &mut taskharbor_core::life::Life| {
                let states = (0..parents).map(|_| life.unblock(kind, now));
                Ok::<_, ()>(states.flatten().last())
            };
            match self.change(&mut entry, unblock)? {
                Ok(Some(State::Done)) => self.spread_success(&entry, now)?,
                Ok(Some(_)) => self.wake(&entry.queue),
                Ok(None) | Err(()) => {}
            }
        }
        Ok(())
    }
}
