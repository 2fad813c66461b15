//! Interface for crates that bridge the transactions of another PostgreSQL client, as `taskharbor-sqlx` does for sqlx.
//!
//! A bridge implements [`Statements`] for the client's open transaction and wraps it with [`Tx::new`](crate::Tx::new).
//! It binds each [`Value`] with exactly its type, reads each row as an [`AnswerRow`], and turns an error of the server
//! into a [`DriverError`](taskharbor_core::DriverError) with [`refused`]. It begins and ends no transaction, and leaves
//! no prepared statement on the connection.

pub use crate::{answer::AnswerRow, error::refused, tx::Statements, value::Value};
