//! The PostgreSQL driver of TaskHarbor: durable jobs in a database that you already run.
//!
//! [`PostgresDriver`] implements the contract of `taskharbor-core` on PostgreSQL 12 or newer, in a
//! schema of your choice, beside your own tables, and with a connection pooler if you have one.
//! Jobs can be enqueued and completed inside your own transactions of `tokio_postgres` and
//! `deadpool_postgres`: `client.enqueue(job).within(&mut tx)`. From other languages and triggers,
//! `SELECT th_enqueue(…)` does the same. [The guide] explains how to set it up and run it.
//!
//! [The guide]: https://docs.rs/taskharbor/latest/taskharbor/guide/postgres/
//!
//! Each call of the driver is one statement in autocommit that calls one function in the schema. So
//! a call is one round trip, however many items it carries, and dropping its future leaves no
//! transaction open (DRO-1).

mod admin;
mod answer;
pub mod bridge;
mod column;
mod config;
mod diagnose;
mod driver;
mod enqueue;
mod error;
mod export;
mod fire;
mod held;
mod lane_turn;
mod limit;
mod migration;
mod open;
mod open_tx;
mod output;
mod record;
mod reserve;
mod scan_start;
mod schema_name;
mod seen;
mod session;
mod setting;
mod settle;
mod statement;
mod storing;
mod tls;
mod token;
mod tx;
mod value;
mod wake;
mod worker;

pub use config::{Config, ConfigError, StatementMode};
pub use deadpool_postgres;
pub use driver::PostgresDriver;
pub use held::HeldElsewhere;
pub use migration::migration;
pub use open::OpenError;
pub use schema_name::{SchemaName, SchemaNameError};
pub use tokio_postgres;
pub use tx::Tx;
