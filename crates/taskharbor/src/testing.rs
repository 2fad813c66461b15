//! Testing an application's jobs and handlers without sleeps and without a database.
//!
//! A [`Harbor`] is a complete installation in the test's own runtime: a store in memory, a client,
//! a worker with your handlers, and a clock that the test controls. It follows tokio's paused
//! clock, so retries, schedules, timeouts, heartbeats and sleeping handlers all run in virtual
//! time, and a day passes in a millisecond.
//!
//! ```
//! # // In a test: #[tokio::test(start_paused = true)].
//! use std::time::Duration;
//! use taskharbor::testing::Harbor;
//! # use serde::{Deserialize, Serialize};
//! # use taskharbor::{Context, Handlers, Job, JobResult, State};
//! # #[derive(Serialize, Deserialize, Job)]
//! # #[job(type = "remind")]
//! # struct Remind { who: String }
//! # async fn remind(job: Remind, cx: Context) -> JobResult {
//! #     if cx.attempt() < 3 { Err("not yet")? }
//! #     Ok(())
//! # }
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let harbor = Harbor::new(Handlers::new().on(remind));
//! let tomorrow = Duration::from_secs(86_400);
//! let job = harbor.client().enqueue(Remind { who: "Ada".into() }).delay(tomorrow).await?;
//! harbor.run_until_idle().await;
//! assert_eq!(harbor.state(job.id()).await, State::Scheduled);
//! harbor.advance(tomorrow).await; // the first attempt fails
//! harbor.advance(Duration::from_secs(60)).await; // two retries later
//! assert_eq!(harbor.state(job.id()).await, State::Done);
//! # Ok(())
//! # }
//! ```
//!
//! [`Harbor::on`] is the same on PostgreSQL or SQLite, for handlers that use a real database. [`call`]
//! runs one handler by itself, without a store: there `ack_in` takes any transaction and does nothing
//! in it.

mod call;
mod clock;
mod harbor;
mod read;

pub use call::{HandlerCall, call};
pub use clock::TokioClock;
pub use harbor::{Harbor, Time};
pub use read::StoredJob;
