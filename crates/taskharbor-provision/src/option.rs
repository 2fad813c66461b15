//! Which PostgreSQL is provided, and whether packages may be installed for it.

use std::env;

use crate::package::Installing;

/// Which PostgreSQL is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The system's, else any that can be fetched.
    Usual,
    /// A newer major version than that.
    Newer,
    /// This major version.
    Major(u32),
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether missing packages may be installed on this machine.
    pub installing: Installing,
    /// The version of PostgreSQL.
    pub version: Version,
}

impl Options {
    /// What the environment asks for: `TASKHARBOR_PG_NEWER=1` is a newer version, and on machines of CI
    /// packages may be installed.
    pub fn from_env() -> Self {
        let newer = env::var_os("TASKHARBOR_PG_NEWER").is_some_and(|value| value == "1");
        let version = if newer { Version::Newer } else { Version::Usual };
        Self { installing: Installing::by_default(), version }
    }
}
