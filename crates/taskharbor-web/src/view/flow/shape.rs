//! [`Shape`]: the members of a flow, read from the store in bounded pieces and kept.
//!
//! A list says where the members stand; what a member waits for is in its record alone, one call each. But
//! that changes only if a job expands. So records are read once, lists again and again. A very large flow
//! is known in part: the same number of members of each type, and what those come from.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

use taskharbor::{
    Admin, AnyDriver, Filter, JobId, JobRecord, JobSummary, Limits, List, Timestamp, header,
};
use taskharbor_core::NewJob;
use tokio::{task::JoinSet, time::Instant};

use super::{
    graph::{Graph, Member},
    layout::{Lineage, index},
    name_table::NameTable,
};
use crate::problem::Problem;

/// The most members that are listed: what a flow may have.
const MAX_LISTED: usize = Limits::MAX_FLOW_JOBS;
/// The most records that are read for one flow.
const MAX_READ: usize = 20_000;
/// The most bytes of payloads and outputs that come with them.
const MAX_READ_BYTES: usize = 128 * 1024 * 1024;
/// How long one request reads records. The next request goes on.
const READ_FOR: Duration = Duration::from_secs(3);
/// How many records are asked for at once.
const AT_ONCE: usize = 16;
/// Of what a member waits for, this many are read before others.
const ANCESTORS: usize = 2;

/// The members of a flow, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct Shape {
    places: HashMap<JobId, u32>,
    members: Vec<Member>,
    notes: Vec<Note>,
    names: NameTable,
    /// The number of the last complete list.
    listed: u32,
    /// Whether members came after the first list: some job expands.
    grows: bool,
    read: usize,
    read_bytes: usize,
}

/// What is known of a member beside what is drawn.
#[derive(Clone, Copy, Debug, Default)]
struct Note {
    /// The number of the last list that had it.
    listed: u32,
    /// Whether its record was read after it was terminal: it cannot expand any more.
    is_settled: bool,
}

impl Shape {
    /// How many members are known.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether reading goes on with the next request.
    pub(super) fn goes_on(&self) -> bool {
        self.has_room() && self.unread().next().is_some()
    }

    /// The picture of the members, as they were listed last.
    pub(super) fn draw(&self) -> Graph {
        Graph::new(&self.members, |at| self.is_listed(at), &self.names)
    }

    /// Reads where all members stand.
    pub(super) async fn list(
        &mut self,
        store: &AnyDriver,
        flow: &JobId,
        now: Timestamp,
    ) -> Result<(), Problem> {
        let (list, known) = (self.listed + 1, self.members.len());
        let mut request = List::new(Filter::all().flow(flow.clone()), Limits::MAX_PAGE, now);
        let mut count = 0;
        loop {
            let page = store.list(request.clone()).await?;
            count += page.items.len();
            for job in page.items {
                self.see(&job, list);
            }
            match page.next.filter(|_| count < MAX_LISTED) {
                Some(next) => request = request.after(next),
                None => break,
            }
        }
        self.grows |= self.listed > 0 && self.members.len() > known;
        self.listed = list;
        Ok(())
    }

    fn see(&mut self, job: &JobSummary, list: u32) {
        let place = index(self.place(&job.id));
        self.notes[place].listed = list;
        let is_join = job.job_type.as_str() == NewJob::JOIN_TYPE;
        let job_type = self.names.name(job.job_type.as_str());
        let member = &mut self.members[place];
        (member.job_type, member.is_join) = (job_type, is_join);
        (member.state, member.attempts) = (job.state, job.attempts);
    }

    /// The place of a member, which may be named before it is listed.
    fn place(&mut self, id: &JobId) -> u32 {
        if let Some(place) = self.places.get(id) {
            return *place;
        }
        let place = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        self.members.push(Member {
            id: id.clone(),
            job_type: self.names.name(""),
            label: None,
            is_join: false,
            is_read: false,
            state: taskharbor::State::Blocked,
            attempts: 0,
            lineage: Lineage::default(),
        });
        self.notes.push(Note::default());
        self.places.insert(id.clone(), place);
        place
    }

    fn is_listed(&self, at: usize) -> bool {
        self.listed > 0 && self.notes[at].listed == self.listed
    }

    /// Whether more records may be read.
    const fn has_room(&self) -> bool {
        self.read < MAX_READ && self.read_bytes < MAX_READ_BYTES
    }

    /// The members whose records have to be read: those that never were, and in a flow that grows those
    /// that may have expanded since.
    fn unread(&self) -> impl Iterator<Item = u32> {
        let is_unread = |at: &u32| {
            let (member, note) = (&self.members[index(*at)], self.notes[index(*at)]);
            let may_have_expanded = self.grows && !note.is_settled && member.state.is_terminal();
            self.is_listed(index(*at)) && (!member.is_read || may_have_expanded)
        };
        (0_u32..).take(self.members.len()).filter(is_unread)
    }

    /// Reads what members wait for, for as long as one request may.
    pub(super) async fn read(&mut self, store: &AnyDriver, now: Timestamp) -> Result<(), Problem> {
        let mut order: VecDeque<u32> = self.order().into();
        let (began, mut asked) = (Instant::now(), HashSet::new());
        let mut calls = JoinSet::new();
        loop {
            while calls.len() < AT_ONCE
                && self.read + calls.len() < MAX_READ
                && self.read_bytes < MAX_READ_BYTES
                && began.elapsed() < READ_FOR
            {
                let Some(place) = order.pop_front() else { break };
                if asked.insert(place) {
                    let (store, id) = (store.clone(), self.members[index(place)].id.clone());
                    calls.spawn(async move { (place, store.inspect(id, now).await) });
                }
            }
            let Some(answer) = calls.join_next().await else { return Ok(()) };
            let (place, record) = answer.map_err(|error| Problem::internal(&error))?;
            self.read += 1;
            // One that is gone is not in the next list.
            let Some(record) = record? else { continue };
            self.take(place, &record);
            let ancestors = self.members[index(place)].lineage.parents.iter().take(ANCESTORS);
            let ancestors = ancestors.filter(|at| !self.members[index(**at)].is_read);
            ancestors.for_each(|at| order.push_front(*at));
        }
    }

    fn take(&mut self, place: u32, record: &JobRecord) {
        let output = record.output.as_ref().map_or(0, |output| output.len());
        self.read_bytes += record.job.payload.len() + output;
        let parents = record.parents.iter().map(|id| self.place(id)).collect();
        let expanded_into = record.expanded_into.as_ref().map(|id| self.place(id));
        let label = record.job.headers.get(header::LABEL).map(|label| self.names.name(label));
        let member = &mut self.members[index(place)];
        (member.label, member.is_read) = (label, true);
        member.lineage = Lineage { parents, expanded_into };
        self.notes[index(place)].is_settled = record.state.is_terminal();
    }

    /// The order in which records are read: of each type the same number, spread over the flow, so that
    /// those that were read stand for the others at any time.
    fn order(&self) -> Vec<u32> {
        let mut by_type: HashMap<_, Vec<u32>> = HashMap::new();
        for place in self.unread() {
            by_type.entry(self.members[index(place)].job_type).or_default().push(place);
        }
        let mut ranked = Vec::new();
        for (job_type, mut places) in by_type {
            places.sort_unstable_by_key(|place| spread(*place));
            ranked.extend((0_usize..).zip(places).map(|(rank, place)| (rank, job_type, place)));
        }
        ranked.sort_unstable();
        ranked.into_iter().map(|(_, _, place)| place).collect()
    }
}

/// A number that neighbours do not share, the same each time.
const fn spread(place: u32) -> u32 {
    let mixed = (place ^ (place >> 16)).wrapping_mul(0x7feb_352d);
    (mixed ^ (mixed >> 15)).wrapping_mul(0x846c_a68b)
}
