//! Running the handler of one job.

use std::{pin::pin, sync::Arc, time::Duration};

use taskharbor_core::{
    Driver, Text, Timestamp, clock::Clock, driver::LeaseMark, error::Refusal, job::JobView,
};
use tokio::{sync::mpsc::error::TrySendError, time::Instant};
use tracing::Instrument;

use super::{
    input,
    pool::Slot,
    resolution::{self, Acked, Circumstances, Resolution},
    settler::Finished,
    shared::Shared,
    throttle, unfit,
};
use crate::{
    Call, CallResult, CancelReason, Event, LossReason, Next, Outcome, ReleaseReason, RetryPolicy,
    codec::Format,
    context::Setting,
    handler::Entry,
    inflight::Inflight,
    middleware::{recover, within},
    outcome::Again,
};

/// The result of an execution.
enum Execution {
    /// The handler has ended.
    Ended(CallResult),
    /// It was told to stop and did not; it is stopped now.
    Stopped(CancelReason),
    /// The lease is lost, and nothing is recorded.
    Lost,
}

/// Runs a job in a task of its own.
pub(super) fn start(shared: &Arc<Shared>, inflight: Arc<Inflight>, slot: Slot) {
    tokio::spawn(execute(Arc::clone(shared), inflight, slot));
}

/// Runs one job, and passes its outcome to the settler.
async fn execute(shared: Arc<Shared>, inflight: Arc<Inflight>, slot: Slot) {
    let mut held = Held { shared: &shared, inflight: Some(inflight) };
    if let Some(inflight) = &held.inflight
        && let Some(resolution) = attempt(&shared, inflight).await
    {
        // Waiting here keeps the slot taken, so that outcomes do not pile up while the store cannot
        // record them. The settler has ended only if the worker has ended.
        let finished = Finished::new(Arc::clone(inflight), resolution);
        let sent = match shared.outcomes.try_send(finished) {
            Ok(()) => true,
            Err(TrySendError::Full(finished)) => {
                Box::pin(shared.outcomes.send(finished)).await.is_ok()
            }
            Err(TrySendError::Closed(_)) => false,
        };
        if sent {
            held.inflight = None;
        }
    }
    drop(held);
    slot.pass();
}

/// A job that leaves the registry however its execution ends, unless the settler has it.
struct Held<'a> {
    shared: &'a Shared,
    inflight: Option<Arc<Inflight>>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.shared.registry.remove(&self.inflight);
    }
}

async fn attempt(shared: &Arc<Shared>, inflight: &Arc<Inflight>) -> Option<Resolution> {
    let (job, config, now) = (&inflight.job, &shared.config, shared.now());
    // It may have been lost or cancelled while it waited for its slot.
    match inflight.cancellation.reason() {
        Some(CancelReason::LeaseLost) => return None,
        Some(reason) => return Some(resolution::release(reason.as_release())),
        None => {}
    }
    // After a slow answer the lease may have ended, so that another worker may hold the job.
    if now >= inflight.expires_at() {
        shared.lose(inflight, &LossReason::Refused(Refusal::LeaseExpired));
        return None;
    }
    if now >= inflight.expires_at().saturating_sub(config.margin()) {
        return Some(resolution::release(ReleaseReason::ArrivedLate));
    }
    if let Some(crashed) = resolution::crashed(job, config.crash_limit, now) {
        return Some(crashed);
    }
    let Some(entry) = shared.handlers.get(&job.job_type) else {
        return Some(unfit::without_handler(&config.holder, job, config.missing, now));
    };
    if !is_start_recorded(inflight, shared).await {
        // Lost, or told to stop.
        let reason = inflight.cancellation.reason().filter(|it| *it != CancelReason::LeaseLost)?;
        return Some(resolution::release(reason.as_release()));
    }
    shared.tell(&Event::Started { job });
    let started = Instant::now();
    inflight.begin(started);
    let execution = match recover(run(shared, inflight, entry)).await {
        Ok(execution) => execution,
        Err(panic) => Execution::Ended(Err(panic)),
    };
    let took = started.elapsed();
    let cancel = inflight.cancellation.reason();
    // Tasks and threads that the handler started can see that the execution has ended.
    inflight.cancellation.raise(CancelReason::Over);
    let is_acked = inflight.end_ack();
    // Only the store knows whether the transaction was committed. If it was, the job is done and the
    // store refuses any other outcome; if not, acknowledging the job would lose the work.
    let is_unsure = is_acked && matches!(execution, Execution::Ended(Ok(_)));
    let execution = if is_unsure { Execution::Ended(Ok(Outcome::Acked)) } else { execution };
    let mut resolution = match execution {
        Execution::Ended(result) => {
            // Errors, flows and policies are the application's code too.
            let resolved =
                recover(async { resolve(shared, inflight, entry, result, cancel, took) }).await;
            resolved.unwrap_or_else(|panic| {
                let text = Text::new(format!("the outcome cannot be recorded: {panic}"));
                resolution::dead_letter(job.attempts, text.clone(), text, shared.now())
            })
        }
        Execution::Stopped(reason) => resolution::release_stopped(reason, &config.holder),
        Execution::Lost => return None,
    };
    if is_acked {
        // It has left the lease alone, which may have to be extended before the store can be told.
        shared.registry.call_keeper();
        let failure = is_unsure.then(resolution::not_committed);
        resolution.acked = Some(Box::new(Acked { took, failure }));
    }
    if resolution.holds_until.is_some() {
        // In a box, since it is rare, and every task is as large as the largest future in it.
        return Some(Box::pin(throttle::hold(shared, inflight, resolution)).await);
    }
    Some(resolution)
}

/// Records in the store that a job starts whose lease has run out before, so that the store can
/// tell another crash from a lost answer to reserve. Other jobs start without a call to the store.
async fn is_start_recorded(inflight: &Inflight, shared: &Shared) -> bool {
    if inflight.job.expirations == 0 {
        return true;
    }
    inflight.set_mark(LeaseMark::Started);
    shared.registry.call_keeper();
    tokio::select! {
        biased;
        _ = inflight.cancellation.at_least(CancelReason::Requested) => false,
        () = inflight.marked() => true,
    }
}

fn unreadable(shared: &Shared, job: &JobView, error: &Text, now: Timestamp) -> Option<Resolution> {
    let (config, why) = (&shared.config, ReleaseReason::Unreadable);
    let found = format!("worker {} cannot read it", config.holder);
    unfit::release(job, config.unreadable, now, why, &found, Some(error))
}

/// The retry policy of a job: that of its type, or the worker's.
fn policy_of<'a>(shared: &'a Shared, entry: &'a Entry<()>) -> &'a dyn RetryPolicy {
    entry.defaults.retry.as_deref().unwrap_or(&*shared.retry)
}

/// How many executions of a job may fail.
fn max_attempts_of(shared: &Shared, inflight: &Inflight, entry: &Entry<()>) -> u32 {
    let own = inflight.job.max_attempts.or(entry.defaults.max_attempts);
    own.unwrap_or_else(|| policy_of(shared, entry).max_attempts())
}

fn resolve(
    shared: &Shared,
    inflight: &Inflight,
    entry: &Entry<()>,
    result: CallResult,
    cancel: Option<CancelReason>,
    took: Duration,
) -> Resolution {
    let (job, now) = (&inflight.job, shared.now());
    if let Err(error) = &result {
        if error.again() == Again::Unreadable
            && let Some(released) = unreadable(shared, job, &error.text(), now)
        {
            return released;
        }
        // No attempt is charged to a throttled job, so it has not failed.
        if !matches!(error.again(), Again::Throttled(_)) {
            shared.tell(&Event::Failed { job, error, took });
        }
    }
    let format = format_of(shared, inflight);
    let circumstances = Circumstances {
        worker: &shared.config.holder,
        now,
        took,
        // A timeout is a failure, not a request to stop.
        cancel: cancel.filter(|reason| *reason <= CancelReason::Shutdown),
        policy: policy_of(shared, entry),
        max_attempts: max_attempts_of(shared, inflight, entry),
        chance: &|| shared.chance(),
        limits: shared.driver.limits(),
        format: format.unwrap_or(&shared.formats[0]),
    };
    circumstances.resolve(job.into(), result)
}

pub(super) fn format_of<'a>(shared: &'a Shared, inflight: &Inflight) -> Option<&'a Format> {
    let name = Format::named_in(&inflight.job.headers);
    shared.formats.iter().find(|format| format.name() == name)
}

/// Runs the handler under middleware, until it ends or is stopped.
async fn run(shared: &Arc<Shared>, inflight: &Arc<Inflight>, entry: &Entry<()>) -> Execution {
    let job = &inflight.job;
    let timeout = job.timeout.or(entry.defaults.timeout).or(shared.config.timeout);
    let deadline = timeout.map(|timeout| shared.now().saturating_add(timeout));
    if let Some(deadline) = deadline {
        inflight.set_deadline(deadline);
    }
    let execution = within(timeout, &inflight.cancellation, async {
        let input = input::of(shared, inflight, entry).await?;
        let setting = Setting {
            format: format_of(shared, inflight).cloned(),
            driver: Some(shared.driver.clone()),
            clock: Arc::clone(shared) as Arc<dyn Clock>,
            observers: shared.observers.clone(),
            timeout,
            deadline,
            max_attempts: max_attempts_of(shared, inflight, entry),
        };
        let call = Call::new(Arc::clone(inflight), setting, input);
        let next = Next::new(Arc::clone(&shared.middleware), Arc::clone(&entry.run));
        next.run(call).await
    });
    let span = tracing::info_span!(
        "job",
        id = %job.id,
        r#type = %job.job_type,
        queue = %job.queue,
        attempt = job.attempts.saturating_add(1),
    );
    let mut execution = pin!(execution.instrument(span));
    let cancellation = &inflight.cancellation;
    let reason = tokio::select! {
        biased;
        result = &mut execution => return Execution::Ended(result),
        reason = cancellation.at_least(CancelReason::Requested) => reason,
    };
    if reason == CancelReason::LeaseLost {
        return Execution::Lost;
    }
    // In a box, so that jobs that are left alone do not carry the room for this.
    Box::pin(async {
        tokio::select! {
            biased;
            result = &mut execution => Execution::Ended(result),
            _ = cancellation.at_least(CancelReason::LeaseLost) => Execution::Lost,
            () = tokio::time::sleep(shared.config.cancel_wait) => Execution::Stopped(reason),
        }
    })
    .await
}

impl Clock for Shared {
    fn now(&self) -> Timestamp {
        Self::now(self)
    }
}
