//! Errors of SQLite, as errors of the contract.
//!
//! The question is always the same: is it worth trying again? A file that is locked, a disk that is
//! full, a file that may not be written: an operator can cure it, and then the same call
//! goes through. A file that is damaged cannot be cured by trying.

use rusqlite::{Error, ErrorCode};
use taskharbor_core::{
    DriverError,
    error::{InvalidRequest, NoRandomness},
};

/// Why a step in the store did not succeed.
#[derive(Debug)]
pub(crate) enum Fault {
    /// SQLite says so.
    Sql(Error),
    /// The call fails for this.
    Driver(DriverError),
}

/// What went wrong, in words that say what to do.
#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error("another process has the file locked: end its transaction, or raise `busy_timeout_ms`")]
    Busy(#[source] Error),
    #[error(
        "the disk or the file is full: free some space, run `taskharbor prune` or raise `max_bytes`, and it goes on"
    )]
    Full(#[source] Error),
    #[error(
        "the disk or the file is full but for {0} bytes, which are kept to record outcomes and to prune: free some space, run `taskharbor prune` or raise `max_bytes`, and it goes on"
    )]
    NearlyFull(u64),
    #[error("the file cannot be written: make it and its directory writable for this user")]
    ReadOnly(#[source] Error),
    #[error("the file cannot be read or written: look after the disk and its permissions")]
    Io(#[source] Error),
    #[error(
        "the file is damaged: stop all processes that use it, and restore a backup or try `sqlite3 FILE .recover`"
    )]
    Damaged(#[source] Error),
    #[error("a row in the file has {0} that is invalid: run `check` to find it")]
    Row(&'static str),
}

impl Fault {
    /// A row that no driver has written.
    pub(crate) fn damaged(what: &'static str) -> Self {
        Self::Driver(DriverError::backend(Cause::Row(what)))
    }

    /// Whether the connection is better given up: what it found may be gone when the file is opened
    /// anew, and what it remembers may be wrong.
    pub(crate) fn ends_connection(&self) -> bool {
        let Self::Sql(Error::SqliteFailure(error, _)) = self else { return false };
        matches!(
            error.code,
            ErrorCode::CannotOpen
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::OutOfMemory
                | ErrorCode::PermissionDenied
                | ErrorCode::ReadOnly
                | ErrorCode::SystemIoFailure
        )
    }

    /// Whether the file holds something else.
    pub(crate) fn is_no_database(&self) -> bool {
        matches!(self, Self::Sql(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase))
    }

    /// There is room left, but not for more jobs.
    pub(crate) fn nearly_full(left: u64) -> Self {
        Self::Driver(DriverError::unavailable(Cause::NearlyFull(left)))
    }

    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Sql(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull))
    }

    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, Self::Sql(error) if is_busy(error))
    }
}

pub(crate) fn is_busy(error: &Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Sql(error)
    }
}

impl From<DriverError> for Fault {
    fn from(error: DriverError) -> Self {
        Self::Driver(error)
    }
}

impl From<InvalidRequest> for Fault {
    fn from(error: InvalidRequest) -> Self {
        Self::Driver(error.into())
    }
}

impl From<NoRandomness> for Fault {
    fn from(error: NoRandomness) -> Self {
        Self::Driver(error.into())
    }
}

impl From<Fault> for DriverError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Driver(error) => error,
            Fault::Sql(error) => driver_error(error),
        }
    }
}

/// What `error` means to the caller.
pub(crate) fn driver_error(error: Error) -> DriverError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            DriverError::unavailable(Cause::Busy(error))
        }
        Some(ErrorCode::DiskFull) => DriverError::unavailable(Cause::Full(error)),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            DriverError::unavailable(Cause::ReadOnly(error))
        }
        Some(
            ErrorCode::CannotOpen
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::OperationInterrupted
            | ErrorCode::OutOfMemory
            | ErrorCode::SystemIoFailure,
        ) => DriverError::unavailable(Cause::Io(error)),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            DriverError::backend(Cause::Damaged(error))
        }
        _ => DriverError::backend(error),
    }
}
