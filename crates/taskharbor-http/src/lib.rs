//! The HTTP driver of TaskHarbor. It uses the store of a TaskHarbor server (`taskharbor serve`)
//! over the network.
//!
//! [`HttpDriver`] implements the contract of `taskharbor-core` with one request for each call, over
//! a few connections that it keeps open. Programs need no access to the database itself: only the
//! server has it, and a token decides what a program may do.
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
//! # Retries
//!
//! The driver sends a request again only if it has certainly not left this process, for example because the
//! server had closed an idle connection. If an answer is lost, the call fails with
//! [`DriverError::Unavailable`](taskharbor_core::DriverError), and may have taken effect. The caller can
//! repeat it, as with every other driver: the contract defines the answer to the second call.
//!
//! # Wake-ups
//!
//! All watches of a driver share one stream of events from the server. While the stream is broken, workers
//! poll for jobs. So jobs may start later, but none is lost.

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
