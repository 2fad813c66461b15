//! Looking for contradictions between the jobs and the indexes over them.

use std::collections::HashSet;

use taskharbor_core::{
    State,
    admin::{Inconsistency, StateCounts},
    life::Stage,
};

use crate::{
    flow::Flow,
    queue::Queue,
    store::{Entry, Slot, Standing, Store, Tie},
};

/// Parent, dependant, and which of the dependant's links it is.
type Ties = HashSet<(Slot, Slot, usize)>;

fn ties_of(slot: Slot, entry: &Entry) -> impl Iterator<Item = (Slot, Slot, usize)> {
    entry.dependants.iter().map(move |(dependant, order)| (slot, *dependant, *order))
}

impl Store {
    pub(crate) fn check(&self) -> Vec<Inconsistency> {
        let mut found = Vec::new();
        let ties: Ties = self.jobs.iter().flat_map(|(slot, entry)| ties_of(slot, entry)).collect();
        let jobs = self.jobs.iter().flat_map(|(slot, entry)| self.check_job(slot, entry, &ties));
        found.extend(jobs);
        found.extend(self.queues.iter().flat_map(|(at, queue)| self.check_queue(at, queue)));
        found.extend(self.flows.iter().flat_map(|(at, flow)| self.check_flow(at, flow)));
        let shelved: usize = [State::Done, State::Dlq, State::Cancelled]
            .map(|state| self.retired.shelf(state).flows.len())
            .iter()
            .sum();
        if shelved != self.flows.iter().filter(|(_, flow)| flow.retired_as.is_some()).count() {
            found.push("flows are shelved that are not over".to_owned());
        }
        let sizes = [self.by_id.len(), self.by_seq.len()];
        if sizes.iter().any(|size| *size != self.jobs.len()) {
            found.push(format!("{} jobs, but indexes of {sizes:?}", self.jobs.len()));
        }
        for ((queue, key), slot) in &self.by_key {
            let holder = self.jobs.get(*slot).map(|entry| &entry.new);
            if !holder
                .is_some_and(|new| new.queue == *queue && new.idempotency_key.as_ref() == Some(key))
            {
                found.push(format!("key {key} of queue {queue} is held by no job that has it"));
            }
        }
        found.into_iter().map(Inconsistency::new).collect()
    }

    fn check_job(&self, slot: Slot, entry: &Entry, ties: &Ties) -> Vec<String> {
        let mut found = Vec::new();
        let id = &entry.new.id;
        if self.by_id.get(id) != Some(&slot) || self.by_seq.get(&entry.seq) != Some(&slot) {
            found.push(format!("job {id} is not found where it is"));
        }
        let open = entry.links.iter().filter(|link| link.tie == Tie::Open).count();
        if open != entry.life.pending {
            found.push(format!("job {id} waits for {} of {open} parents", entry.life.pending));
        }
        if matches!(entry.life.stage, Stage::Blocked) != (open > 0) && !entry.is_over() {
            found.push(format!("job {id} has {open} open links and is {}", entry.counted_as()));
        }
        let tied = entry.links.iter().enumerate().all(|(order, link)| {
            let parent = self.still_at(link.parent);
            let near = parent.is_some_and(|it| it.flow.is_some() && it.flow == entry.flow);
            near == ties.contains(&(link.parent.slot, slot, order))
        });
        if !tied || entry.links.len() != entry.new.parents.len() {
            found.push(format!("job {id} and its parents do not know each other"));
        }
        let flow = entry.flow.and_then(|flow| self.flows.get(flow));
        if flow.map(|flow| &flow.id) != entry.life.flow.as_ref() {
            found.push(format!("job {id} is not in the flow it names"));
        }
        found
    }

    fn check_queue(&self, at: usize, queue: &Queue) -> Vec<String> {
        let mut found = Vec::new();
        let mut counts = StateCounts::default();
        let mut lined_up = HashSet::new();
        for (slot, entry) in self.jobs.iter().filter(|(_, entry)| entry.queue == at) {
            *counts.get_mut(entry.counted_as()) += 1;
            if !entry.is_over() {
                lined_up.extend(entry.place(slot).map(|place| (entry.life.priority, place)));
            }
        }
        if counts != queue.counts {
            found.push(format!("queue {} counts {:?}, has {counts:?}", queue.name, queue.counts));
        }
        let places: HashSet<_> =
            queue.places().map(|(priority, place)| (priority, *place)).collect();
        if places != lined_up {
            found.push(format!("queue {}: {places:?}, but jobs {lined_up:?}", queue.name));
        }
        found
    }

    fn check_flow(&self, at: usize, flow: &Flow) -> Vec<String> {
        let mut found = Vec::new();
        let members = flow.members.values().filter_map(|slot| self.jobs.get(*slot));
        let members: Vec<_> = members.filter(|entry| entry.flow == Some(at)).collect();
        let standing = |wanted: fn(&Standing) -> bool| {
            members.iter().filter(|entry| wanted(&entry.standing())).count()
        };
        let not_started = standing(|it| *it == Standing::NotStarted);
        let inflight = standing(|it| *it == Standing::Inflight);
        let over = members.len() - not_started - inflight;
        let counted = (flow.not_started.len(), flow.inflight.len(), flow.over.len());
        if members.len() != flow.members.len() || counted != (not_started, inflight, over) {
            found.push(format!("flow {} counts {counted:?} of {}", flow.id, members.len()));
        }
        let until = members.iter().filter_map(|entry| entry.life.kept_until()).max();
        let tail = self.jobs.get(flow.tail).and_then(|tail| tail.life.finish());
        let ended = tail.filter(|_| flow.is_over()).map(|finish| finish.state);
        if flow.retired_as != ended.zip(until) {
            found.push(format!("flow {} is retired as {:?}", flow.id, flow.retired_as));
        }
        if let Some((state, until)) = flow.retired_as
            && !self.retired.shelf(state).flows.contains(&(until, flow.seq, at))
        {
            found.push(format!("flow {} is not among those that are over", flow.id));
        }
        found
    }
}
