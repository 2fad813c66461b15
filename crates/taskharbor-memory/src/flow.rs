//! [`Flow`]: what is known of a flow beside its members.

use std::collections::BTreeMap;

use taskharbor_core::{FlowName, FlowRecord, JobId, NewJob, Shape, State, StateCounts, Timestamp};

use crate::store::{Link, Slot, Store, Wakes};

#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) id: JobId,
    pub(crate) name: Option<FlowName>,
    pub(crate) seq: u64,
    pub(crate) created_at: Timestamp,
    /// The member whose output is the flow's.
    pub(crate) tail: Slot,
    /// By order of insertion.
    pub(crate) members: BTreeMap<u64, Slot>,
    /// How many members are not over.
    pub(crate) unfinished: usize,
    /// Where it stands among the flows that are over.
    pub(crate) retired_as: Option<(State, Timestamp)>,
    /// The latest time until which an ended member must be kept; `None` when a member came back
    /// to life or left, and it has to be looked for again.
    kept_until: Option<Timestamp>,
}

impl Store {
    /// A flow without members; its tail has to be set.
    pub(crate) fn begin_flow(
        &mut self,
        id: JobId,
        name: Option<FlowName>,
        tail: Slot,
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
            unfinished: 0,
            retired_as: None,
            kept_until: Some(Timestamp::EPOCH),
        });
        self.flow_ids.insert(id, flow);
        self.flows_by_seq.insert(seq, flow);
        flow
    }

    /// Stores the members of a flow or of a growth and ties them; answers their slots.
    pub(crate) fn insert_members(
        &mut self,
        jobs: Vec<NewJob>,
        shape: &Shape,
        flow: usize,
        now: Timestamp,
    ) -> Vec<Slot> {
        let slots: Vec<Slot> =
            jobs.into_iter().map(|job| self.insert(job, Some(flow), now)).collect();
        for (child, parents) in shape.parents.iter().enumerate() {
            for (order, parent) in parents.iter().enumerate() {
                let parent = slots[*parent];
                let seq = self.jobs[parent].seq;
                self.jobs[slots[child]].links.push(Link { parent, seq, open: true });
                self.jobs[parent].dependants.push((slots[child], order));
            }
        }
        slots
    }

    /// Counts a member that was put into the indexes.
    pub(crate) fn count_into_flow(&mut self, slot: Slot) {
        let entry = &self.jobs[slot];
        let Some(flow) = entry.flow else { return };
        let flow_entry = &mut self.flows[flow];
        match entry.life.kept_until() {
            Some(until) => {
                flow_entry.kept_until = flow_entry.kept_until.map(|latest| latest.max(until));
            }
            None => flow_entry.unfinished += 1,
        }
        self.retire_flow(flow);
    }

    /// Stops counting a member that is taken out of the indexes.
    pub(crate) fn count_out_of_flow(&mut self, slot: Slot) {
        let entry = &self.jobs[slot];
        let Some(flow) = entry.flow else { return };
        let flow_entry = &mut self.flows[flow];
        if entry.is_over() {
            flow_entry.kept_until = None;
        } else {
            flow_entry.unfinished -= 1;
        }
        self.unretire_flow(flow);
    }

    /// Puts a flow among those that are over, if it is.
    fn retire_flow(&mut self, flow: usize) {
        self.unretire_flow(flow);
        let entry = &self.flows[flow];
        // While its first members are being stored, its tail is not there yet.
        let tail = self.jobs.get(entry.tail).filter(|tail| tail.flow == Some(flow));
        let Some(tail) = tail.filter(|_| entry.unfinished == 0) else {
            return;
        };
        let until = entry.kept_until.or_else(|| {
            entry.members.values().filter_map(|slot| self.jobs[*slot].life.kept_until()).max()
        });
        if let (Some(until), Some(finish)) = (until, tail.life.finish()) {
            self.retired.add_flow(finish.state, (until, entry.seq, flow));
            let entry = &mut self.flows[flow];
            entry.kept_until = Some(until);
            entry.retired_as = Some((finish.state, until));
        }
    }

    fn unretire_flow(&mut self, flow: usize) {
        let entry = &mut self.flows[flow];
        if let Some((state, until)) = entry.retired_as.take() {
            self.retired.remove_flow(state, &(until, entry.seq, flow));
        }
    }

    /// Changes which member's output is the flow's.
    pub(crate) fn set_tail(&mut self, flow: usize, tail: Slot) {
        self.flows[flow].tail = tail;
        self.retire_flow(flow);
    }

    /// Takes an ended job out of its flow. Nobody waits for anybody across the border; what is left
    /// is that the job and its former dependants can read what they could read before.
    pub(crate) fn detach(&mut self, slot: Slot, now: Timestamp, wakes: &mut Wakes) {
        self.let_dependants_go(slot, now, wakes);
        self.unindex(slot);
        let entry = &mut self.jobs[slot];
        entry.dependants.clear();
        entry.life.flow = None;
        entry.life.pending = 0;
        for link in &mut entry.links {
            link.open = false;
        }
        let (links, flow, seq) = (entry.links.clone(), entry.flow.take(), entry.seq);
        self.index(slot);
        for link in links {
            if self.is_linked(link) {
                self.jobs[link.parent].dependants.retain(|(dependant, _)| *dependant != slot);
            }
        }
        if let Some(flow) = flow {
            self.flows[flow].members.remove(&seq);
            self.retire_flow(flow);
        }
    }

    /// Removes a flow and all its members; answers how many there were.
    pub(crate) fn remove_flow(&mut self, flow: usize) -> usize {
        self.unretire_flow(flow);
        let members: Vec<Slot> = self.flows[flow].members.values().copied().collect();
        for slot in &members {
            self.remove(*slot);
        }
        let flow = self.flows.remove(flow);
        self.flow_ids.remove(&flow.id);
        self.flows_by_seq.remove(&flow.seq);
        members.len()
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
