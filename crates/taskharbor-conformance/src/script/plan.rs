//! Translates the plans of a script to names, times and jobs.

use std::time::Duration;

use taskharbor_core::{
    JobId, JobType, NewJob, QueueName, Timestamp,
    job::Condition,
    name::{IdempotencyKey, LaneName},
};

use super::{JobPlan, SetPlan, Whose, replay::Replay};

impl Replay<'_> {
    pub(super) fn whose(&self, whose: Whose) -> JobId {
        match whose {
            Whose::Number(number) => job_id(number),
            Whose::Grant(back) => self.newest(back).map_or(job_id(0), |grant| grant.id.clone()),
        }
    }

    pub(super) fn jobs(&self, plan: &SetPlan, now: Timestamp) -> Vec<NewJob> {
        let mut jobs: Vec<_> = plan.jobs.iter().map(|job| new_job(job, &plan.jobs, now)).collect();
        for job in &mut jobs {
            // See `Model::forgotten`.
            if self.model.is_in_doubt(job, now) {
                job.idempotency_key = None;
            }
        }
        jobs
    }
}

fn new_job(plan: &JobPlan, set: &[JobPlan], now: Timestamp) -> NewJob {
    let parents = plan.parents.iter().map(|parent| job_id(set[*parent].id));
    let (id, queue) = (job_id(plan.id), queue_name(plan.queue));
    let mut job = match plan.join {
        Some(reading) => NewJob::join(id, queue, parents).read_as(reading),
        None => {
            let job_type = JobType::new("work").expect("a valid type");
            NewJob::new(id, queue, job_type, &[plan.id]).after(parents)
        }
    };
    if plan.on_failure {
        job.condition = Condition::ParentsFailed;
    }
    job = job.priority(plan.priority).on_failure(plan.policy);
    job.lane = plan.lane.map(lane_name);
    job.run_at = plan.run_at.map(|offset| seconds_from(now, offset));
    if let Some((key, hold)) = plan.key {
        job = job.idempotency_key(key_name(key)).key_hold(hold);
    }
    job
}

pub(super) fn job_id(number: u8) -> JobId {
    JobId::new(format!("job-{number}")).expect("a valid id")
}

pub(super) fn key_name(number: u8) -> IdempotencyKey {
    IdempotencyKey::new(format!("key-{number}")).expect("a valid key")
}

pub(super) fn lane_name(number: u8) -> LaneName {
    LaneName::new(format!("lane-{number}")).expect("a valid name")
}

pub(super) fn queue_name(number: u8) -> QueueName {
    QueueName::new(format!("queue-{number}")).expect("a valid name")
}

pub(super) fn seconds_from(now: Timestamp, offset: i64) -> Timestamp {
    let by = Duration::from_secs(offset.unsigned_abs());
    if offset < 0 { now.saturating_sub(by) } else { now.saturating_add(by) }
}
