//! Looking for contradictions between the jobs and the indexes over them.

use taskharbor_core::{Inconsistency, Stage, State, StateCounts};

use crate::{
    flow::Flow,
    queue::Queue,
    store::{Entry, Slot, Store},
};

impl Store {
    pub(crate) fn check(&self) -> Vec<Inconsistency> {
        let mut found = Vec::new();
        let jobs = self.jobs.iter().flat_map(|(slot, entry)| self.check_job(slot, entry));
        found.extend(jobs);
        found.extend(self.queues.iter().flat_map(|(at, queue)| self.check_queue(at, queue)));
        found.extend(self.flows.iter().flat_map(|(at, flow)| self.check_flow(at, flow)));
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
        found.into_iter().map(Inconsistency).collect()
    }

    fn check_job(&self, slot: Slot, entry: &Entry) -> Vec<String> {
        let mut found = Vec::new();
        let id = &entry.new.id;
        if self.by_id.get(id) != Some(&slot) || self.by_seq.get(&entry.seq) != Some(&slot) {
            found.push(format!("job {id} is not found where it is"));
        }
        let open = entry.links.iter().filter(|link| link.open).count();
        if open != entry.life.pending {
            found.push(format!("job {id} waits for {} of {open} parents", entry.life.pending));
        }
        if matches!(entry.life.stage, Stage::Blocked) != (open > 0) && !entry.is_over() {
            found.push(format!("job {id} has {open} open links and is {}", entry.counted_as()));
        }
        let in_flow = |slot: Slot| self.jobs.get(slot).and_then(|entry| entry.flow);
        let tied = entry.links.iter().enumerate().all(|(order, link)| {
            let known = self.jobs.get(link.parent);
            let known = known.is_some_and(|parent| parent.dependants.contains(&(slot, order)));
            let same_flow =
                self.is_linked(*link) && entry.flow.is_some() && in_flow(link.parent) == entry.flow;
            known == same_flow
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
        let mut waiting = 0;
        let mut inflight = 0;
        for (_, entry) in self.jobs.iter().filter(|(_, entry)| entry.queue == at) {
            *counts.get_mut(entry.counted_as()) += 1;
            waiting += usize::from(matches!(entry.life.stage, Stage::Waiting));
            inflight += usize::from(matches!(entry.life.stage, Stage::Inflight(_)));
        }
        if counts != queue.counts {
            found.push(format!("queue {} counts {:?}, has {counts:?}", queue.name, queue.counts));
        }
        let lined_up = queue.places().filter(|(priority, place)| {
            self.jobs.get(place.2).is_some_and(|entry| {
                matches!(entry.life.stage, Stage::Waiting)
                    && entry.life.priority == *priority
                    && entry.place(place.2) == **place
            })
        });
        let leased = queue.leases().filter(|place| {
            self.jobs.get(place.2).is_some_and(|entry| {
                matches!(entry.life.stage, Stage::Inflight(_)) && entry.place(place.2) == **place
            })
        });
        let right = (lined_up.count(), leased.count());
        let all = (queue.places().count(), queue.leases().count());
        if right != (waiting, inflight) || all != right {
            found.push(format!("queue {}: lines {all:?}, jobs {waiting} {inflight}", queue.name));
        }
        found
    }

    fn check_flow(&self, at: usize, flow: &Flow) -> Vec<String> {
        let mut found = Vec::new();
        let members = flow.members.values().filter_map(|slot| self.jobs.get(*slot));
        let members: Vec<_> = members.filter(|entry| entry.flow == Some(at)).collect();
        let unfinished = members.iter().filter(|entry| !entry.is_over()).count();
        if members.len() != flow.members.len() || unfinished != flow.unfinished {
            found.push(format!("flow {} has {unfinished} unfinished members", flow.id));
        }
        let until = members.iter().filter_map(|entry| entry.life.kept_until()).max();
        let tail = self.jobs.get(flow.tail).and_then(|tail| tail.life.finish());
        let over = tail.filter(|_| unfinished == 0).map(|finish| finish.state);
        if flow.retired_as != over.zip(until) {
            found.push(format!("flow {} is retired as {:?}", flow.id, flow.retired_as));
        }
        if let Some((state, until)) = flow.retired_as
            && !self.retired.shelf(state).flows.contains(&(until, flow.seq, at))
        {
            found.push(format!("flow {} is not among those that are over", flow.id));
        }
        let shelved: usize = [State::Done, State::Dlq, State::Cancelled]
            .map(|state| self.retired.shelf(state).flows.len())
            .iter()
            .sum();
        if shelved != self.flows.iter().filter(|(_, flow)| flow.retired_as.is_some()).count() {
            found.push("flows are shelved that are not over".to_owned());
        }
        found
    }
}
