//! [`JobSet`]: jobs that are stored together or not at all, and the rules a set must satisfy.
//!
//! The rules are here and not in the drivers, so that every driver refuses the same sets for the
//! same reasons: it calls [`JobSet::check`] before it looks at its store.

use std::collections::HashMap;

use crate::{
    JobId, NewJob,
    driver::Limits,
    error::Rejected,
    job::{JobKind, KeyHold},
    name::FlowName,
};

/// Jobs that are stored together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobSet {
    /// The jobs.
    pub jobs: Vec<NewJob>,
    /// The kind of the set: unrelated jobs, or a flow.
    #[cfg_attr(feature = "serde", serde(default = "crate::json::plain"))]
    pub kind: SetKind,
}

/// The kind of a set: unrelated jobs, or a flow.
///
/// Exhaustive on purpose: a driver that does not know a kind must not compile.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum SetKind {
    /// Unrelated jobs, which are only stored together.
    Plain,
    /// Members of one flow, joined by edges, with exactly one tail: the job without a dependant, failure
    /// jobs aside.
    /// The flow's id is the tail's, its output is the tail's, and the tail carries the flow's
    /// idempotency key if there is one.
    Flow {
        /// Its name, for people.
        name: Option<FlowName>,
    },
}

impl JobSet {
    /// A set of unrelated jobs.
    #[must_use]
    pub const fn plain(jobs: Vec<NewJob>) -> Self {
        Self { jobs, kind: SetKind::Plain }
    }

    /// A flow.
    #[must_use]
    pub const fn flow(jobs: Vec<NewJob>) -> Self {
        Self { jobs, kind: SetKind::Flow { name: None } }
    }

    /// A flow with a name for people.
    #[must_use]
    pub const fn named_flow(name: FlowName, jobs: Vec<NewJob>) -> Self {
        Self { jobs, kind: SetKind::Flow { name: Some(name) } }
    }

    /// Checks every rule that can be checked without a store.
    ///
    /// # Errors
    ///
    /// The first rule broken, as [`Rejected`].
    pub fn check(&self, limits: &Limits) -> Result<CheckedSet, Rejected> {
        check_jobs(&self.jobs, limits)?;
        // FLO-9
        if matches!(self.kind, SetKind::Flow { .. }) && !limits.has_flows() {
            return Err(Rejected::FlowsNotSupported);
        }
        match self.kind {
            SetKind::Plain => check_plain(&self.jobs).map(|()| CheckedSet::Plain),
            SetKind::Flow { .. } => {
                let shape = ResolvedEdges::of(&self.jobs)?;
                check_keys(&self.jobs, Some(shape.tail))?;
                Ok(CheckedSet::Flow(shape))
            }
        }
    }
}

impl From<NewJob> for JobSet {
    fn from(job: NewJob) -> Self {
        Self::plain(vec![job])
    }
}

/// A set that satisfies every rule that can be checked without a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckedSet {
    /// The jobs are unrelated.
    Plain,
    /// The jobs are a flow of this shape.
    Flow(ResolvedEdges),
}

impl CheckedSet {
    /// The job that stands for the set: a flow's tail, else the first.
    #[must_use]
    pub const fn tail(&self) -> usize {
        match self {
            Self::Plain => 0,
            Self::Flow(edges) => edges.tail,
        }
    }
}

/// The edges of a flow as positions in its list of jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResolvedEdges {
    /// The job without a dependant, failure jobs aside.
    pub tail: usize,
    /// For each job, its parents in declared order.
    pub parents: Vec<Vec<usize>>,
    /// All jobs, each after its parents.
    pub order: Vec<usize>,
}

/// Jobs that take the place of the job that expanded into them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Expansion {
    /// The new jobs: a flow with exactly one tail, whose output stands for that of the
    /// expanded job.
    pub jobs: Vec<NewJob>,
}

impl Expansion {
    /// An expansion of these jobs.
    #[must_use]
    pub const fn new(jobs: Vec<NewJob>) -> Self {
        Self { jobs }
    }

    /// Checks every rule that can be checked without a store.
    ///
    /// # Errors
    ///
    /// The first rule broken, as [`Rejected`].
    pub fn check(&self, limits: &Limits) -> Result<ResolvedEdges, Rejected> {
        let count = self.jobs.len();
        if count > Limits::MAX_EXPANSION_JOBS {
            return Err(Rejected::ExpansionTooLarge { count });
        }
        if !limits.has_flows() {
            return Err(Rejected::FlowsNotSupported);
        }
        check_jobs(&self.jobs, limits)?;
        check_keys(&self.jobs, None)?;
        ResolvedEdges::of(&self.jobs)
    }
}

fn check_jobs(jobs: &[NewJob], limits: &Limits) -> Result<(), Rejected> {
    let attempts = 1..=Limits::MAX_ATTEMPTS;
    let timeouts = 1_000..=Limits::MAX_TIMEOUT_NANOS;
    for job in jobs {
        let id = || job.id.clone();
        let (bytes, max) = (job.payload.len(), limits.payload_bytes());
        // JOB-2
        if bytes > max {
            return Err(Rejected::PayloadTooLarge { job: id(), bytes, max });
        }
        // JOB-5
        let nanos = job.timeout.map(|timeout| timeout.as_nanos());
        if nanos.is_some_and(|it| !timeouts.contains(&it) || it % 1_000 != 0) {
            return Err(Rejected::TimeoutOutOfRange { job: id() });
        }
        if job.max_attempts.is_some_and(|it| !attempts.contains(&it)) {
            return Err(Rejected::MaxAttemptsOutOfRange { job: id() });
        }
        // KEY-11
        if let KeyHold::For(time) = job.key_hold
            && (!timeouts.contains(&time.as_nanos()) || time.as_nanos() % 1_000 != 0)
        {
            return Err(Rejected::KeyTimeOutOfRange { job: id() });
        }
    }
    Ok(())
}

fn check_plain(jobs: &[NewJob]) -> Result<(), Rejected> {
    for job in jobs {
        if !job.parents.is_empty() || job.is_failure_job() {
            return Err(Rejected::EdgeOutsideFlow { job: job.id.clone() });
        }
        if matches!(job.kind, JobKind::Join(_)) {
            return Err(Rejected::JoinOutsideFlow { job: job.id.clone() });
        }
    }
    Ok(())
}

fn check_keys(jobs: &[NewJob], may_have_one: Option<usize>) -> Result<(), Rejected> {
    let keyed =
        |(at, job): &(usize, &NewJob)| job.idempotency_key.is_some() && Some(*at) != may_have_one;
    match jobs.iter().enumerate().find(keyed) {
        Some((_, job)) => Err(Rejected::KeyInsideFlow { job: job.id.clone() }),
        None => Ok(()),
    }
}

impl ResolvedEdges {
    pub(crate) fn of(jobs: &[NewJob]) -> Result<Self, Rejected> {
        // FLO-3
        let parents = resolve_parents(jobs)?;
        let order =
            parents_first(&parents).map_err(|at| Rejected::Cycle { job: jobs[at].id.clone() })?;
        check_conditions(jobs, &parents)?;
        let mut is_waited_for = vec![false; jobs.len()];
        for (job, parents) in jobs.iter().zip(&parents) {
            // A failure job is no step of the work: the jobs that it watches may be the tail.
            if !job.is_failure_job() {
                parents.iter().for_each(|&parent| is_waited_for[parent] = true);
            }
        }
        let is_tail = |&at: &usize| !is_waited_for[at] && !jobs[at].is_failure_job();
        let mut tails = (0..jobs.len()).filter(is_tail);
        let tail = tails.next().ok_or(Rejected::EmptyFlow)?;
        if let Some(second) = tails.next() {
            let (first, second) = (jobs[tail].id.clone(), jobs[second].id.clone());
            return Err(Rejected::SeveralTails { first, second });
        }
        Ok(Self { tail, parents, order })
    }
}

fn check_conditions(jobs: &[NewJob], parents: &[Vec<usize>]) -> Result<(), Rejected> {
    // FAI-4
    for (job, parents) in jobs.iter().zip(parents) {
        let id = || job.id.clone();
        if job.is_failure_job() && matches!(job.kind, JobKind::Join(_)) {
            return Err(Rejected::JoinOnFailure { job: id() });
        }
        if job.is_failure_job() && parents.is_empty() {
            return Err(Rejected::FailureOfNothing { job: id() });
        }
        if let Some(&at) = parents.iter().find(|&&at| jobs[at].is_failure_job()) {
            return Err(Rejected::AfterFailureJob { job: id(), parent: jobs[at].id.clone() });
        }
    }
    Ok(())
}

fn resolve_parents(jobs: &[NewJob]) -> Result<Vec<Vec<usize>>, Rejected> {
    let mut positions = HashMap::with_capacity(jobs.len());
    for (at, job) in jobs.iter().enumerate() {
        if positions.insert(&job.id, at).is_some() {
            return Err(Rejected::DuplicateId { job: job.id.clone() });
        }
    }
    // The child that named each parent last: a parent named twice shows without a set per child.
    let mut named_by = vec![usize::MAX; jobs.len()];
    let mut resolve = |child: usize, job: &NewJob, parent: &JobId| {
        let (id, named) = (|| job.id.clone(), || parent.clone());
        match positions.get(parent) {
            None => Err(Rejected::UnknownParent { job: id(), parent: named() }),
            Some(&at) if at == child => Err(Rejected::OwnParent { job: id() }),
            Some(&at) if named_by[at] == child => {
                Err(Rejected::DuplicateParent { job: id(), parent: named() })
            }
            Some(&at) => {
                named_by[at] = child;
                Ok(at)
            }
        }
    };
    let parents_of = |(at, job): (usize, &NewJob)| {
        job.parents.iter().map(|parent| resolve(at, job, parent)).collect()
    };
    jobs.iter().enumerate().map(parents_of).collect()
}

/// An order in which every job comes after its parents, given as positions.
///
/// # Errors
///
/// One of the jobs that wait for each other in a cycle.
pub fn parents_first(parents: &[Vec<usize>]) -> Result<Vec<usize>, usize> {
    let mut children = vec![Vec::new(); parents.len()];
    for (child, parents) in parents.iter().enumerate() {
        for &parent in parents {
            children[parent].push(child);
        }
    }
    let mut unmet: Vec<usize> = parents.iter().map(Vec::len).collect();
    let mut order: Vec<usize> = (0..parents.len()).filter(|&at| unmet[at] == 0).collect();
    let mut next = 0;
    while let Some(&at) = order.get(next) {
        next += 1;
        for &child in &children[at] {
            unmet[child] -= 1;
            if unmet[child] == 0 {
                order.push(child);
            }
        }
    }
    let Some(mut at) = unmet.iter().position(|&left| left > 0) else { return Ok(order) };
    // It may only stand behind the circle, but what it waits for leads into it.
    let mut is_met = vec![false; parents.len()];
    while !std::mem::replace(&mut is_met[at], true) {
        at = parents[at].iter().copied().find(|&parent| unmet[parent] > 0).unwrap_or(at);
    }
    Err(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JobType, QueueName};

    fn job(text: &str) -> NewJob {
        let id = JobId::new(text).unwrap();
        NewJob::new(id, QueueName::new("q").unwrap(), JobType::new("work").unwrap(), &[])
    }

    fn ids(texts: &[&str]) -> Vec<JobId> {
        texts.iter().map(|text| JobId::new(*text).unwrap()).collect()
    }

    fn check(jobs: Vec<NewJob>) -> Result<ResolvedEdges, Rejected> {
        match JobSet::flow(jobs).check(&Limits::default())? {
            CheckedSet::Flow(edges) => Ok(edges),
            CheckedSet::Plain => panic!("a flow is not plain"),
        }
    }

    #[test]
    fn a_failure_job_is_never_the_tail() {
        let edges = check(vec![
            job("handler").after_failure_of(ids(&["b"])),
            job("a"),
            job("b").after(ids(&["a"])),
        ]);
        assert_eq!(edges.unwrap().tail, 2);
    }

    #[test]
    fn shapes_with_impossible_failure_jobs_are_rejected() {
        let id = |text: &str| JobId::new(text).unwrap();
        let behind =
            vec![job("a"), job("f").after_failure_of(ids(&["a"])), job("b").after(ids(&["f"]))];
        let rejected = Rejected::AfterFailureJob { job: id("b"), parent: id("f") };
        assert_eq!(check(behind), Err(rejected));
        let of_nothing = vec![job("a"), job("f").after_failure_of([])];
        assert_eq!(check(of_nothing), Err(Rejected::FailureOfNothing { job: id("f") }));
        let join = NewJob::join(id("f"), QueueName::new("q").unwrap(), []);
        let join = vec![job("a"), join.after_failure_of(ids(&["a"]))];
        assert_eq!(check(join), Err(Rejected::JoinOnFailure { job: id("f") }));
    }

    #[test]
    fn limits_without_flows_reject_flows_and_expansions_and_nothing_else() {
        let limits = Limits::default().without_flows();
        assert_eq!(JobSet::from(job("a")).check(&limits), Ok(CheckedSet::Plain));
        let flow = JobSet::flow(vec![job("a")]).check(&limits);
        assert_eq!(flow, Err(Rejected::FlowsNotSupported));
        let expansion = Expansion::new(vec![job("a")]).check(&limits);
        assert_eq!(expansion, Err(Rejected::FlowsNotSupported));
    }
}
