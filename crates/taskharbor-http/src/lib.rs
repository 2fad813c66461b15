//! The HTTP driver of TaskHarbor: the store of a TaskHarbor server (`taskharbor serve`), from anywhere
//! that can reach the server.
//!
//! [`HttpDriver`] keeps the contract of `taskharbor-core` with one request for each call, over a few
//! connections that it keeps open. Programs need no access to the database itself: the server has it,
//! and a token says what a program may do.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use taskharbor_core::AnyDriver;
//! use taskharbor_http::{Config, HttpDriver};
//!
//! // The token comes from the variable TASKHARBOR_TOKEN.
//! let config = Config::from_url("https://jobs.example.com/harbor?store=main")?;
//! let driver = AnyDriver::new(HttpDriver::open(config).await?);
//! println!("the server's time is {}", driver.now().await?);
//! # Ok(())
//! # }
//! ```
//!
//! # What is repeated
//!
//! A request is sent again only if it has certainly not left this process, as when the server has
//! closed an idle connection. A call whose answer is lost fails with
//! [`DriverError::Unavailable`](taskharbor_core::DriverError), and may have been done. The caller repeats
//! it, as with every other driver: the contract says what the second call answers.
//!
//! # Wake-ups
//!
//! All watches of a driver share one stream of events from the server. While it is broken, workers look
//! for jobs from time to time, so losing it delays jobs and loses none.

mod admin;
mod body;
mod config;
mod connection;
mod driver;
mod failure;
mod link;
mod open;
mod pool;
mod tls;
mod wake;

pub use config::{Config, ConfigError};
pub use driver::HttpDriver;
pub use open::OpenError;
