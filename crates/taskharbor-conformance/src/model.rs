//! [`Model`]: the contract as a list that is searched from end to end.
//!
//! It is slow, small, and written to be believed: no index, no cache, nothing stored that can be
//! worked out. It shares the life cycle of a single job with the drivers that use
//! `taskharbor-core` for it, and nothing else, so the rules over several jobs (order, turns, limits,
//! keys, edges, expansion, pruning) are here a second time, in another way.

mod admin;
mod export;
mod limit;
mod outcome;
mod read;
#[cfg(test)]
mod reserve;
mod schedule;
mod worker;
mod write;

pub(crate) use limit::{Lane, Scope, Turn};

use std::collections::{BTreeMap, BTreeSet};

use taskharbor_core::{
    JobId, NewJob, QueueName, Text, Timestamp,
    admin::{LimitsRecord, ScheduleRecord, WorkerRecord},
    driver::{LeaseToken, Limits},
    export::{EdgeState, ExportedKey},
    job::{Condition, JobRecord, JobView},
    life::{Life, Stage},
    name::{FlowName, OwnerName},
};

/// All jobs, in the order of insertion.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) limits: Limits,
    pub(crate) jobs: Vec<Kept>,
    pub(crate) flows: Vec<KeptFlow>,
    /// Keys that outlived their jobs.
    pub(crate) keys: Vec<ExportedKey>,
    /// Keys whose time was up when their jobs were removed. A driver may have forgotten them, which
    /// shows if a later call has an earlier time.
    pub(crate) forgotten: Vec<ExportedKey>,
    pub(crate) paused: BTreeMap<QueueName, Timestamp>,
    pub(crate) schedules: Vec<ScheduleRecord>,
    pub(crate) owners: BTreeMap<OwnerName, u64>,
    pub(crate) queue_limits: Vec<LimitsRecord>,
    /// Up to when rates are charged.
    pub(crate) charged: BTreeMap<Scope, Timestamp>,
    pub(crate) holds: BTreeMap<Scope, Timestamp>,
    /// What workers have announced, in any order.
    pub(crate) workers: Vec<WorkerRecord>,
    /// See `Model::turns_of`.
    pub(crate) turns: BTreeMap<QueueName, BTreeSet<Turn>>,
    pub(crate) last_serial: u64,
}

/// One job.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    /// Tells it from every other job there ever was.
    pub(crate) serial: u64,
    pub(crate) new: NewJob,
    pub(crate) created_at: Timestamp,
    pub(crate) life: Life,
    /// One for each of `new.parents`: its serial, and the state of the edge to it. The serial is
    /// zero if the job was imported and the parent was not stored then.
    pub(crate) parents: Vec<(u64, EdgeState)>,
    /// The serial of the tail of its expansion; zero as above.
    pub(crate) expansion: Option<u64>,
    pub(crate) holds_key: bool,
}

/// One flow; its members are the jobs that name it.
#[derive(Clone, Debug)]
pub(crate) struct KeptFlow {
    pub(crate) serial: u64,
    pub(crate) id: JobId,
    pub(crate) name: Option<FlowName>,
    pub(crate) created_at: Timestamp,
    /// The serial of the member whose output is the flow's.
    pub(crate) tail: u64,
}

impl Model {
    pub(crate) fn find(&self, id: &JobId) -> Option<usize> {
        self.jobs.iter().position(|job| job.new.id == *id)
    }

    pub(crate) fn by_serial(&self, serial: u64) -> Option<usize> {
        self.jobs.iter().position(|job| job.serial == serial)
    }

    pub(crate) fn flow(&self, id: &JobId) -> Option<usize> {
        self.flows.iter().position(|flow| flow.id == *id)
    }

    pub(crate) fn members<'a>(&'a self, flow: &'a JobId) -> impl Iterator<Item = &'a Kept> {
        self.jobs.iter().filter(move |job| job.life.flow.as_ref() == Some(flow))
    }

    pub(crate) fn tail(&self, flow: usize) -> &Kept {
        let tail = self.by_serial(self.flows[flow].tail);
        &self.jobs[tail.expect("the tail is stored as long as its flow is")]
    }

    pub(crate) fn record(&self, at: usize, now: Timestamp) -> JobRecord {
        let job = &self.jobs[at];
        let parents = job.new.parents.clone();
        let record = JobRecord::assemble(&job.new, job.created_at, &job.life, parents, now);
        record.held_back(self.held_back(&job.new.queue, &job.new.lane, now))
    }

    /// Takes over the token that a driver chose for a job.
    pub(crate) fn adopt(&mut self, id: &JobId, token: LeaseToken) {
        if let Some(at) = self.find(id)
            && let Stage::Inflight(hold) = &mut self.jobs[at].life.stage
        {
            hold.lease.token = token;
        }
    }

    /// Takes over the reason that a driver gave for the cancellation of a job, where it had a
    /// choice; also where dependants read it.
    pub(crate) fn adopt_reason(&mut self, id: &JobId, reason: &Text) {
        let Some(at) = self.find(id) else { return };
        let serial = self.jobs[at].serial;
        let old = self.jobs[at].life.reason.replace(reason.clone());
        for (parent, edge) in self.jobs.iter_mut().flat_map(|job| &mut job.parents) {
            if let EdgeState::Spent { reason: read, .. } = edge
                && *parent == serial
                && *read == old
            {
                *read = Some(reason.clone());
            }
        }
    }

    /// As `adopt_reason`, for a failure job of which several parents were done in one step: its
    /// reason may name any of them.
    pub(crate) fn adopt_not_needed(&mut self, id: &JobId, reason: &Text) {
        let Some(at) = self.find(id) else { return };
        let job = &self.jobs[at];
        let is_not_needed = |text: &Text, parent: &JobId| {
            text.as_str() == format!("not needed: job {parent} succeeded")
        };
        let ended = job.life.finish().map(|finish| finish.at);
        let may_name = job.new.parents.iter().zip(&job.parents).filter(|(id, (serial, edge))| {
            let parent = self.by_serial(*serial).map(|at| &self.jobs[at].life);
            let done_at = parent.and_then(Life::finish).map(|finish| finish.at);
            *edge == EdgeState::Closed && done_at == ended && is_not_needed(reason, id)
        });
        let is_said = |said: &Text| job.new.parents.iter().any(|id| is_not_needed(said, id));
        if may_name.count() > 0 && job.life.reason.as_ref().is_some_and(is_said) {
            self.jobs[at].life.reason = Some(reason.clone());
        }
    }

    fn next_serial(&mut self) -> u64 {
        self.last_serial += 1;
        self.last_serial
    }
}

impl Kept {
    /// Whether this job waits for the one with that serial.
    pub(crate) fn waits_for(&self, serial: u64) -> bool {
        self.parents.contains(&(serial, EdgeState::Open))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.life.finish().is_some()
    }

    pub(crate) fn is_failure_job(&self) -> bool {
        self.new.condition == Condition::ParentsFailed
    }

    pub(crate) fn job(&self) -> JobView {
        JobView::assemble(&self.new, self.created_at, &self.life)
    }
}
