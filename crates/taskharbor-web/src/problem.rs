//! [`Problem`]: the answer to a request that failed.
//!
//! Its code is stable, and its texts are written here. The error text of a store goes to the log, never to a
//! client.

use std::{borrow::Cow, fmt::Display};

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use schemars::{Schema, SchemaGenerator};
use serde::Serialize;
use taskharbor::{Denied, DriverError, EnqueueError, JobId, ManageError, NameError, Rejected};
use taskharbor_core::{
    error::{CallError, InvalidRequest, Refusal},
    wire::CallFailure,
};

/// A problem document (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) title: &'static str,
    pub(crate) detail: Cow<'static, str>,
    /// Seconds after which another try may succeed.
    pub(crate) retry_after: Option<u32>,
    /// Why a call of the contract failed, for a program that makes an error of it.
    pub(crate) failure: Option<Box<CallFailure>>,
}

/// What is written.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[schemars(rename = "Problem")]
pub(crate) struct Document<'a> {
    /// Always `about:blank`: the code tells problems apart.
    r#type: &'static str,
    /// The HTTP status.
    status: u16,
    /// Tells problems apart; codes are added, never changed.
    code: &'a str,
    /// What went wrong, in a few words.
    title: &'a str,
    /// What went wrong here, and what to do next.
    detail: &'a str,
    /// Why a call of the driver face failed as a whole, if that can be known exactly.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<&'a CallFailure>,
}

impl Document<'static> {
    pub(crate) fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Self>()
    }
}

impl Problem {
    pub(crate) fn new(
        status: StatusCode,
        code: &'static str,
        title: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { status, code, title, detail: detail.into(), retry_after: None, failure: None }
    }

    /// The request breaks a rule; it is the same with every store.
    pub(crate) fn invalid(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", "the request is invalid", detail)
    }

    /// A number is outside its range.
    pub(crate) fn out_of_range(what: &str, min: impl Display, max: impl Display) -> Self {
        let detail = format!("{what} is out of range: choose {min} to {max}");
        Self::new(StatusCode::BAD_REQUEST, "out_of_range", "a number is out of range", detail)
    }

    /// Nothing is at this address.
    pub(crate) fn not_found(
        code: &'static str,
        title: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, title, detail)
    }

    /// No job of this id is stored.
    pub(crate) fn no_job(id: &JobId) -> Self {
        Self::not_found(
            "job_not_found",
            "the job is not stored",
            format!("no job {id} is stored: it was never enqueued here, or has been removed"),
        )
    }

    /// It cannot be done, as things stand.
    pub(crate) fn conflict(
        code: &'static str,
        title: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(StatusCode::CONFLICT, code, title, detail)
    }

    /// The caller may not do this.
    pub(crate) fn forbidden(
        code: &'static str,
        title: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(StatusCode::FORBIDDEN, code, title, detail)
    }

    /// The server cannot do it now, and may be able to later.
    pub(crate) fn unavailable(
        code: &'static str,
        title: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, code, title, detail);
        Self { retry_after: Some(1), ..problem }
    }

    /// The server has failed; the cause is in its log.
    pub(crate) fn internal(cause: &dyn Display) -> Self {
        tracing::error!(%cause, "a request failed");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "the server failed",
            "the cause is in the server's log",
        )
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let document = Document {
            r#type: "about:blank",
            status: self.status.as_u16(),
            code: self.code,
            title: self.title,
            detail: &self.detail,
            failure: self.failure.as_deref(),
        };
        // Text and numbers alone: writing them cannot fail.
        let body = serde_json::to_vec(&document).unwrap_or_default();
        let kind = HeaderValue::from_static("application/problem+json");
        let mut response = (self.status, [(header::CONTENT_TYPE, kind)], body).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

impl From<DriverError> for Problem {
    fn from(error: DriverError) -> Self {
        match error {
            DriverError::Invalid(invalid) => invalid.into(),
            DriverError::InvalidLeaseDuration => Self::invalid(error.to_string()),
            DriverError::Unavailable(_) | DriverError::Closed => {
                tracing::warn!(%error, "the store is unavailable");
                Self::unavailable(
                    "store_unavailable",
                    "the store is unavailable",
                    "the store cannot be reached or is busy: try again; the cause is in the server's log",
                )
            }
            _ => {
                tracing::error!(%error, "the store failed");
                Self::new(
                    StatusCode::BAD_GATEWAY,
                    "store_failed",
                    "the store failed",
                    "the store answered with an error: the cause is in the server's log",
                )
            }
        }
    }
}

impl From<InvalidRequest> for Problem {
    fn from(error: InvalidRequest) -> Self {
        match error {
            InvalidRequest::OutOfRange { .. } => {
                let detail = error.to_string();
                Self {
                    code: "out_of_range",
                    title: "a number is out of range",
                    ..Self::invalid(detail)
                }
            }
            InvalidRequest::Cursor => {
                Self { code: "invalid_cursor", ..Self::invalid(error.to_string()) }
            }
            _ => Self::invalid(error.to_string()),
        }
    }
}

impl From<NameError> for Problem {
    fn from(error: NameError) -> Self {
        Self {
            code: "invalid_name",
            title: "a name is invalid",
            ..Self::invalid(error.to_string())
        }
    }
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Self {
        let detail = denied.to_string();
        let (code, title) = match denied {
            Denied::JobNotFound => {
                return Self::not_found("job_not_found", "the job is not stored", detail);
            }
            Denied::ScheduleNotFound => {
                return Self::not_found("schedule_not_found", "the schedule is not stored", detail);
            }
            Denied::WrongState(_) => ("wrong_state", "the job's state does not allow this"),
            Denied::FlowOver => ("flow_over", "the flow is terminal"),
            Denied::KeyHeld(_) => ("key_held", "another job holds the key"),
            Denied::InFlow(_) => ("in_flow", "the job belongs to a flow"),
            Denied::ScheduleChanged => ("schedule_changed", "the schedule has changed"),
            Denied::ScheduleExists(_) => ("schedule_exists", "another schedule has this name"),
            Denied::ScheduleOwned { .. } => ("schedule_owned", "the schedule has another owner"),
            Denied::LimitsOwned { .. } => ("limits_owned", "the limits have another owner"),
            Denied::LimitsExist(_) => ("limits_exist", "the queue has other limits"),
            Denied::NewerVersion { .. } => ("newer_version", "a newer version was declared"),
            _ => ("denied", "this cannot be done as things stand"),
        };
        Self::conflict(code, title, detail)
    }
}

impl From<Rejected> for Problem {
    fn from(rejected: Rejected) -> Self {
        let (code, title) = ("rejected", "the job was not stored");
        Self { code, title, ..Self::invalid(rejected.to_string()) }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let detail = refusal.to_string();
        match refusal {
            Refusal::JobNotFound => {
                Self::not_found("job_not_found", "the job is not stored", detail)
            }
            Refusal::Invalid(_) => Self::invalid(detail),
            Refusal::Busy => Self::unavailable("job_locked", "the job is locked", detail),
            _ => Self::conflict("lease_lost", "the lease is lost", detail),
        }
    }
}

impl From<ManageError> for Problem {
    fn from(error: ManageError) -> Self {
        match error {
            ManageError::Denied(denied) => denied.into(),
            ManageError::Name(name) => name.into(),
            ManageError::Store(store) => store.into(),
            other => Self::invalid(other.to_string()),
        }
    }
}

impl From<CallError> for Problem {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Rejected(rejected) => rejected.into(),
            CallError::Refused(refusal) => refusal.into(),
            CallError::Denied(denied) => denied.into(),
            CallError::Failed(store) => store.into(),
            other => Self::internal(&other),
        }
    }
}

impl From<EnqueueError> for Problem {
    fn from(error: EnqueueError) -> Self {
        match error {
            EnqueueError::Store(store) => store.into(),
            EnqueueError::Rejected(rejected) => rejected.into(),
            other => Self { code: "rejected", ..Self::invalid(other.to_string()) },
        }
    }
}
