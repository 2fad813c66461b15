//! The observer that writes logs, for every client and worker.

use taskharbor_core::error::Denied;

use crate::{Event, Observer};

/// Logs events through `tracing`: warnings for operators, debug messages for single jobs. The
/// targets are `taskharbor::client`, `taskharbor::worker` and `taskharbor::store`.
pub(super) struct Log;

impl Observer for Log {
    fn on(&self, event: &Event<'_>) {
        match event {
            Event::Enqueued { id, job_type, queue, is_new } => {
                tracing::debug!(target: "taskharbor::client", %id, r#type = %job_type, %queue, is_new, "enqueued");
            }
            Event::Reserved { job } => {
                tracing::trace!(target: "taskharbor::worker", id = %job.id, r#type = %job.job_type, queue = %job.queue, "reserved");
            }
            Event::Started { job } => {
                tracing::trace!(target: "taskharbor::worker", id = %job.id, r#type = %job.job_type, queue = %job.queue, "started");
            }
            Event::Failed { job, error, took } => {
                tracing::info!(target: "taskharbor::worker", id = %job.id, r#type = %job.job_type, attempt = job.attempts + 1, %error, ?took, "failed");
            }
            Event::Succeeded { job, took } => {
                tracing::debug!(target: "taskharbor::worker", id = %job.id, r#type = %job.job_type, ?took, "done");
            }
            Event::Retried { job, run_at } => {
                tracing::debug!(target: "taskharbor::worker", id = %job.id, r#type = %job.job_type, %run_at, "will be tried again");
            }
            Event::DeadLettered { job, reason } => {
                tracing::warn!(target: "taskharbor::worker", id = %job.id, r#type = %job.job_type, %reason, "dead-lettered");
            }
            Event::Released { job, why } => {
                tracing::debug!(target: "taskharbor::worker", id = %job.id, r#type = %job.job_type, ?why, "released");
            }
            Event::LeaseExtended { job, expires_at } => {
                tracing::trace!(target: "taskharbor::worker", id = %job.id, r#type = %job.job_type, %expires_at, "lease extended");
            }
            Event::LeaseLost { job, why } => {
                tracing::warn!(target: "taskharbor::worker", id = %job.id, r#type = %job.job_type, %why, "lease lost: the result is not recorded");
            }
            Event::Called { operation, items, took, error } => {
                let error = error.map(tracing::field::display);
                tracing::debug!(target: "taskharbor::store", %operation, items, ?took, error, "called the store");
            }
            Event::StoreUnavailable { doing, error } => {
                tracing::warn!(target: "taskharbor::store", doing, %error, "the store is unavailable; going on when it is back");
            }
            Event::StoreBack { after } => {
                tracing::info!(target: "taskharbor::store", ?after, "the store is back");
            }
            Event::WakeUpsLost { problem } => {
                tracing::warn!(target: "taskharbor::store", problem, "no wake-ups from the store; jobs are found by polling");
            }
            Event::WakeUpsBack {} => {
                tracing::info!(target: "taskharbor::store", "wake-ups from the store arrive again");
            }
            Event::ScheduleFired { schedule, slot, job, is_new } => {
                tracing::debug!(target: "taskharbor::worker", schedule, %slot, %job, is_new, "schedule fired");
            }
            Event::ScheduleFailed { schedule, error } => {
                tracing::warn!(target: "taskharbor::worker", schedule, error, "a schedule cannot be fired");
            }
            Event::SchedulesDenied { owner, denied: denied @ Denied::NewerVersion { .. } } => {
                tracing::info!(target: "taskharbor::worker", owner, %denied, "schedules not declared");
            }
            Event::SchedulesDenied { owner, denied } => {
                tracing::error!(target: "taskharbor::worker", owner, %denied, "schedules not declared");
            }
            Event::LimitsDenied { owner, denied: denied @ Denied::NewerVersion { .. } } => {
                tracing::info!(target: "taskharbor::worker", owner, %denied, "limits not declared");
            }
            Event::LimitsDenied { owner, denied } => {
                tracing::error!(target: "taskharbor::worker", owner, %denied, "limits not declared");
            }
            Event::Throttled { job, until, not_held: None } => {
                let lane = job.lane.as_ref().map(tracing::field::display);
                tracing::info!(target: "taskharbor::worker", id = %job.id, r#type = %job.job_type, queue = %job.queue, lane, %until, "throttled: on hold");
            }
            Event::Throttled { job, until, not_held: Some(error) } => {
                let lane = job.lane.as_ref().map(tracing::field::display);
                tracing::warn!(target: "taskharbor::worker", id = %job.id, r#type = %job.job_type, queue = %job.queue, lane, %until, %error, "throttled, and could not be held: other jobs go on");
            }
            Event::WorkerStarted { name, version, shutdown_within } => {
                tracing::info!(target: "taskharbor::worker", name, version, ?shutdown_within, "worker started");
            }
            Event::NameShared { name } => {
                tracing::warn!(target: "taskharbor::worker",
                    name,
                    "another worker has this name: an eviction of one ends the leases of both; give each a name of its own"
                );
            }
            Event::WorkerEvicted { name, leases } => {
                tracing::warn!(target: "taskharbor::worker",
                    name,
                    leases,
                    "a worker did not announce itself any more and was evicted"
                );
            }
            Event::EvictionDenied { error } => {
                tracing::warn!(target: "taskharbor::worker",
                    %error,
                    "this worker may not evict others: fast recovery has no effect"
                );
            }
            Event::Quiet { inflight } => {
                tracing::info!(target: "taskharbor::worker", inflight, "quiet: no more jobs are reserved");
            }
            Event::ShuttingDown { inflight, grace } => {
                tracing::info!(target: "taskharbor::worker", inflight, ?grace, "shutting down");
            }
            Event::WorkerStopped { name, abandoned: 0 } => {
                tracing::info!(target: "taskharbor::worker", name, "worker stopped");
            }
            Event::WorkerStopped { name, abandoned } => {
                tracing::warn!(target: "taskharbor::worker", name, abandoned, "worker stopped; some handlers would not stop");
            }
        }
    }
}
