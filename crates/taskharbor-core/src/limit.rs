//! The bounds of every store.
//!
//! All but one are fixed, because a job that one store takes and another refuses could not be
//! moved. Operators can choose the payload limit, up to [`Limits::MAX_PAYLOAD_BYTES`].

use std::{borrow::Cow, time::Duration};

use crate::error::InvalidRequest;

/// The bounds of one driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    payload_bytes: usize,
    flows: bool,
}

impl Limits {
    /// The payload limit unless another is chosen.
    pub const DEFAULT_PAYLOAD_BYTES: usize = 1024 * 1024;
    /// The greatest payload limit that can be chosen.
    pub const MAX_PAYLOAD_BYTES: usize = 16 * 1024 * 1024;
    /// The greatest size of one output.
    pub const MAX_OUTPUT_BYTES: usize = 1024 * 1024;
    /// The greatest number of jobs that one call may name or carry.
    pub const MAX_CALL_JOBS: usize = 100_000;
    /// The greatest number of members of flows that one call may carry beside or instead of other
    /// jobs, so that a chord of as many members as a call has jobs starts with its finalizer.
    pub const MAX_FLOW_JOBS: usize = 200_000;
    /// The greatest number of edges that one call may carry.
    pub const MAX_CALL_EDGES: usize = 1_000_000;
    /// The greatest size of all payloads, headers, outputs and texts that one call may carry.
    pub const MAX_CALL_BYTES: usize = 256 * 1024 * 1024;
    /// The greatest number of jobs in one expansion.
    pub const MAX_EXPANSION_JOBS: usize = 10_000;
    /// The greatest value of attempts and maximum attempts.
    pub const MAX_ATTEMPTS: u32 = i32::MAX.unsigned_abs();
    /// The longest timeout, in nanoseconds.
    pub const MAX_TIMEOUT_NANOS: u128 = i64::MAX as u128;
    /// The greatest number of entries in one page of a list or of outputs.
    pub const MAX_PAGE: usize = 1_000;
    /// The greatest number of records that one call to list looks at.
    pub const MAX_SCAN: usize = 50_000;
    /// How many bytes of outputs end a page that has at least one entry.
    pub const PAGE_BYTES: usize = 16 * 1024 * 1024;
    /// How many of a job's failures are kept, the newest.
    pub const ERRORS_KEPT: usize = 10;
    /// The greatest size of a schedule's definition.
    pub const MAX_DEFINITION_BYTES: usize = 256 * 1024;
    /// The greatest size of the content of an announcement.
    pub const MAX_WORKER_INFO_BYTES: usize = 8 * 1024;
    /// The longest time for which the announcement of a worker is valid.
    pub const MAX_ANNOUNCED_FOR: Duration = Duration::from_secs(86_400);
    /// How long a worker is listed after its announcement has ended, at least.
    pub const OVERDUE_WORKERS_KEPT: Duration = Duration::from_secs(86_400);
    /// How many firings of a schedule are kept, the newest.
    pub const FIRINGS_KEPT: usize = 10;

    /// These limits with another payload limit.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::OutOfRange`] above [`Limits::MAX_PAYLOAD_BYTES`].
    pub const fn with_payload_bytes(self, bytes: usize) -> Result<Self, InvalidRequest> {
        if bytes > Self::MAX_PAYLOAD_BYTES {
            return Err(InvalidRequest::OutOfRange {
                what: Cow::Borrowed("payload limit"),
                value: bytes,
                min: 0,
                max: Self::MAX_PAYLOAD_BYTES,
            });
        }
        Ok(Self { payload_bytes: bytes, ..self })
    }

    /// These limits for a driver without flows. Flows and expansions are then refused with
    /// [`Rejected::FlowsNotSupported`](crate::error::Rejected::FlowsNotSupported), by the checks
    /// that every driver calls.
    #[must_use]
    pub const fn without_flows(self) -> Self {
        Self { flows: false, ..self }
    }

    /// Whether the driver keeps flows.
    #[must_use]
    pub const fn has_flows(&self) -> bool {
        self.flows
    }

    /// The greatest size of one payload.
    #[must_use]
    pub const fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { payload_bytes: Self::DEFAULT_PAYLOAD_BYTES, flows: true }
    }
}
