//! Random jobs and flows. The payload of a job is its id, so that a mix-up shows.

use std::time::Duration;

use fastrand::Rng;
use taskharbor_core::{
    JobId, JobType, NewJob, QueueName, Timestamp,
    flow::Expansion,
    job::{FailurePolicy, JobSet, KeyHold},
    name::{IdempotencyKey, NameError},
};

use super::event::Origin;

/// The queues of all jobs.
pub(crate) const QUEUES: [&str; 3] = ["a", "b", "c"];
/// The beginning of ids that several sessions enqueue.
const SHARED: &str = "shared-";

/// Whether several sessions enqueue jobs of this id, again and again.
pub(crate) fn is_shared(id: &JobId) -> bool {
    id.as_str().starts_with(SHARED)
}

/// Makes jobs that have never been there, but for those with shared ids.
pub(crate) struct Maker {
    /// What no other maker begins its ids with.
    prefix: String,
    round: usize,
    made: usize,
}

/// A set to be stored, and what it will be.
pub(crate) type Draft = (JobSet, Origin);

impl Maker {
    pub(crate) fn new(round: usize, session: usize) -> Self {
        Self { prefix: format!("{round}-{session}-"), round, made: 0 }
    }

    fn id(&mut self) -> Result<JobId, NameError> {
        self.made += 1;
        JobId::new(format!("{}{}", self.prefix, self.made))
    }

    fn job(&mut self, random: &mut Rng, now: Timestamp) -> Result<NewJob, NameError> {
        let id = self.id()?;
        job(id, random, now)
    }

    /// A set of random jobs.
    pub(crate) fn set(&mut self, random: &mut Rng, now: Timestamp) -> Result<Draft, NameError> {
        match random.u8(..20) {
            0..=3 => {
                let jobs = (0..random.usize(2..30)).map(|_| self.job(random, now));
                Ok((JobSet::plain(jobs.collect::<Result<_, _>>()?), Origin::Plain))
            }
            4..=6 => {
                let id = JobId::new(format!("{SHARED}{}-{}", self.round, random.u8(..12)))?;
                Ok((JobSet::plain(vec![job(id, random, now)?]), Origin::Plain))
            }
            7..=10 => Ok((JobSet::plain(vec![self.keyed(random, now)?]), Origin::Plain)),
            11..=14 => self.flow(random, now),
            _ => Ok((JobSet::plain(vec![self.job(random, now)?]), Origin::Plain)),
        }
    }

    fn keyed(&mut self, random: &mut Rng, now: Timestamp) -> Result<NewJob, NameError> {
        let holds = [
            KeyHold::UntilPruned,
            KeyHold::UntilDone,
            KeyHold::UntilTerminal,
            KeyHold::For(Duration::from_millis(random.u64(1..500))),
        ];
        let key = IdempotencyKey::new(format!("key-{}-{}", self.round, random.u8(..20)))?;
        let job = self.job(random, now)?;
        Ok(job.idempotency_key(key).key_hold(holds[random.usize(..holds.len())]))
    }

    /// A chord, or a chain of two chords; some with a job that runs on failure.
    fn flow(&mut self, random: &mut Rng, now: Timestamp) -> Result<Draft, NameError> {
        let mut jobs = Vec::new();
        let mut tail = self.chord(&mut jobs, &[], random, now)?;
        if random.u8(..3) == 0 {
            tail = self.chord(&mut jobs, &[tail], random, now)?;
        }
        if random.u8(..3) == 0 {
            let failed = jobs[random.usize(..jobs.len())].id.clone();
            jobs.push(self.job(random, now)?.after_failure_of([failed]));
        }
        random.shuffle(&mut jobs);
        Ok((JobSet::flow(jobs), Origin::Flow(tail)))
    }

    /// Adds members, a join and a finalizer, which is answered.
    fn chord(
        &mut self,
        jobs: &mut Vec<NewJob>,
        after: &[JobId],
        random: &mut Rng,
        now: Timestamp,
    ) -> Result<JobId, NameError> {
        let mut members = Vec::new();
        for _ in 0..random.usize(1..8) {
            let policy = FailurePolicy::ALL[random.usize(..FailurePolicy::ALL.len())];
            let member = self.job(random, now)?.on_failure(policy).after(after.iter().cloned());
            members.push(member.id.clone());
            jobs.push(member);
        }
        let join = NewJob::join(self.id()?, QueueName::new(QUEUES[0])?, members);
        let finalizer = self.job(random, now)?.after([join.id.clone()]);
        let tail = finalizer.id.clone();
        jobs.extend([join, finalizer]);
        Ok(tail)
    }

    /// What a job expands into: one job or a chord.
    pub(crate) fn expansion(
        &mut self,
        random: &mut Rng,
        now: Timestamp,
    ) -> Result<Expansion, NameError> {
        let mut jobs = Vec::new();
        match random.bool() {
            true => jobs.push(self.job(random, now)?),
            false => drop(self.chord(&mut jobs, &[], random, now)?),
        }
        Ok(Expansion::new(jobs))
    }
}

fn job(id: JobId, random: &mut Rng, now: Timestamp) -> Result<NewJob, NameError> {
    let queue = QueueName::new(QUEUES[random.usize(..QUEUES.len())])?;
    let payload = id.as_str().as_bytes().to_vec();
    let job = NewJob::new(id, queue, JobType::new("chaos")?, payload).priority(random.i16(0..3));
    Ok(match random.u8(..4) {
        0 => job.run_at(now.saturating_add(Duration::from_millis(random.u64(..300)))),
        _ => job,
    })
}
