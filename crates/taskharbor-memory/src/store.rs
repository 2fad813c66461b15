//! [`Store`]: the jobs and every index over them.
//!
//! One rule keeps the indexes true: every change to a job goes through [`Store::change_life`], which
//! takes the job out of the indexes before, puts it back after, and tells its flow what changed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use slab::Slab;
use taskharbor_core::{
    JobId, NewJob, QueueName, State, Timestamp,
    admin::WorkerRecord,
    driver::{Incarnation, Limits},
    export::EdgeState,
    life::{Life, Stage},
    name::{Holder, IdempotencyKey},
};

use crate::{
    flow::Flow,
    key::Keys,
    prune::TerminalIndex,
    queue::{Position, Queue},
    schedule::Schedules,
};

/// Where a job is kept.
pub(crate) type JobSlot = usize;

/// A job and its edges.
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
    pub(crate) edges: Vec<Edge>,
    /// The members of its flow that wait for this job or read its output, and which of their edges
    /// leads here.
    pub(crate) dependants: Vec<(JobSlot, usize)>,
    /// Where `life.expanded_into` is.
    pub(crate) expanded: Option<JobRef>,
}

/// A job that may be gone: its slot, and the number that tells it from a later job there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JobRef {
    pub(crate) slot: JobSlot,
    pub(crate) seq: u64,
}

impl JobRef {
    /// A job that is stored nowhere. Numbers begin with one.
    pub(crate) const NOWHERE: Self = Self { slot: JobSlot::MAX, seq: 0 };
}

/// An edge to a parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) parent: JobRef,
    pub(crate) state: EdgeState,
}

/// Where a job stands as far as its flow is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    NotStarted,
    Inflight,
    /// Over, and to be kept until then.
    Over(Timestamp),
}

#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) limits: Limits,
    pub(crate) closed: bool,
    pub(crate) jobs: Slab<Entry>,
    pub(crate) by_id: HashMap<JobId, JobSlot>,
    pub(crate) keys: Keys,
    /// The keys that outlived their jobs, by the time at which they are free.
    pub(crate) orphaned_keys: BTreeSet<(Timestamp, QueueName, IdempotencyKey)>,
    pub(crate) by_seq: BTreeMap<u64, JobSlot>,
    pub(crate) queues: Slab<Queue>,
    pub(crate) queue_ids: HashMap<QueueName, usize>,
    pub(crate) flows: Slab<Flow>,
    pub(crate) flow_ids: HashMap<JobId, usize>,
    pub(crate) flows_by_seq: BTreeMap<u64, usize>,
    pub(crate) terminal: TerminalIndex,
    pub(crate) schedules: Schedules,
    /// Edges of imported jobs to parents that are not stored, or not yet.
    pub(crate) missing: HashMap<JobId, Vec<(JobRef, usize)>>,
    /// Those that have announced themselves.
    pub(crate) workers: BTreeMap<(Holder, Incarnation), WorkerRecord>,
    /// Queues whose watches are woken after this step.
    pub(crate) wakes: Vec<QueueName>,
    next_seq: u64,
}

impl Store {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            closed: false,
            jobs: Slab::new(),
            by_id: HashMap::new(),
            keys: Keys::new(),
            orphaned_keys: BTreeSet::new(),
            by_seq: BTreeMap::new(),
            queues: Slab::new(),
            queue_ids: HashMap::new(),
            flows: Slab::new(),
            flow_ids: HashMap::new(),
            flows_by_seq: BTreeMap::new(),
            terminal: TerminalIndex::default(),
            schedules: Schedules::default(),
            missing: HashMap::new(),
            workers: BTreeMap::new(),
            wakes: Vec::new(),
            next_seq: 0,
        }
    }

    pub(crate) fn next_seq(&mut self) -> u64 {
        self.next_seq += 1;
        self.next_seq
    }

    /// Stores a job that is not stored yet, without edges.
    pub(crate) fn insert(&mut self, new: NewJob, flow: Option<usize>, now: Timestamp) -> JobSlot {
        let flow_id = flow.map(|flow| self.flows[flow].id.clone());
        let life = Life::new(&new, new.parents.len(), flow_id, now);
        self.take_over(new, now, life, true, flow)
    }

    /// Stores a job with the life it had elsewhere.
    pub(crate) fn take_over(
        &mut self,
        new: NewJob,
        created_at: Timestamp,
        life: Life,
        holds_key: bool,
        flow: Option<usize>,
    ) -> JobSlot {
        let (seq, queue) = (self.next_seq(), self.queue(&new.queue));
        let id = new.id.clone();
        // JOB-1
        let slot = self.jobs.insert(Entry {
            new,
            created_at,
            life,
            seq,
            queue,
            flow,
            edges: Vec::new(),
            dependants: Vec::new(),
            expanded: None,
        });
        self.by_id.insert(id, slot);
        if holds_key {
            self.take_key(slot);
        }
        self.by_seq.insert(seq, slot);
        self.index(slot);
        if let Some(flow) = flow {
            self.join_flow(slot, flow);
        }
        slot
    }

    /// Removes a job that is in no flow, or whose whole flow is being removed.
    pub(crate) fn remove(&mut self, slot: JobSlot) {
        self.unindex(slot);
        // PRU-3
        self.drop_key_with_record(slot);
        let entry = self.jobs.remove(slot);
        self.by_id.remove(&entry.new.id);
        self.by_seq.remove(&entry.seq);
        self.forget_if_idle(entry.queue);
    }

    /// Changes a job's life and keeps every index true.
    pub(crate) fn change_life<T>(
        &mut self,
        slot: JobSlot,
        change: impl FnOnce(&mut Life) -> T,
    ) -> T {
        self.unindex(slot);
        let entry = &mut self.jobs[slot];
        let before = entry.standing();
        let answer = change(&mut entry.life);
        let after = entry.standing();
        self.index(slot);
        if before != after {
            self.count_in_flow(slot, Some(before), Some(after));
        }
        answer
    }

    pub(crate) fn slot(&self, id: &JobId) -> Option<JobSlot> {
        self.by_id.get(id).copied()
    }

    pub(crate) fn job_ref(&self, slot: JobSlot) -> JobRef {
        JobRef { slot, seq: self.jobs[slot].seq }
    }

    /// The job, if it is still stored.
    pub(crate) fn resolve(&self, place: JobRef) -> Option<&Entry> {
        self.jobs.get(place.slot).filter(|entry| entry.seq == place.seq)
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

    pub(crate) fn index(&mut self, slot: JobSlot) {
        let entry = &self.jobs[slot];
        let queue = &mut self.queues[entry.queue];
        *queue.counts.get_mut(entry.counted_as()) += 1;
        match (entry.place(slot), entry.life.finish()) {
            (Some(place), None) => {
                queue.line_up(entry.life.priority, &entry.new.lane, place);
                // LIM-7: however the job became ready, its lease is counted here.
                if let Some(held) = entry.life.active_lease() {
                    queue.gate.lease(&entry.new.lane, held.lease.expires_at, slot);
                }
            }
            (Some(place), Some(finish)) if entry.flow.is_none() => {
                self.terminal.add_job(finish.state, place);
            }
            _ => {}
        }
    }

    pub(crate) fn unindex(&mut self, slot: JobSlot) {
        let entry = &self.jobs[slot];
        let queue = &mut self.queues[entry.queue];
        *queue.counts.get_mut(entry.counted_as()) -= 1;
        match (entry.place(slot), entry.life.finish()) {
            (Some(place), None) => {
                queue.step_out(entry.life.priority, &entry.new.lane, &place);
                if let Some(held) = entry.life.active_lease() {
                    queue.gate.free(&entry.new.lane, held.lease.expires_at, slot);
                }
            }
            (Some(place), Some(finish)) if entry.flow.is_none() => {
                self.terminal.remove_job(finish.state, &place);
            }
            _ => {}
        }
    }
}

impl Entry {
    /// Its position in its queue, or among the terminal jobs.
    pub(crate) fn place(&self, slot: JobSlot) -> Option<Position> {
        let at = self.life.grantable_at().or_else(|| self.life.kept_until())?;
        Some((at, self.seq, slot))
    }

    /// The state that counts, in which ready and scheduled are one: time alone tells them apart.
    pub(crate) fn counted_as(&self) -> State {
        self.life.state(Timestamp::MAX)
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.life.finish().is_some()
    }

    pub(crate) fn standing(&self) -> Standing {
        match (&self.life.stage, self.life.kept_until()) {
            (_, Some(until)) => Standing::Over(until),
            (Stage::Inflight(_), None) => Standing::Inflight,
            (Stage::Blocked | Stage::Waiting | Stage::Finished(_), None) => Standing::NotStarted,
        }
    }
}
