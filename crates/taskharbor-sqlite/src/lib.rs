//! The SQLite driver of TaskHarbor: durable jobs in one file, with nothing to install.
//!
//! [`SqliteDriver`] implements the contract of `taskharbor-core` in a file on a local disk, which
//! several processes may use at once. When a call returns, its changes are on disk. SQLite is
//! bundled. Jobs can be enqueued and completed inside the application's own transactions on the
//! same file: [`SqliteDriver::begin`], [`SqliteDriver::within`]. [The guide] explains
//! how to set it up and run it.
//!
//! [The guide]: https://docs.rs/taskharbor/latest/taskharbor/guide/sqlite/
//!
//! One thread of the driver writes. It applies all calls that arrived while it was busy in one
//! transaction, and answers them when that is on disk, so that many callers share one wait for the
//! disk. Two other threads read and never wait for the writer. No call blocks a thread of a
//! runtime.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = std::env::temp_dir().join(format!("taskharbor-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&dir)?;
//! # let path = dir.join("jobs.db");
//! use std::time::Duration;
//! use taskharbor_core::{AnyDriver, Driver, JobId, JobType, NewJob, QueueName, name::Holder};
//! use taskharbor_sqlite::{Config, SqliteDriver};
//!
//! let driver = AnyDriver::new(SqliteDriver::open_with(Config::new(&path).create(true)).await?);
//! let now = driver.store_time().await?;
//! let mail = QueueName::new("mail")?;
//! let job = NewJob::new(JobId::generate(now)?, mail.clone(), JobType::new("email:send")?, b"ada");
//! driver.enqueue_job(job, now).await?;
//! driver.close().await?;
//!
//! let driver = AnyDriver::new(SqliteDriver::open(&path).await?); // another day
//! let me = Holder::new("worker-1")?;
//! let leased = driver.reserve_job(mail, me, now, Duration::from_secs(60)).await?.unwrap();
//! assert_eq!(&leased.job.payload[..], b"ada");
//! driver.ack(&leased, None, now).await?;
//! # driver.close().await?;
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok(())
//! # }
//! ```

mod admin;
mod body;
mod call;
mod config;
mod diagnose;
mod driver;
mod entry;
mod error;
mod file;
mod mailbox;
mod migration;
mod queue_memory;
mod reader;
mod room;
#[doc(hidden)]
pub mod statement;
mod store;
mod token;
mod tx;
mod writer;

pub use config::{Config, ConfigError, Synchronous};
pub use driver::SqliteDriver;
pub use file::OpenError;
pub use migration::migration;
pub use rusqlite;
pub use tx::{Tx, Within};
