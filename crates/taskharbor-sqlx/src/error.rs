//! Errors of sqlx, as errors of the contract.

use sqlx::postgres::PgDatabaseError;
use taskharbor_core::DriverError;
use taskharbor_postgres::bridge::refused;

/// The server's own errors mean what they mean to the driver, which also keeps out of them what they repeat of the
/// statement's values. Of the others only a lost connection is worth another try.
pub(crate) fn driver_error(error: sqlx::Error) -> DriverError {
    match &error {
        sqlx::Error::Database(refusal) => {
            let code = refusal.code().unwrap_or_default();
            let schema = refusal.try_downcast_ref::<PgDatabaseError>().and_then(|it| it.schema());
            refused(&code, refusal.message(), refusal.constraint(), schema)
        }
        sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed => DriverError::unavailable(error),
        _ => DriverError::backend(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn only_a_lost_connection_is_worth_another_try() {
        let lost = driver_error(io::Error::from(io::ErrorKind::BrokenPipe).into());
        assert!(matches!(lost, DriverError::Unavailable(_)), "{lost:?}");
        let wrong = driver_error(sqlx::Error::ColumnNotFound("verdict".to_owned()));
        assert!(matches!(wrong, DriverError::Backend(_)), "{wrong:?}");
    }
}
