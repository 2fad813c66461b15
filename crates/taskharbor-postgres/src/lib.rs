//! The PostgreSQL driver of TaskHarbor: durable jobs in a database that you already run.

mod schema;
#[doc(hidden)]
pub mod value;

pub use schema::{SchemaName, SchemaNameError};
