//! [`Failure`]: the error of a command, with its exit code.
//!
//! The exit code is for shells, the stable `code` for programs that read JSON, the text for people.

use std::{io, process::ExitCode};

use taskharbor::{
    Action, ConnectError, Denied, DriverError, EnqueueError, ManageError, WaitError, WorkerError,
};
use taskharbor_core::error::CallError;

pub(crate) use taskharbor_core::error::chain;

/// What a shell is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Error = 1,
    Usage = 2,
    NotFound = 3,
    Refused = 4,
    Store = 5,
    Interrupted = 130,
    BrokenPipe = 141,
    Terminated = 143,
}

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// Never changes between versions.
    pub(crate) code: &'static str,
    pub(crate) text: String,
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(exit: Exit, code: &'static str, text: impl Into<String>) -> Self {
        Self { exit, code, text: text.into() }
    }

    pub(crate) fn error(code: &'static str, text: impl Into<String>) -> Self {
        Self::new(Exit::Error, code, text)
    }

    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new(Exit::Usage, "usage", text)
    }

    pub(crate) fn not_found(text: impl Into<String>) -> Self {
        Self::new(Exit::NotFound, "not_found", text)
    }

    pub(crate) fn refused(code: &'static str, text: impl Into<String>) -> Self {
        Self::new(Exit::Refused, code, text)
    }

    /// Ends with this code and without a word: all was said.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self::new(exit, "", "")
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.exit as u8)
    }

    /// What an operator asked for was not done.
    pub(crate) fn denied(id: &str, action: &Action, denied: &Denied) -> Self {
        let cannot = format!("cannot {} {id}", verb(action));
        match denied {
            Denied::JobNotFound => Self::not_found(match action {
                Action::CancelFlow | Action::PurgeFlow => format!("no flow {id} is stored"),
                _ => format!("no job {id} is stored"),
            }),
            Denied::WrongState(state) => {
                Self::refused("wrong_state", format!("{cannot}: it is {state}"))
            }
            Denied::FlowOver => Self::refused(
                "flow_over",
                format!(
                    "{cannot}: no other job of its flow would use what it produces; requeue the flow's last job first, or pass --detach to run this one alone"
                ),
            ),
            Denied::KeyHeld(holder) => Self::refused(
                "key_held",
                format!(
                    "{cannot}: job {holder} holds its idempotency key by now; requeue it when that job is terminal"
                ),
            ),
            Denied::InFlow(flow) => Self::refused(
                "in_flow",
                format!(
                    "{cannot}: it belongs to flow {flow}; act on the flow with `taskharbor flow`"
                ),
            ),
            other => Self::refused("denied", format!("{cannot}: {other}")),
        }
    }
}

/// An action as the beginning of a sentence about a job.
const fn verb(action: &Action) -> &'static str {
    match action {
        Action::Requeue(_) => "requeue job",
        Action::Cancel => "cancel job",
        Action::RunNow => "run job",
        Action::SetPriority(_) => "change the priority of job",
        Action::Purge => "purge job",
        Action::CancelFlow => "cancel flow",
        Action::PurgeFlow => "purge flow",
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::silent(Exit::BrokenPipe);
        }
        Self::error("io", chain(&error))
    }
}

impl From<DriverError> for Failure {
    fn from(error: DriverError) -> Self {
        let (exit, code) = match &error {
            DriverError::Invalid(_) | DriverError::InvalidLeaseDuration => (Exit::Usage, "invalid"),
            DriverError::Unavailable(_) | DriverError::Closed => (Exit::Store, "unavailable"),
            DriverError::Backend(_) => (Exit::Store, "store"),
            _ => (Exit::Error, "error"),
        };
        Self::new(exit, code, chain(&error))
    }
}

impl From<ManageError> for Failure {
    fn from(error: ManageError) -> Self {
        match error {
            ManageError::Store(error) => error.into(),
            ManageError::Denied(denied) => Self::refused("denied", denied.to_string()),
            error => Self::usage(chain(&error)),
        }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Failed(error) => error.into(),
            CallError::Rejected(error) => Self::new(Exit::Usage, "rejected", chain(&error)),
            error => Self::refused("denied", chain(&error)),
        }
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let (exit, code) = match &error {
            ConnectError::Failed { .. } | ConnectError::Unavailable { .. } => {
                (Exit::Store, "unavailable")
            }
            _ => (Exit::Usage, "invalid_url"),
        };
        Self::new(exit, code, chain(&error))
    }
}

impl From<EnqueueError> for Failure {
    fn from(error: EnqueueError) -> Self {
        match error {
            EnqueueError::Store(error) => error.into(),
            error => Self::new(Exit::Usage, "rejected", chain(&error)),
        }
    }
}

impl From<WaitError> for Failure {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::Store(error) => error.into(),
            error => Self::error("job_failed", chain(&error)),
        }
    }
}

impl From<WorkerError> for Failure {
    fn from(error: WorkerError) -> Self {
        match error {
            WorkerError::Store(error) => error.into(),
            error => Self::error("worker", chain(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_who_leaves_is_no_news() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((failure.exit, &*failure.text), (Exit::BrokenPipe, ""));
        assert_eq!(Failure::from(io::Error::other("disk full")).exit, Exit::Error);
    }

    #[test]
    fn a_cause_is_named_once() {
        let failure = Failure::from(DriverError::unavailable("connection refused"));
        assert_eq!(failure.exit, Exit::Store);
        assert_eq!(failure.text, "the store is unavailable: connection refused");
    }
}
