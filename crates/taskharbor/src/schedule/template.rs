//! [`Template`]: the jobs that a schedule makes, before a slot gives them ids and times.

use std::collections::HashMap;

use taskharbor_core::{
    Blob, JobId, NewJob, Timestamp,
    job::{JobKind, JobSet, KeyHold},
    name::{FlowName, IdempotencyKey, ScheduleName},
};

use crate::{Flow, codec::Format, draft::InvalidJob, header};

/// The jobs that a schedule makes, the tail last.
///
/// Their ids are their positions. Their `run_at` is the delay after the slot, counted from the Unix
/// epoch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Template {
    pub(super) jobs: Vec<NewJob>,
    pub(super) is_flow: bool,
}

/// What a slot gives to the jobs of a template.
pub(crate) struct Stamp {
    /// The id of the tail. The ids of the other members begin with it.
    pub(crate) id: String,
    /// The slot that the handlers see.
    pub(crate) slot: Timestamp,
    /// The time before which they do not run. Their delays count from it.
    pub(crate) start: Timestamp,
    /// Whether they are ready at once, without a start time.
    pub(crate) is_due: bool,
    /// The key that the tail holds until it is terminal.
    pub(crate) key: Option<IdempotencyKey>,
}

impl Template {
    pub(crate) fn new(
        flow: Flow<Blob>,
        is_flow: bool,
        format: &Format,
    ) -> Result<Self, InvalidJob> {
        let mut jobs = flow.into_jobs(format, Timestamp::EPOCH)?;
        let ids = positions(jobs.len())?;
        rename(&mut jobs, &ids);
        Ok(Self { jobs, is_flow })
    }

    /// How many jobs it has.
    pub(crate) const fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// The size of the payloads and headers.
    pub(crate) fn bytes(&self) -> usize {
        self.jobs.iter().map(|job| job.payload.len() + job.headers.bytes()).sum()
    }

    /// The last job: its output is the output of the flow.
    pub(crate) fn tail(&self) -> Option<&NewJob> {
        self.jobs.last()
    }

    /// The jobs with this stamp.
    pub(crate) fn stamped(&self, name: &ScheduleName, stamp: &Stamp) -> Result<JobSet, InvalidJob> {
        let mut jobs = self.jobs.clone();
        let members = (1..jobs.len()).map(|n| JobId::new(format!("{}/{n}", stamp.id)));
        let ids = members.chain([JobId::new(&stamp.id)]).collect::<Result<Vec<_>, _>>()?;
        rename(&mut jobs, &ids);
        let slot = text(stamp.slot);
        for job in &mut jobs {
            let headers = std::mem::take(&mut job.headers);
            let headers = headers.with_any(header::SCHEDULE, name.as_str())?;
            job.headers = headers.with_any(header::SLOT, &slot)?;
            let waits = !stamp.is_due && job.parents.is_empty() && job.kind == JobKind::Work;
            job.run_at = match job.run_at {
                Some(delay) => Some(stamp.start.saturating_add(delay.since(Timestamp::EPOCH))),
                None => waits.then_some(stamp.start),
            };
        }
        if let (Some(tail), Some(key)) = (jobs.last_mut(), &stamp.key) {
            (tail.idempotency_key, tail.key_hold) = (Some(key.clone()), KeyHold::UntilTerminal);
        }
        Ok(if self.is_flow {
            JobSet::named_flow(FlowName::new(name)?, jobs)
        } else {
            JobSet::plain(jobs)
        })
    }
}

/// The ids of this many jobs of a template.
pub(super) fn positions(count: usize) -> Result<Vec<JobId>, InvalidJob> {
    (0..count).map(|n| Ok(JobId::new(n.to_string())?)).collect()
}

/// Gives the jobs these ids, also where they are parents.
fn rename(jobs: &mut [NewJob], ids: &[JobId]) {
    let new: HashMap<JobId, &JobId> = jobs.iter().map(|job| job.id.clone()).zip(ids).collect();
    for id in jobs.iter_mut().flat_map(|job| job.parents.iter_mut().chain([&mut job.id])) {
        if let Some(new) = new.get(id) {
            *id = (*new).clone();
        }
    }
}

/// RFC 3339 in UTC, with a fraction only if there is one.
pub(crate) fn text(at: Timestamp) -> String {
    at.to_string().replace(".000000Z", "Z")
}
