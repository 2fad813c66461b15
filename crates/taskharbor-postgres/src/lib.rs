//! The PostgreSQL driver of TaskHarbor: durable jobs in a database that you already run.

mod config;
mod error;
mod schema;
mod session;
mod tls;
#[doc(hidden)]
pub mod value;

pub use config::{Config, ConfigError, StatementMode};
pub use schema::{SchemaName, SchemaNameError};
