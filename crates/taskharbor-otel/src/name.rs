//! Every name that OpenTelemetry sees, in one place.
//!
//! Those that begin with `messaging.` are of the semantic conventions for messaging, version 1.43, whose
//! status is "Development". When a later version changes them, this file changes. Those that begin with
//! `taskharbor.` are ours.

/// The instrumentation scope.
pub(crate) const SCOPE: &str = "taskharbor";

/// Attributes.
pub(crate) mod attribute {
    pub(crate) const SYSTEM: &str = "messaging.system";
    pub(crate) const DESTINATION: &str = "messaging.destination.name";
    pub(crate) const OPERATION_NAME: &str = "messaging.operation.name";
    pub(crate) const OPERATION_TYPE: &str = "messaging.operation.type";
    pub(crate) const MESSAGE_ID: &str = "messaging.message.id";
    pub(crate) const ERROR_TYPE: &str = "error.type";
    pub(crate) const JOB_TYPE: &str = "taskharbor.job.type";
    pub(crate) const JOB_ATTEMPT: &str = "taskharbor.job.attempt";
    pub(crate) const JOB_DELIVERY: &str = "taskharbor.job.delivery";
    pub(crate) const JOB_OUTCOME: &str = "taskharbor.job.outcome";
    pub(crate) const JOB_WAIT_MS: &str = "taskharbor.job.wait_ms";
    pub(crate) const LOSS: &str = "taskharbor.lease.loss";
}

/// Values of attributes.
pub(crate) mod value {
    pub(crate) const SYSTEM: &str = "taskharbor";
    pub(crate) const SEND: &str = "send";
    pub(crate) const RECEIVE: &str = "receive";
    pub(crate) const PROCESS: &str = "process";
    pub(crate) const SETTLE: &str = "settle";
    /// A queue or type of job that has no attribute of its own.
    pub(crate) const OTHER_NAME: &str = "other";
    /// An error that has no name of its own in the conventions.
    pub(crate) const OTHER_ERROR: &str = "_OTHER";
}

/// Metrics.
pub(crate) mod metric {
    pub(crate) const SENT: &str = "messaging.client.sent.messages";
    pub(crate) const CONSUMED: &str = "messaging.client.consumed.messages";
    pub(crate) const OPERATION: &str = "messaging.client.operation.duration";
    pub(crate) const PROCESS: &str = "messaging.process.duration";
    pub(crate) const FINISHED: &str = "taskharbor.jobs.finished";
    pub(crate) const WAIT: &str = "taskharbor.job.wait";
    pub(crate) const LEASES_LOST: &str = "taskharbor.leases.lost";

    /// The buckets that the conventions ask for, in seconds.
    pub(crate) const SECONDS: [f64; 14] =
        [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
}
