//! What tests and benchmarks need from outside of the workspace, for as long as a process runs: a private
//! PostgreSQL server, the programs to start more of them, pgbouncer, and a browser.
//!
//! [`Stage`] provides each of them when it is asked for. [`Provision`] provides all of them at once and
//! passes them on to the commands that `cargo xtask` runs. However the process ends, its servers are
//! stopped and its files removed (see the module `run`).
//!
//! Tests find everything by environment variables:
//!
//! | variable | what it says |
//! |---|---|
//! | `TASKHARBOR_TEST_POSTGRES` | the URL of a server; one that is set already is used, and none started |
//! | `TASKHARBOR_PG_BIN` | the directory of `initdb`, `pg_ctl` and `postgres` |
//! | `TASKHARBOR_PG_DIR` | a directory for the tests' own servers: each that has its data directory in there is stopped and removed at the end |
//! | `TASKHARBOR_PG_USER` | the account to run them under; set only if the process runs as root, as which PostgreSQL refuses to run |
//! | `TASKHARBOR_PGBOUNCER` | the program; unset if it cannot be provided: tests that need it fail |
//! | `TASKHARBOR_PGBOUNCER_LIBS` | its `LD_LIBRARY_PATH`, if it needs one |
//! | `TASKHARBOR_CHROMIUM` | a browser; unset if none can be provided: tests that need it fail |
//! | `TASKHARBOR_CHROMIUM_LIBS` | its `LD_LIBRARY_PATH`, if it needs one |
//!
//! No maintained crate does this where only package registries can be reached: postgresql_embedded and
//! pg-embed download from other hosts, testcontainers needs Docker, and pgtemp has nothing to fall back
//! on if no server is installed.
//!
//! Std only: `cargo xtask` uses it, which on a fresh checkout is compiled before anything else.

mod account;
mod binary;
mod bouncer;
mod browser;
mod checksum;
mod error;
mod leftover;
mod option;
pub mod package;
mod provision;
mod run;
mod server;
pub mod shell;
mod stage;
mod wheel;
mod work_dir;

pub use account::Account;
pub use bouncer::Bouncer;
pub use browser::Browser;
pub use error::Error;
pub use option::{Options, Version};
pub use package::Installing;
pub use provision::Provision;
pub use stage::Stage;

/// A variable that tests read, and its value; nothing if it has to be unset.
pub type Variable = (&'static str, Option<std::ffi::OsString>);
