//! The observer that writes logs, for every client and worker.

use taskharbor_core::error::Denied;

use crate::{Event, Observer};

/// Tells `tracing` what happens: what an operator has to know as warnings, what happens to each
/// job as debug messages.
pub(super) struct Log;

impl Observer for Log {
    fn on(&self, event: &Event<'_>) {
        match event {
            Event::Enqueued { id, job_type, queue, is_new } => {
                tracing::debug!(%id, r#type = %job_type, %queue, is_new, "enqueued");
            }
            Event::Reserved { job } => {
                tracing::trace!(id = %job.id, r#type = %job.job_type, queue = %job.queue, "reserved");
            }
            Event::Started { job } => {
                tracing::trace!(id = %job.id, r#type = %job.job_type, queue = %job.queue, "started");
            }
            Event::Failed { job, error, took } => {
                tracing::info!(id = %job.id, r#type = %job.job_type, attempt = job.attempts + 1, %error, ?took, "failed");
            }
            Event::Succeeded { job, took } => {
                tracing::debug!(id = %job.id, r#type = %job.job_type, ?took, "done");
            }
            Event::Retried { job, run_at } => {
                tracing::debug!(id = %job.id, r#type = %job.job_type, %run_at, "will be tried again");
            }
            Event::DeadLettered { job, reason } => {
                tracing::warn!(id = %job.id, r#type = %job.job_type, %reason, "dead-lettered");
            }
            Event::Released { job, why } => {
                tracing::debug!(id = %job.id, r#type = %job.job_type, ?why, "given back");
            }
            Event::LeaseExtended { job, expires_at } => {
                tracing::trace!(id = %job.id, r#type = %job.job_type, %expires_at, "lease extended");
            }
            Event::LeaseLost { job, why } => {
                tracing::warn!(id = %job.id, r#type = %job.job_type, %why, "lease lost: the result is not recorded");
            }
            Event::Called { operation, items, took, error } => {
                let error = error.map(tracing::field::display);
                tracing::debug!(%operation, items, ?took, error, "called the store");
            }
            Event::StoreUnavailable { doing, error } => {
                tracing::warn!(doing, %error, "the store is unavailable; going on when it is back");
            }
            Event::StoreBack { after } => tracing::info!(?after, "the store is back"),
            Event::WakeUpsLost { problem } => {
                tracing::warn!(problem, "no wake-ups from the store; jobs are found by polling");
            }
            Event::WakeUpsBack {} => tracing::info!("wake-ups from the store arrive again"),
            Event::ScheduleFired { schedule, slot, job, is_new } => {
                tracing::debug!(schedule, %slot, %job, is_new, "schedule fired");
            }
            Event::ScheduleFailed { schedule, error } => {
                tracing::warn!(schedule, error, "a schedule cannot be fired");
            }
            Event::SchedulesDenied { owner, denied: denied @ Denied::NewerVersion { .. } } => {
                tracing::info!(owner, %denied, "schedules not declared");
            }
            Event::SchedulesDenied { owner, denied } => {
                tracing::error!(owner, %denied, "schedules not declared");
            }
            Event::LimitsDenied { owner, denied: denied @ Denied::NewerVersion { .. } } => {
                tracing::info!(owner, %denied, "limits not declared");
            }
            Event::LimitsDenied { owner, denied } => {
                tracing::error!(owner, %denied, "limits not declared");
            }
            Event::Throttled { job, until, not_held: None } => {
                let lane = job.lane.as_ref().map(tracing::field::display);
                tracing::info!(id = %job.id, r#type = %job.job_type, queue = %job.queue, lane, %until, "throttled: on hold");
            }
            Event::Throttled { job, until, not_held: Some(error) } => {
                let lane = job.lane.as_ref().map(tracing::field::display);
                tracing::warn!(id = %job.id, r#type = %job.job_type, queue = %job.queue, lane, %until, %error, "throttled, and could not be held: other jobs go on");
            }
            Event::WorkerStarted { name, shutdown_within } => {
                tracing::info!(name, ?shutdown_within, "worker started");
            }
            Event::NameShared { name } => {
                tracing::warn!(
                    name,
                    "another worker has this name: an eviction of one ends the leases of both; give each a name of its own"
                );
            }
            Event::WorkerEvicted { name, leases } => {
                tracing::warn!(
                    name,
                    leases,
                    "a worker did not announce itself any more and was evicted"
                );
            }
            Event::Quiet { inflight } => {
                tracing::info!(inflight, "quiet: no more jobs are reserved");
            }
            Event::ShuttingDown { inflight, grace } => {
                tracing::info!(inflight, ?grace, "shutting down");
            }
            Event::WorkerStopped { abandoned: 0 } => tracing::info!("worker stopped"),
            Event::WorkerStopped { abandoned } => {
                tracing::warn!(abandoned, "worker stopped; some handlers would not stop");
            }
        }
    }
}
