//! [`Store`]: the jobs and every index over them.
//!
//! One rule keeps the indexes true: whoever changes a job does it through [`Store::change`], which
//! takes the job out of them before and puts it back after.

use std::collections::{BTreeMap, HashMap};

use slab::Slab;
use taskharbor_core::{
    IdempotencyKey, JobId, Life, Limits, NewJob, QueueName, Stage, State, Timestamp,
};

use crate::{
    flow::Flow,
    prune::Retired,
    queue::{Place, Queue},
};

/// Where a job is kept.
pub(crate) type Slot = usize;

/// A job and its ties to others.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) new: NewJob,
    pub(crate) created_at: Timestamp,
    pub(crate) life: Life,
    /// Its number in the order of insertion, never used again.
    pub(crate) seq: u64,
    pub(crate) queue: usize,
    pub(crate) flow: Option<usize>,
    /// One for each of `new.parents`.
    pub(crate) links: Vec<Link>,
    /// Those who wait for this job or read its output, and which of their links it is.
    pub(crate) dependants: Vec<(Slot, usize)>,
}

/// A tie to a parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) parent: Slot,
    /// Tells the parent from a later job in the same slot.
    pub(crate) seq: u64,
    /// Whether the parent is still waited for.
    pub(crate) open: bool,
}

/// Queues in which somebody should look for work.
pub(crate) type Wakes = Vec<QueueName>;

#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) limits: Limits,
    pub(crate) closed: bool,
    /// The latest time that the store has told anybody.
    pub(crate) last_told: Timestamp,
    pub(crate) jobs: Slab<Entry>,
    pub(crate) by_id: HashMap<JobId, Slot>,
    pub(crate) by_key: HashMap<(QueueName, IdempotencyKey), Slot>,
    pub(crate) by_seq: BTreeMap<u64, Slot>,
    pub(crate) queues: Slab<Queue>,
    pub(crate) queue_ids: HashMap<QueueName, usize>,
    pub(crate) flows: Slab<Flow>,
    pub(crate) flow_ids: HashMap<JobId, usize>,
    pub(crate) flows_by_seq: BTreeMap<u64, usize>,
    pub(crate) retired: Retired,
    next_seq: u64,
}

impl Store {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            closed: false,
            last_told: Timestamp::EPOCH,
            jobs: Slab::new(),
            by_id: HashMap::new(),
            by_key: HashMap::new(),
            by_seq: BTreeMap::new(),
            queues: Slab::new(),
            queue_ids: HashMap::new(),
            flows: Slab::new(),
            flow_ids: HashMap::new(),
            flows_by_seq: BTreeMap::new(),
            retired: Retired::default(),
            next_seq: 0,
        }
    }

    pub(crate) fn next_seq(&mut self) -> u64 {
        self.next_seq += 1;
        self.next_seq
    }

    /// Stores a job that is not stored yet, without ties.
    pub(crate) fn insert(&mut self, new: NewJob, flow: Option<usize>, now: Timestamp) -> Slot {
        let flow_id = flow.map(|flow| self.flows[flow].id.clone());
        let life = Life::new(&new, new.parents.len(), flow_id, now);
        let (seq, queue) = (self.next_seq(), self.queue(&new.queue));
        let (id, key) = (new.id.clone(), new.idempotency_key.clone());
        let in_queue = new.queue.clone();
        let (links, dependants) = (Vec::new(), Vec::new());
        let entry = Entry { new, created_at: now, life, seq, queue, flow, links, dependants };
        let slot = self.jobs.insert(entry);
        self.by_id.insert(id, slot);
        if let Some(key) = key {
            self.by_key.insert((in_queue, key), slot);
        }
        self.by_seq.insert(seq, slot);
        if let Some(flow) = flow {
            self.flows[flow].members.insert(seq, slot);
        }
        self.index(slot);
        slot
    }

    /// Removes a job that is in no flow, or whose whole flow is being removed.
    pub(crate) fn remove(&mut self, slot: Slot) {
        self.unindex(slot);
        self.release_key(slot);
        let entry = self.jobs.remove(slot);
        self.by_id.remove(&entry.new.id);
        self.by_seq.remove(&entry.seq);
        if let Some(flow) = entry.flow {
            self.flows[flow].members.remove(&entry.seq);
        }
        self.forget_if_idle(entry.queue);
    }

    /// Changes a job's life and keeps every index true.
    pub(crate) fn change<T>(
        &mut self,
        slot: Slot,
        change: impl FnOnce(&NewJob, &mut Life) -> T,
    ) -> T {
        self.unindex(slot);
        let entry = &mut self.jobs[slot];
        let answer = change(&entry.new, &mut entry.life);
        self.index(slot);
        answer
    }

    pub(crate) fn slot(&self, id: &JobId) -> Option<Slot> {
        self.by_id.get(id).copied()
    }

    /// Whether the parent that a link names is still stored.
    pub(crate) fn is_linked(&self, link: Link) -> bool {
        self.jobs.get(link.parent).is_some_and(|parent| parent.seq == link.seq)
    }

    /// Gives up the key that a job holds, if it does.
    pub(crate) fn release_key(&mut self, slot: Slot) {
        let new = &self.jobs[slot].new;
        if let Some(key) = new.idempotency_key.clone() {
            let key = (new.queue.clone(), key);
            if self.by_key.get(&key) == Some(&slot) {
                self.by_key.remove(&key);
            }
        }
    }

    pub(crate) fn queue(&mut self, name: &QueueName) -> usize {
        if let Some(queue) = self.queue_ids.get(name) {
            return *queue;
        }
        let queue = self.queues.insert(Queue::new(name.clone()));
        self.queue_ids.insert(name.clone(), queue);
        queue
    }

    pub(crate) fn forget_if_idle(&mut self, queue: usize) {
        if self.queues[queue].is_idle() {
            let queue = self.queues.remove(queue);
            self.queue_ids.remove(&queue.name);
        }
    }

    pub(crate) fn index(&mut self, slot: Slot) {
        let entry = &self.jobs[slot];
        let queue = &mut self.queues[entry.queue];
        *queue.counts.get_mut(entry.counted_as()) += 1;
        match &entry.life.stage {
            Stage::Blocked => {}
            Stage::Waiting => queue.line_up(entry.life.priority, entry.place(slot)),
            Stage::Inflight(_) => queue.lease(entry.place(slot)),
            Stage::Finished(_) if entry.flow.is_some() => {}
            Stage::Finished(finish) => self.retired.add_job(finish.state, entry.place(slot)),
        }
        self.count_into_flow(slot);
    }

    pub(crate) fn unindex(&mut self, slot: Slot) {
        let entry = &self.jobs[slot];
        let queue = &mut self.queues[entry.queue];
        *queue.counts.get_mut(entry.counted_as()) -= 1;
        match &entry.life.stage {
            Stage::Blocked => {}
            Stage::Waiting => queue.step_out(entry.life.priority, &entry.place(slot)),
            Stage::Inflight(_) => queue.unlease(&entry.place(slot)),
            Stage::Finished(_) if entry.flow.is_some() => {}
            Stage::Finished(finish) => self.retired.remove_job(finish.state, &entry.place(slot)),
        }
        self.count_out_of_flow(slot);
    }
}

impl Entry {
    /// Its place in the index that its stage puts it in.
    pub(crate) fn place(&self, slot: Slot) -> Place {
        let at = match &self.life.stage {
            Stage::Blocked | Stage::Waiting => self.life.due_at,
            Stage::Inflight(hold) => hold.lease.expires_at,
            Stage::Finished(finish) => self.life.kept_until().unwrap_or(finish.at),
        };
        (at, self.seq, slot)
    }

    /// The state that counts, in which ready and scheduled are one: time alone tells them apart.
    pub(crate) fn counted_as(&self) -> State {
        self.life.state(Timestamp::MAX)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.life.finish().is_some()
    }
}
