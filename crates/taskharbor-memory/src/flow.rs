//! [`Flow`]: the stored data of a flow, apart from its members.

use std::collections::{BTreeMap, BTreeSet};

use taskharbor_core::{
    JobId, NewJob, State, Timestamp,
    admin::StateCounts,
    export::EdgeState,
    flow::{FlowRecord, ResolvedEdges},
    name::FlowName,
};

use crate::store::{Edge, JobSlot, Standing, Store};

#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) id: JobId,
    pub(crate) name: Option<FlowName>,
    pub(crate) seq: u64,
    pub(crate) created_at: Timestamp,
    /// The member whose output is the flow's.
    pub(crate) tail: JobSlot,
    /// By order of insertion.
    pub(crate) members: BTreeMap<u64, JobSlot>,
    /// Members that wait for something.
    pub(crate) not_started: BTreeMap<u64, JobSlot>,
    pub(crate) inflight: BTreeMap<u64, JobSlot>,
    /// Terminal members, by the time until which they must be kept.
    pub(crate) over: BTreeSet<(Timestamp, u64)>,
    /// Where it stands among the flows that have ended.
    pub(crate) terminal_as: Option<(State, Timestamp)>,
}

impl Flow {
    pub(crate) fn is_terminal(&self) -> bool {
        self.not_started.is_empty() && self.inflight.is_empty()
    }
}

impl Store {
    /// A flow without members; its tail has to be set.
    pub(crate) fn begin_flow(
        &mut self,
        id: JobId,
        name: Option<FlowName>,
        tail: JobSlot,
        now: Timestamp,
    ) -> usize {
        let seq = self.next_seq();
        let flow = self.flows.insert(Flow {
            id: id.clone(),
            name,
            seq,
            created_at: now,
            tail,
            members: BTreeMap::new(),
            not_started: BTreeMap::new(),
            inflight: BTreeMap::new(),
            over: BTreeSet::new(),
            terminal_as: None,
        });
        self.flow_ids.insert(id, flow);
        self.flows_by_seq.insert(seq, flow);
        flow
    }

    /// Stores the members of a flow or of an expansion with their edges; returns their slots.
    pub(crate) fn insert_members(
        &mut self,
        jobs: Vec<NewJob>,
        shape: &ResolvedEdges,
        flow: usize,
        now: Timestamp,
    ) -> Vec<JobSlot> {
        let slots: Vec<JobSlot> =
            jobs.into_iter().map(|job| self.insert(job, Some(flow), now)).collect();
        for (child, parents) in shape.parents.iter().enumerate() {
            for (order, parent) in parents.iter().enumerate() {
                let parent = self.job_ref(slots[*parent]);
                self.jobs[slots[child]].edges.push(Edge { parent, state: EdgeState::Open });
                self.jobs[parent.slot].dependants.push((slots[child], order));
            }
        }
        slots
    }

    /// Counts a job that has become a member.
    pub(crate) fn join_flow(&mut self, slot: JobSlot, flow: usize) {
        let (seq, standing) = (self.jobs[slot].seq, self.jobs[slot].standing());
        self.flows[flow].members.insert(seq, slot);
        self.count_in_flow(slot, None, Some(standing));
    }

    /// Counts a member under its new standing; `None` is that of a stranger.
    pub(crate) fn count_in_flow(
        &mut self,
        slot: JobSlot,
        before: Option<Standing>,
        after: Option<Standing>,
    ) {
        let entry = &self.jobs[slot];
        let (seq, Some(flow)) = (entry.seq, entry.flow) else { return };
        let counted = &mut self.flows[flow];
        match before {
            Some(Standing::NotStarted) => drop(counted.not_started.remove(&seq)),
            Some(Standing::Inflight) => drop(counted.inflight.remove(&seq)),
            Some(Standing::Over(until)) => drop(counted.over.remove(&(until, seq))),
            None => {}
        }
        match after {
            Some(Standing::NotStarted) => drop(counted.not_started.insert(seq, slot)),
            Some(Standing::Inflight) => drop(counted.inflight.insert(seq, slot)),
            Some(Standing::Over(until)) => drop(counted.over.insert((until, seq))),
            None => {}
        }
        self.index_flow(flow);
    }

    /// Puts a flow among those that are over if it is, and takes it out if it is not.
    fn index_flow(&mut self, flow: usize) {
        self.unindex_flow(flow);
        let entry = &self.flows[flow];
        // While its first members are being stored, its tail is not there yet.
        let tail = self.jobs.get(entry.tail).filter(|tail| tail.flow == Some(flow));
        let ended = tail.filter(|_| entry.is_terminal()).and_then(|tail| tail.life.finish());
        if let (Some(&(until, _)), Some(finish)) = (entry.over.last(), ended) {
            self.terminal.add_flow(finish.state, (until, entry.seq, flow));
            self.flows[flow].terminal_as = Some((finish.state, until));
        }
    }

    fn unindex_flow(&mut self, flow: usize) {
        let entry = &mut self.flows[flow];
        if let Some((state, until)) = entry.terminal_as.take() {
            self.terminal.remove_flow(state, &(until, entry.seq, flow));
        }
    }

    /// Changes which member's output is the flow's.
    pub(crate) fn change_tail(&mut self, flow: usize, tail: JobSlot) {
        self.flows[flow].tail = tail;
        self.index_flow(flow);
    }

    /// Takes a terminal job out of its flow. No edge across the border is open afterwards; the job
    /// can still read what it could read before.
    pub(crate) fn detach(&mut self, slot: JobSlot) {
        let standing = self.jobs[slot].standing();
        self.count_in_flow(slot, Some(standing), None);
        self.unindex(slot);
        let entry = &mut self.jobs[slot];
        entry.dependants.clear();
        entry.life.detach();
        for edge in entry.edges.iter_mut().filter(|edge| edge.state == EdgeState::Open) {
            edge.state = EdgeState::Closed;
        }
        let parents: Vec<_> = entry.edges.iter().map(|edge| edge.parent).collect();
        if let Some(flow) = entry.flow.take() {
            self.flows[flow].members.remove(&entry.seq);
        }
        self.index(slot);
        for parent in parents {
            if self.resolve(parent).is_some() {
                self.jobs[parent.slot].dependants.retain(|(dependant, _)| *dependant != slot);
            }
        }
    }

    /// Removes a flow and all its members; returns how many there were.
    pub(crate) fn remove_flow(&mut self, flow: usize) -> usize {
        self.unindex_flow(flow);
        let flow = self.flows.remove(flow);
        self.flow_ids.remove(&flow.id);
        self.flows_by_seq.remove(&flow.seq);
        for slot in flow.members.values() {
            self.remove(*slot);
        }
        flow.members.len()
    }

    pub(crate) fn flow_record(&self, flow: usize, now: Timestamp) -> FlowRecord {
        let entry = &self.flows[flow];
        let mut counts = StateCounts::default();
        let mut last_finish = None;
        for slot in entry.members.values() {
            let life = &self.jobs[*slot].life;
            *counts.get_mut(life.state(now)) += 1;
            last_finish = last_finish.max(life.finish().map(|finish| finish.at));
        }
        let tail = &self.jobs[entry.tail];
        let ending = (tail.new.id.clone(), tail.life.state(now));
        FlowRecord::new(entry.id.clone(), entry.created_at, ending, counts, last_finish)
            .named(entry.name.clone())
    }
}
