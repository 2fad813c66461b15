//! The access of a caller: roles, permissions, and where they come from.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::problem::Problem;

/// What a caller may do; each role includes the ones before it.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Role {
    /// Reads everything but payloads and outputs.
    Viewer,
    /// Cancels, requeues and runs jobs, pauses queues and schedules.
    Operator,
    /// Purges, evicts, changes limits and schedules.
    Admin,
}

impl Role {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The access of one caller.
///
/// An application that mounts the [`router`](crate::router) says who its callers are: a layer of its own
/// inserts the access into the extensions of each request.
///
/// ```
/// use taskharbor_web::{Access, Role};
///
/// let support = Access::new("otto", Role::Viewer); // reads, but sees no payloads
/// let on_call = Access::new("ada", Role::Operator).with_payloads(); // also cancels and requeues
/// # drop((support, on_call));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) payloads: bool,
    pub(crate) workers: bool,
}

impl Access {
    /// The access of a caller with this name, which the action log shows, and this role. Without
    /// payloads and without the worker face.
    #[must_use]
    pub fn new(name: impl Into<String>, role: Role) -> Self {
        Self { name: name.into(), role, payloads: false, workers: false }
    }

    /// May see payloads and outputs.
    #[must_use]
    pub const fn with_payloads(mut self) -> Self {
        self.payloads = true;
        self
    }

    /// May use the worker face: enqueue, reserve, extend, settle.
    #[must_use]
    pub const fn with_workers(mut self) -> Self {
        self.workers = true;
        self
    }

    /// Who the caller is.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the caller may do.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.role
    }
}

/// What an endpoint asks of its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    /// `None` if the endpoint is open to all.
    pub(crate) role: Option<Role>,
    pub(crate) payloads: bool,
    pub(crate) workers: bool,
}

impl Needs {
    pub(crate) const VIEWER: Self =
        Self { role: Some(Role::Viewer), payloads: false, workers: false };
    pub(crate) const NOTHING: Self = Self { role: None, payloads: false, workers: false };

    /// Refuses a caller that has less than is needed.
    pub(crate) fn check(self, access: &Access) -> Result<(), Problem> {
        if let Some(role) = self.role.filter(|role| access.role < *role) {
            return Err(Problem::forbidden(
                "role_too_low",
                "your role does not allow this",
                format!("this requires the role {role}, and yours is {}", access.role),
            ));
        }
        if self.payloads && !access.payloads {
            return Err(Problem::forbidden(
                "needs_payloads",
                "you may not see payloads",
                "this requires the permission \"payloads\", which your access does not have",
            ));
        }
        if self.workers && !access.workers {
            return Err(Problem::forbidden(
                "needs_workers",
                "you may not act as a worker",
                "this requires the permission \"workers\", which your access does not have",
            ));
        }
        Ok(())
    }
}
