//! Errors of the server and of the pool, as errors of the contract.
//!
//! The question is always the same: is it worth trying again? A server that restarts, fails over or
//! runs out of something will serve the same call later. One that does not know our functions will
//! not, and then the message says what to run.

use std::{error::Error, fmt, io, sync::Arc};

use deadpool_postgres::{HookError, PoolError, TimeoutType};
use taskharbor_core::{
    DriverError,
    error::{NotAllowed, chain},
};
use tokio_postgres::error::{Severity, SqlState};

use crate::HeldElsewhere;

/// The constraints by which a job's number is unique.
const NUMBERED: [&str; 2] = ["th_job_pkey", "th_live_pkey"];

/// What an SQLSTATE says about the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorClass {
    /// Trying again is worth it.
    Passing,
    /// Something that the migration makes is not there.
    NotInstalled,
    /// The role may not do this.
    Forbidden,
    /// Trying again is of no use.
    Lasting,
}

fn class_of(code: &str) -> ErrorClass {
    match code {
        // The tables, functions and the schema itself.
        "42883" | "42P01" | "3F000" => ErrorClass::NotInstalled,
        "42501" => ErrorClass::Forbidden,
        // A database that was dropped stays so, though its class is about restarts.
        "57P04" => ErrorClass::Lasting,
        // In turn: serialisation, deadlock, a lock not free, a server in recovery, its disk, and a
        // snapshot too old.
        "40001" | "40P01" | "55P03" | "25006" | "58030" | "72000" => ErrorClass::Passing,
        // Connections, credentials that are being replaced, resources, and operators who restart or
        // cancel.
        code if ["08", "28", "53", "57"].iter().any(|class| code.starts_with(class)) => {
            ErrorClass::Passing
        }
        _ => ErrorClass::Lasting,
    }
}

/// Why the server refused, in words that say what to do.
#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error(
        "TaskHarbor is not installed in this database, or its schema is too old: run the migration \
         with `taskharbor migrate up` or `driver.migrate()`"
    )]
    NotInstalled(#[source] ServerError),
    #[error(
        "the sequence th_seq is behind the table th_job, as after a switch-over by logical \
         replication: run `SELECT setval('{schema}.th_seq', (SELECT max(seq) FROM {schema}.th_job)), \
         setval('{schema}.th_revision', (SELECT max(revision) FROM {schema}.th_schedule))` \
         as the owner of the schema"
    )]
    SequenceBehind { schema: String, source: ServerError },
    #[error("the role may not do this: grant it what docs/guides/postgres.md lists for its part")]
    Forbidden(#[source] NotAllowed),
    #[error(
        "no connection became free in time: raise `pool_size`, or look for slow statements in \
         pg_stat_activity"
    )]
    NoFreeConnection,
    #[error("the server did not accept a connection in time")]
    NoNewConnection,
    #[error("cannot connect to PostgreSQL{place}: {reason}")]
    NotConnected { place: String, reason: String },
    #[error("the pool refused the connection: {0}")]
    Hook(String),
    #[error("the pool has no runtime for its time limits: build it with `Runtime::Tokio1`")]
    NoRuntime,
}

/// An error of the server without its detail and context, in which it repeats what it was given.
#[derive(Debug)]
struct ServerError {
    code: String,
    message: String,
    constraint: Option<String>,
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (SQLSTATE {})", self.message, self.code)?;
        match &self.constraint {
            Some(constraint) => write!(f, ", constraint {constraint}"),
            None => Ok(()),
        }
    }
}

impl Error for ServerError {}

/// The driver error for an error of the server, which any PostgreSQL client may have received.
#[must_use]
pub fn refused(
    code: &str,
    message: &str,
    constraint: Option<&str>,
    schema: Option<&str>,
) -> DriverError {
    let error = ServerError {
        code: code.to_owned(),
        message: message.to_owned(),
        constraint: constraint.map(str::to_owned),
    };
    // Numbers of jobs come from the sequence, so that no two calls have the same one.
    if code == "23505" && constraint.is_some_and(|name| NUMBERED.contains(&name)) {
        let schema = schema.unwrap_or("taskharbor").to_owned();
        return DriverError::backend(Cause::SequenceBehind { schema, source: error });
    }
    match class_of(code) {
        ErrorClass::Passing => DriverError::unavailable(error),
        ErrorClass::Lasting => DriverError::backend(error),
        ErrorClass::NotInstalled => DriverError::backend(Cause::NotInstalled(error)),
        ErrorClass::Forbidden => {
            DriverError::backend(Cause::Forbidden(NotAllowed::new(error.to_string())))
        }
    }
}

/// Whether a call failed because it waited too long for a lock.
pub(crate) fn is_lock_timeout(error: &DriverError) -> bool {
    let DriverError::Unavailable(source) = error else { return false };
    source.downcast_ref::<ServerError>().is_some_and(|it| it.code == "55P03")
}

/// Whether a call failed because another transaction has a lock that it needs.
pub(crate) fn is_blocked(error: &DriverError) -> bool {
    let DriverError::Unavailable(source) = error else { return false };
    source.downcast_ref::<ServerError>().is_some_and(|it| ["55P03", "40P01"].contains(&&*it.code))
}

/// Names the reason for a call that waited too long for another transaction.
pub(crate) fn held_elsewhere(
    error: DriverError,
    name: fn(Arc<dyn Error + Send + Sync>) -> HeldElsewhere,
) -> DriverError {
    let is_held = is_lock_timeout(&error);
    match error {
        DriverError::Unavailable(source) if is_held => DriverError::unavailable(name(source)),
        error => error,
    }
}

/// Whether a call failed because something is stored already.
pub(crate) fn is_duplicate(error: &DriverError) -> bool {
    let (DriverError::Backend(source) | DriverError::Unavailable(source)) = error else {
        return false;
    };
    source.downcast_ref::<ServerError>().is_some_and(|it| it.code == "23505")
}

/// Whether a call failed because the server takes no more of something.
pub(crate) fn is_over_limit(error: &DriverError) -> bool {
    let DriverError::Backend(source) = error else { return false };
    source.downcast_ref::<ServerError>().is_some_and(|it| it.code == "54000")
}

/// What `error` means to the caller.
pub(crate) fn driver_error(error: tokio_postgres::Error) -> DriverError {
    match error.as_db_error() {
        Some(refusal) => refused(
            refusal.code().code(),
            refusal.message(),
            refusal.constraint(),
            refusal.schema(),
        ),
        None if error.is_closed() || is_lost(&error) => DriverError::unavailable(error),
        None => DriverError::backend(error),
    }
}

/// Whether the connection broke or could not be made. An error of that kind comes with the system's
/// error, but so does one about what cannot be encoded or understood.
fn is_lost(error: &tokio_postgres::Error) -> bool {
    let system = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    system.is_some_and(|system| {
        !matches!(system.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)
    })
}

/// Whether the connection on which the error came is of no more use. The pool finds that out too,
/// but only after it has given the connection to another caller. Nor is one to a server that can
/// only be read: the name may lead to another by now, and this connection never would.
pub(crate) fn ends_connection(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_none_or(|refusal| {
        *refusal.code() == SqlState::READ_ONLY_SQL_TRANSACTION
            || matches!(refusal.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
    })
}

/// What an error of the pool means to the caller.
pub(crate) fn pool_error(error: PoolError) -> DriverError {
    match error {
        PoolError::Timeout(TimeoutType::Wait) => DriverError::unavailable(Cause::NoFreeConnection),
        PoolError::Timeout(TimeoutType::Create | TimeoutType::Recycle) => {
            DriverError::unavailable(Cause::NoNewConnection)
        }
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
            driver_error(error)
        }
        PoolError::PostCreateHook(HookError::Message(message)) => {
            DriverError::unavailable(Cause::Hook(message.into_owned()))
        }
        PoolError::Closed => DriverError::Closed,
        PoolError::NoRuntimeSpecified => DriverError::backend(Cause::NoRuntime),
    }
}

/// Says where no connection could be made. `place` is empty if the application makes them.
pub(crate) fn not_connected(place: &str, error: DriverError) -> DriverError {
    let told = |cause: &(dyn Error + Send + Sync + 'static)| {
        let system = cause.downcast_ref::<tokio_postgres::Error>().and_then(Error::source);
        let system = system.and_then(|source| source.downcast_ref::<io::Error>());
        let reason = system.map_or_else(|| chain(cause), plain);
        let place = if place.is_empty() { String::new() } else { format!(" at {place}") };
        Cause::NotConnected { place, reason }
    };
    match error {
        DriverError::Unavailable(cause)
            if matches!(cause.downcast_ref(), Some(Cause::NoFreeConnection)) =>
        {
            DriverError::Unavailable(cause)
        }
        DriverError::Unavailable(cause) => DriverError::unavailable(told(&*cause)),
        DriverError::Backend(cause) => DriverError::backend(told(&*cause)),
        other => other,
    }
}

/// What the system says, in the middle of a sentence and without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split_once(" (os error").map_or(&*text, |(text, _)| text);
    match error.raw_os_error() {
        Some(_) => text[..1].to_lowercase() + &text[1..],
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sqlstate_has_its_class() {
        for (class, codes) in [
            (
                ErrorClass::Passing,
                &[
                    "08000", "08006", "08P01", "53000", "53100", "53200", "53300", "57000",
                    "57014", "57P01", "57P02", "57P03", "57P05", "40001", "40P01", "55P03",
                    "28P01", "28000", "25006", "58030", "72000",
                ][..],
            ),
            (ErrorClass::NotInstalled, &["42883", "42P01", "3F000"]),
            (ErrorClass::Forbidden, &["42501"]),
            (
                ErrorClass::Lasting,
                &["57P04", "23505", "22P02", "3D000", "42601", "0A000", "P0001", "XX000"],
            ),
        ] {
            for code in codes {
                assert_eq!(class_of(code), class, "{code}");
            }
        }
    }

    #[test]
    fn an_error_about_the_pool_says_whether_to_try_again() {
        for kind in [TimeoutType::Wait, TimeoutType::Create, TimeoutType::Recycle] {
            let error = pool_error(PoolError::Timeout(kind));
            assert!(matches!(error, DriverError::Unavailable(_)), "{error:?}");
        }
        assert!(matches!(pool_error(PoolError::Closed), DriverError::Closed));
        let error = pool_error(PoolError::NoRuntimeSpecified);
        assert!(matches!(error, DriverError::Backend(_)), "{error:?}");
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_may_be_there_later() {
        let mut nowhere = tokio_postgres::Config::new();
        nowhere.user("x").host_path("/nowhere");
        let error = nowhere.connect(tokio_postgres::NoTls).await.err().unwrap();
        let error = driver_error(error);
        assert!(matches!(error, DriverError::Unavailable(_)), "{error:?}");
        let error = not_connected("/nowhere", error).reason();
        assert_eq!(error, "cannot connect to PostgreSQL at /nowhere: no such file or directory");
    }
}
