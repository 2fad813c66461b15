//! The reference driver: jobs in the memory of the process, for development, tests and work that
//! may be lost.
//!
//! It implements the contract without a database. Every operation is one short critical section
//! over indexes in memory, and uses the rules of `taskharbor-core`. No job survives the process.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use taskharbor_core::{AnyDriver, JobId, JobType, NewJob, QueueName, name::Holder};
//! use taskharbor_memory::MemoryDriver;
//!
//! let driver = AnyDriver::new(MemoryDriver::new());
//! let now = driver.now().await?;
//! let mail = QueueName::new("mail")?;
//! let job = NewJob::new(JobId::generate(now)?, mail.clone(), JobType::new("email:send")?, b"ada");
//! driver.enqueue_job(job, now).await?;
//!
//! let me = Holder::new("worker-1")?;
//! let leased = driver.reserve_job(mail, me, now, Duration::from_secs(60)).await?.unwrap();
//! assert_eq!(&leased.job.payload[..], b"ada");
//! driver.ack(&leased, None, now).await?;
//! # Ok(())
//! # }
//! ```

mod admin;
mod check;
mod driver;
mod enqueue;
mod export;
mod flow;
mod gate;
mod graph;
mod key;
mod limit;
mod manage;
mod output;
mod prune;
mod queue;
mod read;
mod reserve;
mod schedule;
mod settle;
mod store;
mod worker;

pub use driver::MemoryDriver;

#[cfg(test)]
mod tests;

/// The programs in the guide, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/writing-a-driver.md")]
struct Guide;
