//! Metrics by the messaging conventions, from events.

use std::{
    collections::HashSet,
    sync::{PoisonError, RwLock},
    time::Duration,
};

use opentelemetry::{
    KeyValue, StringValue,
    metrics::{Counter, Histogram, Meter},
};
use taskharbor::{
    Call, DriverError, Event, JobType, LossReason, Observer, Operation, QueueName, ReleaseReason,
};

use crate::{
    MAX_NAMES, Telemetry,
    name::{attribute, metric, value},
};

pub(crate) struct Meters {
    sent: Counter<u64>,
    consumed: Counter<u64>,
    operation: Histogram<f64>,
    process: Histogram<f64>,
    finished: Counter<u64>,
    wait: Histogram<f64>,
    leases_lost: Counter<u64>,
    queues: Names,
    types: Names,
}

/// Gives the first [`MAX_NAMES`] names attributes of their own. The others share one.
#[derive(Default)]
struct Names(RwLock<HashSet<String>>);

impl Names {
    fn attribute(&self, name: &str) -> StringValue {
        let is_seen = {
            let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
            if !names.contains(name) && names.len() >= MAX_NAMES {
                return value::OTHER_NAME.into();
            }
            names.contains(name)
        };
        if !is_seen {
            let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
            if names.len() >= MAX_NAMES && !names.contains(name) {
                return value::OTHER_NAME.into();
            }
            names.insert(name.to_owned());
        }
        name.to_owned().into()
    }
}

impl Meters {
    pub(crate) fn new(meter: &Meter) -> Self {
        let counter = |name, unit, what| {
            meter.u64_counter(name).with_unit(unit).with_description(what).build()
        };
        let seconds = |name, what| {
            let histogram = meter.f64_histogram(name).with_unit("s").with_description(what);
            histogram.with_boundaries(metric::SECONDS.into()).build()
        };
        Self {
            sent: counter(metric::SENT, "{message}", "Jobs that clients stored"),
            consumed: counter(metric::CONSUMED, "{message}", "Jobs that workers reserved"),
            operation: seconds(metric::OPERATION, "How long calls to the store took"),
            process: seconds(
                metric::PROCESS,
                "How long handlers ran until they succeeded or failed",
            ),
            finished: counter(metric::FINISHED, "{job}", "Deliveries of jobs that ended"),
            wait: seconds(metric::WAIT, "From when a job became available until its handler began"),
            leases_lost: counter(metric::LEASES_LOST, "{lease}", "Leases that were lost"),
            queues: Names::default(),
            types: Names::default(),
        }
    }

    /// What the job of this execution waited: middleware has the store's clock, events have not.
    pub(crate) fn waited(&self, call: &Call) -> Duration {
        let waited = call.now().since(call.available_at());
        self.wait.record(waited.as_secs_f64(), &self.of_job(call.queue(), call.job_type()));
        waited
    }

    fn of_job(&self, queue: &QueueName, job_type: &JobType) -> [KeyValue; 3] {
        [
            KeyValue::new(attribute::SYSTEM, value::SYSTEM),
            KeyValue::new(attribute::DESTINATION, self.queues.attribute(queue.as_str())),
            KeyValue::new(attribute::JOB_TYPE, self.types.attribute(job_type.as_str())),
        ]
    }

    fn with<const N: usize>(
        &self,
        queue: &QueueName,
        job_type: &JobType,
        more: [(&'static str, &'static str); N],
    ) -> Vec<KeyValue> {
        let more = more.into_iter().map(|(name, value)| KeyValue::new(name, value));
        self.of_job(queue, job_type).into_iter().chain(more).collect()
    }

    fn called(&self, operation: Operation, took: Duration, error: Option<&DriverError>) {
        let mut attributes = vec![
            KeyValue::new(attribute::SYSTEM, value::SYSTEM),
            KeyValue::new(attribute::OPERATION_NAME, operation.as_str()),
        ];
        let of_convention = match operation {
            Operation::Enqueue => Some(value::SEND),
            Operation::Reserve => Some(value::RECEIVE),
            Operation::Settle => Some(value::SETTLE),
            _ => None,
        };
        if let Some(operation) = of_convention {
            attributes.push(KeyValue::new(attribute::OPERATION_TYPE, operation));
        }
        if let Some(error) = error {
            attributes.push(KeyValue::new(attribute::ERROR_TYPE, kind_of(error)));
        }
        self.operation.record(took.as_secs_f64(), &attributes);
    }
}

fn kind_of(error: &DriverError) -> &'static str {
    match error {
        DriverError::Unavailable(_) => "unavailable",
        DriverError::Backend(_) => "backend",
        DriverError::Closed => "closed",
        DriverError::Invalid(_) | DriverError::InvalidLeaseDuration => "invalid",
        DriverError::ContractViolation(_) => "contract_violation",
        _ => value::OTHER_ERROR,
    }
}

const fn loss_of(why: &LossReason) -> &'static str {
    match why {
        LossReason::Refused(_) => "refused",
        LossReason::Unreachable => "unreachable",
        LossReason::Stalled => "stalled",
        LossReason::Closed => "closed",
        LossReason::Overdue => "overdue",
        LossReason::Unrecordable => "unrecordable",
        _ => value::OTHER_ERROR,
    }
}

const SENDS: [(&str, &str); 2] =
    [(attribute::OPERATION_NAME, "enqueue"), (attribute::OPERATION_TYPE, value::SEND)];
const RECEIVES: [(&str, &str); 2] =
    [(attribute::OPERATION_NAME, "reserve"), (attribute::OPERATION_TYPE, value::RECEIVE)];
const PROCESSES: (&str, &str) = (attribute::OPERATION_NAME, value::PROCESS);
const FAILED: (&str, &str) = (attribute::ERROR_TYPE, value::OTHER_ERROR);

impl Observer for Telemetry {
    fn on(&self, event: &Event<'_>) {
        let meters = &self.shared.meters;
        let (job, outcome) = match event {
            Event::Enqueued { job_type, queue, is_new: true, .. } => {
                return meters.sent.add(1, &meters.with(queue, job_type, SENDS));
            }
            Event::Reserved { job, .. } => {
                return meters.consumed.add(1, &meters.with(&job.queue, &job.job_type, RECEIVES));
            }
            Event::Failed { job, took, .. } => {
                let attributes = meters.with(&job.queue, &job.job_type, [PROCESSES, FAILED]);
                return meters.process.record(took.as_secs_f64(), &attributes);
            }
            Event::Called { operation, took, error, .. } => {
                return meters.called(*operation, *took, *error);
            }
            Event::Succeeded { job, took, .. } => {
                let attributes = meters.with(&job.queue, &job.job_type, [PROCESSES]);
                meters.process.record(took.as_secs_f64(), &attributes);
                (job, "done")
            }
            Event::Retried { job, .. } => (job, "retried"),
            Event::DeadLettered { job, .. } => (job, "dead"),
            Event::Released { job, why: ReleaseReason::CancelRequested, .. } => (job, "cancelled"),
            Event::Released { job, .. } => (job, "released"),
            Event::LeaseLost { job, why, .. } => {
                let why = [(attribute::LOSS, loss_of(why))];
                meters.leases_lost.add(1, &meters.with(&job.queue, &job.job_type, why));
                (job, "lost")
            }
            _ => return,
        };
        let attributes =
            meters.with(&job.queue, &job.job_type, [(attribute::JOB_OUTCOME, outcome)]);
        meters.finished.add(1, &attributes);
    }
}
