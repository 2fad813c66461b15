//! The rules that a unit must satisfy to be imported, checked without a store.

use std::collections::{HashMap, HashSet};

use super::{EdgeState, ExportUnit, ExportedJob};
use crate::{
    JobId, State,
    driver::Limits,
    error::Rejected,
    flow::ResolvedEdges,
    job::{JobKind, JobSet},
    life::Stage,
};

/// Why a unit is damaged: no store can have exported it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Damage {
    /// The unit has neither a job nor a key, or both, or several jobs without a flow.
    #[error("a unit is one job, a flow with its members, or one key")]
    Content,
    /// A job or the flow breaks a rule for enqueued jobs.
    #[error(transparent)]
    Job(#[from] Rejected),
    /// The job does not have one edge state for each parent, or the number of parents that it waits
    /// for differs from that of its open edges.
    #[error("the edges of job {0} do not agree with its parents")]
    Edges(JobId),
    /// The job's stage contradicts its other fields.
    #[error("the state of job {0} contradicts its other fields")]
    State(JobId),
    /// The job belongs to another flow than that of the unit.
    #[error("job {0} does not belong to the flow that it comes with")]
    Flow(JobId),
    /// The flow's tail is not among its members.
    #[error("the tail {0} of the flow is not among its members")]
    Tail(JobId),
    /// The job under whose id the flow began is not among its members.
    #[error("the flow began as job {0}, which is not among its members")]
    FirstTail(JobId),
    /// The job holds a key that it does not have.
    #[error("job {0} holds a key that it does not have")]
    Key(JobId),
}

impl ExportUnit {
    /// Checks that the unit is not damaged.
    ///
    /// # Errors
    ///
    /// The first contradiction, as [`Damage`].
    pub fn check(&self, limits: &Limits) -> Result<(), Damage> {
        // MOV-6
        match (&self.flow, &self.key, self.jobs.len()) {
            (None, Some(_), 0) => return Ok(()),
            (None, None, 1) | (Some(_), None, 1..) => {}
            _ => return Err(Damage::Content),
        }
        if self.flow.is_some() && !limits.has_flows() {
            return Err(Rejected::FlowsNotSupported.into());
        }
        let members: HashSet<&JobId> = self.jobs.iter().map(|job| &job.new.id).collect();
        for job in &self.jobs {
            // Payloads that the source took are taken: its limit may have been higher.
            let largest = limits.with_payload_bytes(Limits::MAX_PAYLOAD_BYTES).unwrap_or(*limits);
            let mut alone = job.new.clone();
            alone.parents.clear();
            alone.condition = crate::job::Condition::ParentsDone;
            alone.kind = JobKind::Work;
            JobSet::from(alone).check(&largest)?;
            self.check_job(job, &members)?;
        }
        let Some(flow) = &self.flow else { return Ok(()) };
        if members.len() != self.jobs.len() {
            return Err(self.repeated());
        }
        if !members.contains(&flow.tail) {
            return Err(Damage::Tail(flow.tail.clone()));
        }
        if !members.contains(&flow.id) {
            return Err(Damage::FirstTail(flow.id.clone()));
        }
        self.check_expansions()?;
        // Edges to members that were detached lead nowhere, so only those inside are looked at.
        let inside: Vec<_> = self.jobs.iter().map(|job| job.inside(&members)).collect();
        match ResolvedEdges::of(&inside) {
            // An expanded job is waited for by none, so several may look like tails.
            Ok(_) | Err(Rejected::SeveralTails { .. }) => Ok(()),
            Err(Rejected::FailureOfNothing { .. }) => Ok(()),
            Err(rejected) => Err(rejected.into()),
        }
    }

    /// No job may expand into itself, be it through others: a reader of its output would go round for
    /// ever. What an expansion leads to outside of the unit is a member that was detached.
    fn check_expansions(&self) -> Result<(), Damage> {
        let expanded = self
            .jobs
            .iter()
            .filter_map(|job| Some((&job.new.id, job.life.expanded_into.as_ref()?)));
        let expanded: HashMap<&JobId, &JobId> = expanded.collect();
        let mut ends: HashSet<&JobId> = HashSet::new();
        for &start in expanded.keys() {
            let (mut path, mut at) = (HashSet::new(), start);
            while !ends.contains(at) {
                if !path.insert(at) {
                    return Err(Damage::State(at.clone()));
                }
                match expanded.get(at) {
                    Some(&next) => at = next,
                    None => break,
                }
            }
            ends.extend(path);
        }
        Ok(())
    }

    fn repeated(&self) -> Damage {
        let mut seen = HashSet::new();
        let twice = self.jobs.iter().find(|job| !seen.insert(&job.new.id));
        twice
            .map_or(Damage::Content, |job| Rejected::DuplicateId { job: job.new.id.clone() }.into())
    }

    fn check_job(&self, job: &ExportedJob, members: &HashSet<&JobId>) -> Result<(), Damage> {
        let id = || job.new.id.clone();
        let open = job.edges.iter().filter(|edge| **edge == EdgeState::Open).count();
        let is_count_right = match &job.life.stage {
            Stage::Blocked => open > 0,
            Stage::Waiting | Stage::Inflight(_) => open == 0,
            Stage::Finished(_) => true,
        } && open == job.life.pending;
        if job.edges.len() != job.new.parents.len() || !is_count_right {
            return Err(Damage::Edges(id()));
        }
        let waits_outside = job
            .new
            .parents
            .iter()
            .zip(&job.edges)
            .any(|(parent, edge)| *edge == EdgeState::Open && !members.contains(parent));
        if waits_outside || job.edges.iter().any(is_spent_without_failure) {
            return Err(Damage::Edges(id()));
        }
        let life = &job.life;
        let is_join = matches!(job.new.kind, JobKind::Join(_));
        let counters = [life.attempts, life.deliveries, life.expirations, life.epoch];
        let has_wrong_state = match &life.stage {
            Stage::Finished(finish) => !finish.state.is_terminal(),
            Stage::Waiting | Stage::Inflight(_) => is_join,
            Stage::Blocked => false,
        };
        let is_done = life.finish().is_some_and(|finish| finish.state == State::Done);
        if has_wrong_state
            || life.errors.len() > Limits::ERRORS_KEPT
            || counters.iter().any(|count| *count > Limits::MAX_ATTEMPTS)
            || life.expanded_into.is_some() && !(is_done && self.flow.is_some())
            || life.released.is_some() && life.position().is_none()
        {
            return Err(Damage::State(id()));
        }
        if job.life.flow.as_ref() != self.flow.as_ref().map(|flow| &flow.id) {
            return Err(Damage::Flow(id()));
        }
        if job.holds_key && job.new.idempotency_key.is_none() {
            return Err(Damage::Key(id()));
        }
        Ok(())
    }
}

fn is_spent_without_failure(edge: &EdgeState) -> bool {
    matches!(edge, EdgeState::Spent { state, .. } if !matches!(state, State::Dlq | State::Cancelled))
}

impl ExportedJob {
    /// The job with the edges to those members alone, for the rules of flows.
    fn inside(&self, members: &HashSet<&JobId>) -> crate::NewJob {
        let parents = self.new.parents.iter().filter(|parent| members.contains(parent));
        let mut job = crate::NewJob::new(
            self.new.id.clone(),
            self.new.queue.clone(),
            self.new.job_type.clone(),
            &[],
        );
        job.parents = parents.cloned().collect();
        job.condition = self.new.condition;
        job.kind = self.new.kind;
        job
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        JobType, NewJob, QueueName, Timestamp,
        export::ExportedFlow,
        job::{ReleaseNote, ReleaseReason},
        life::{Finish, Life},
    };

    const NOW: Timestamp = Timestamp::EPOCH;

    fn id(text: &str) -> JobId {
        JobId::new(text).unwrap()
    }

    fn job(text: &str, parents: &[&str], flow: Option<&str>) -> ExportedJob {
        let (queue, job_type) = (QueueName::new("q").unwrap(), JobType::new("work").unwrap());
        let new = NewJob::new(id(text), queue, job_type, &[]);
        let new = new.after(parents.iter().map(|parent| id(parent)));
        let life = Life::new(&new, parents.len(), flow.map(id), NOW);
        ExportedJob::new(new, NOW, life, vec![EdgeState::Open; parents.len()], false)
    }

    fn flow() -> ExportUnit {
        let head = ExportedFlow::new(id("b"), None, NOW, id("b"));
        ExportUnit::flow(head, vec![job("a", &[], Some("b")), job("b", &["a"], Some("b"))])
    }

    fn damage(change: impl FnOnce(&mut ExportUnit)) -> Damage {
        let mut unit = flow();
        change(&mut unit);
        unit.check(&Limits::default()).unwrap_err()
    }

    #[test]
    fn what_a_store_exports_is_not_damaged() {
        assert_eq!(flow().check(&Limits::default()), Ok(()));
        let alone = ExportUnit::job(job("a", &[], None));
        assert_eq!(alone.check(&Limits::default()), Ok(()));
    }

    #[test]
    fn every_contradiction_is_named() {
        assert_eq!(damage(|unit| unit.flow = None), Damage::Content);
        assert_eq!(damage(|unit| unit.jobs.clear()), Damage::Content);
        assert_eq!(damage(|unit| drop(unit.jobs[1].edges.pop())), Damage::Edges(id("b")));
        assert_eq!(damage(|unit| unit.jobs[1].life.pending = 2), Damage::Edges(id("b")));
        let elsewhere = |unit: &mut ExportUnit| unit.jobs[1].new.parents = vec![id("x")];
        assert_eq!(damage(elsewhere), Damage::Edges(id("b")));
        assert_eq!(damage(|unit| unit.jobs[0].life.flow = None), Damage::Flow(id("a")));
        assert_eq!(damage(|unit| unit.jobs[0].holds_key = true), Damage::Key(id("a")));
        let tail = |unit: &mut ExportUnit| unit.flow.as_mut().unwrap().tail = id("x");
        assert_eq!(damage(tail), Damage::Tail(id("x")));
        let other = |unit: &mut ExportUnit| {
            unit.flow.as_mut().unwrap().id = id("x");
            unit.jobs.iter_mut().for_each(|job| job.life.flow = Some(id("x")));
        };
        assert_eq!(damage(other), Damage::FirstTail(id("x")));
        let round = |unit: &mut ExportUnit| {
            let stage = Stage::Finished(Finish::new(State::Done, NOW, None));
            unit.jobs[0].life.stage = stage;
            unit.jobs[0].life.expanded_into = Some(id("a"));
        };
        assert_eq!(damage(round), Damage::State(id("a")));
        let released = |unit: &mut ExportUnit| {
            unit.jobs[1].life.released = Some(ReleaseNote::new(ReleaseReason::Snoozed, ""));
        };
        assert_eq!(damage(released), Damage::State(id("b")));
        let running = |unit: &mut ExportUnit| {
            unit.jobs[0].new.kind = JobKind::Join(crate::job::JoinReading::List);
        };
        assert_eq!(damage(running), Damage::State(id("a")));
        let twice = |unit: &mut ExportUnit| unit.jobs[1] = unit.jobs[0].clone();
        assert_eq!(damage(twice), Damage::Job(Rejected::DuplicateId { job: id("a") }));
        let cycle = |unit: &mut ExportUnit| {
            unit.jobs[0] = job("a", &["b"], Some("b"));
        };
        assert!(matches!(damage(cycle), Damage::Job(Rejected::Cycle { .. })));
        let timeout = |unit: &mut ExportUnit| unit.jobs[0].new.max_attempts = Some(0);
        assert!(matches!(damage(timeout), Damage::Job(Rejected::MaxAttemptsOutOfRange { .. })));
    }
}
