//! Reads of the lanes of a queue for operators.

use std::collections::BTreeMap;

use rusqlite::params;
use taskharbor_core::{
    admin::{LaneStatus, ListLanes, Page},
    name::LaneName,
};

use super::{Store, enqueue::place};
use crate::{
    entry::{self, number, text},
    error::Fault,
    queue_memory::Lane,
    statement as sql,
};

impl Store<'_> {
    pub(crate) fn lanes(&self, request: &ListLanes) -> Result<Page<LaneStatus>, Fault> {
        // ADM-13
        let begin = request.begin()?;
        let mut gate = self.gate(&request.queue, request.now, &mut None)?;
        // LAN-6
        let mut lanes = self.named_lanes(request, begin.as_ref())?;
        if begin.is_none() {
            let counts = self.laneless(request)?;
            if counts != (0, 0) || gate.is_held() {
                lanes.insert(None, counts);
            }
        }
        let is_last = lanes.len() <= request.limit;
        let mut page = Vec::with_capacity(lanes.len().min(request.limit));
        for (lane, (ready, inflight)) in lanes.into_iter().take(request.limit) {
            let held_back = self.held_back(&mut gate, &lane)?;
            page.push(LaneStatus::new(lane, ready, inflight, held_back));
        }
        let next = page.last().map(LaneStatus::cursor).filter(|_| !is_last);
        Ok(Page::new(page, next))
    }

    /// The lanes behind the cursor, at least one more than the page has if there are this many.
    fn named_lanes(
        &self,
        request: &ListLanes,
        begin: Option<&Lane>,
    ) -> Result<BTreeMap<Lane, (usize, usize)>, Fault> {
        let after = begin.and_then(Option::as_ref).map_or("", LaneName::as_str);
        let (queue, now) = (request.queue.as_str(), request.now.as_micros());
        let mut lanes = BTreeMap::new();
        let mut statement = self.statement(sql::LANES)?;
        let mut rows = statement.query(params![queue, now, after, place(request.limit + 1)])?;
        while let Some(row) = rows.next()? {
            lanes.insert(entry::lane(row, 0)?, (number(row, 1)?, number(row, 2)?));
        }
        let mut statement = self.statement(sql::HELD_LANES)?;
        let mut rows = statement.query(params![queue, now])?;
        while let Some(row) = rows.next()? {
            if text(row, 0)? > after {
                lanes.entry(entry::lane(row, 0)?).or_default();
            }
        }
        Ok(lanes)
    }

    /// How many jobs without a lane are ready, and how many are inflight.
    fn laneless(&self, request: &ListLanes) -> Result<(usize, usize), Fault> {
        let mut statement = self.statement(sql::LANELESS)?;
        let mut rows = statement.query(params![request.queue.as_str(), request.now.as_micros()])?;
        let Some(row) = rows.next()? else { return Ok((0, 0)) };
        Ok((number(row, 0)?, number(row, 1)?))
    }
}
