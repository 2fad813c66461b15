//! The requests and answers of reserving jobs and of extending leases.
//!
//! Requests are structs, so that a new field does not break the drivers and callers that do not
//! know it. Each checks the rules that concern it as a whole in one `check`.

use std::time::Duration;

use crate::{
    DriverError, JobId, QueueName, Text, Timestamp, check,
    driver::{Lease, LeaseMark, LeaseToken, Leased, Limits},
    error::InvalidRequest,
    name::Holder,
};

/// How many jobs a worker can take from one queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Demand {
    /// The queue.
    pub queue: QueueName,
    /// The greatest number of jobs to reserve.
    pub limit: usize,
}

impl Demand {
    /// At most `limit` jobs from `queue`.
    #[must_use]
    pub const fn new(queue: QueueName, limit: usize) -> Self {
        Self { queue, limit }
    }
}

/// Asks for jobs under a lease.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reserve {
    /// The demands, one for each queue.
    pub demands: Vec<Demand>,
    /// The name of the worker, for people to read.
    pub holder: Holder,
    /// The current time.
    pub now: Timestamp,
    /// How long the leases last.
    #[cfg_attr(feature = "serde", serde(rename = "lease_for_nanos", with = "crate::json::Nanos"))]
    pub lease_for: Duration,
}

impl Reserve {
    /// A request for these demands.
    #[must_use]
    pub const fn new(
        demands: Vec<Demand>,
        holder: Holder,
        now: Timestamp,
        lease_for: Duration,
    ) -> Self {
        Self { demands, holder, now, lease_for }
    }

    /// Checks the demands, and returns the end of the leases.
    ///
    /// # Errors
    ///
    /// [`DriverError::InvalidLeaseDuration`]; [`DriverError::Invalid`] for a limit of zero, more
    /// than [`Limits::MAX_CALL_JOBS`] jobs in all, or one queue named twice.
    pub fn check(&self) -> Result<Timestamp, DriverError> {
        let expires_at = check::lease_end(self.now, self.lease_for)?;
        // RES-6
        for demand in &self.demands {
            check::range("limit", demand.limit, 1, Limits::MAX_CALL_JOBS)?;
        }
        let total = self.demands.iter().map(|demand| demand.limit).sum();
        check::range("the sum of limits", total, 0, Limits::MAX_CALL_JOBS)?;
        match check::repeated(self.demands.iter().map(|demand| &demand.queue)) {
            Some(queue) => Err(InvalidRequest::DuplicateQueue(queue.clone()).into()),
            None => Ok(expires_at),
        }
    }
}

/// The jobs that were reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reserved {
    /// The jobs, queue by queue in the order of the demands, best first within each. A driver may
    /// stop when their payloads reach [`Limits::MAX_CALL_BYTES`]; `next_due` is then the instant
    /// after now.
    pub jobs: Vec<Leased>,
    /// The earliest time at which a queue that granted fewer jobs than were demanded may have more:
    /// when its next scheduled job is due, or its next lease ends. `None` if all demands were met,
    /// or no job is scheduled or inflight there. A driver may return an earlier time.
    pub next_due: Option<Timestamp>,
}

impl Reserved {
    /// These jobs, and when to ask again.
    #[must_use]
    pub const fn new(jobs: Vec<Leased>, next_due: Option<Timestamp>) -> Self {
        Self { jobs, next_due }
    }
}

/// Asks to extend leases.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExtendLeases {
    /// The jobs, with the tokens of their leases.
    pub items: Vec<Extension>,
    /// The current time.
    pub now: Timestamp,
    /// How long the leases last from now on.
    #[cfg_attr(feature = "serde", serde(rename = "lease_for_nanos", with = "crate::json::Nanos"))]
    pub lease_for: Duration,
}

impl ExtendLeases {
    /// A request to extend the leases of these jobs.
    #[must_use]
    pub const fn new(items: Vec<Extension>, now: Timestamp, lease_for: Duration) -> Self {
        Self { items, now, lease_for }
    }

    /// Checks the items, and returns the earliest possible end of the leases.
    ///
    /// # Errors
    ///
    /// [`DriverError::InvalidLeaseDuration`]; [`DriverError::Invalid`] for one job named twice or
    /// more than [`Limits::MAX_CALL_JOBS`] of them.
    pub fn check(&self) -> Result<Timestamp, DriverError> {
        let expires_at = check::lease_end(self.now, self.lease_for)?;
        let texts = self.items.iter().filter_map(|item| item.progress.as_ref());
        let bytes = texts.map(|text| text.as_str().len()).sum();
        check::items(self.items.iter().map(|item| &item.id), bytes)?;
        Ok(expires_at)
    }
}

/// A lease to extend.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Extension {
    /// The job.
    pub id: JobId,
    /// The token of its lease.
    pub token: LeaseToken,
    /// The progress that its worker reports; the last report stays if `None`.
    pub progress: Option<Text>,
    /// The mark, which decides whether the end of the lease counts as a crash; the last mark stays
    /// if `None`.
    pub mark: Option<LeaseMark>,
}

impl Extension {
    /// Extends the lease of this job, without progress and mark.
    #[must_use]
    pub const fn new(id: JobId, token: LeaseToken) -> Self {
        Self { id, token, progress: None, mark: None }
    }

    /// With a report of the progress.
    #[must_use]
    pub fn progress(mut self, progress: Text) -> Self {
        self.progress = Some(progress);
        self
    }

    /// With a mark, which decides whether the end of the lease counts as a crash.
    #[must_use]
    pub const fn mark(mut self, mark: LeaseMark) -> Self {
        self.mark = Some(mark);
        self
    }
}

/// A lease that was extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Extended {
    /// The lease as it is now; a driver may have changed its token.
    pub lease: Lease,
    /// Whether cancellation of the job was requested.
    pub cancel_requested: bool,
}

impl Extended {
    /// This lease, and whether cancellation was asked for.
    #[must_use]
    pub const fn new(lease: Lease, cancel_requested: bool) -> Self {
        Self { lease, cancel_requested }
    }
}
