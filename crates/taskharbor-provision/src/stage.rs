//! A run that has its programs and a directory, and starts servers when they are asked for.

use crate::account::Account;
use crate::binary::{self, Binaries};
use crate::bouncer::{self, Bouncer};
use crate::run::Run;
use crate::work_dir::WorkDir;
use crate::{Error, Options, Variable, Version, server};

/// The programs of a PostgreSQL server and a directory for servers, which are stopped and removed when this
/// is dropped or the process has ended.
#[derive(Debug)]
pub struct Stage {
    options: Options,
    account: Account,
    work_dir: WorkDir,
    binaries: Binaries,
    run: Run,
}

impl Stage {
    /// Finds or fetches the programs, and removes what runs that were killed have left behind.
    ///
    /// # Errors
    ///
    /// The programs are missing and cannot be fetched, or no directory or account is usable.
    pub fn set(options: Options) -> Result<Self, Error> {
        let account = Account::choose()?;
        let work_dir = WorkDir::choose(&account)?;
        let binaries = match options.version {
            Version::Usual => binary::find(&work_dir, options.installing)?,
            Version::Newer => binary::find_newer(&work_dir)?,
            Version::Major(major) => binary::find_major(&work_dir, major)?,
        };
        let run = Run::begin(&work_dir, &binaries, &account)?;
        Ok(Self { options, account, work_dir, binaries, run })
    }

    /// Starts a server, one for each stage, and returns its URL.
    ///
    /// # Errors
    ///
    /// The server does not start.
    pub fn start_server(&self) -> Result<String, Error> {
        server::start(&self.run, &self.binaries, &self.account)
    }

    /// Finds pgbouncer, or unpacks its package.
    ///
    /// # Errors
    ///
    /// It is not installed and its package cannot be downloaded.
    pub fn bouncer(&self) -> Result<Bouncer, Error> {
        bouncer::provide(&self.work_dir, self.options.installing)
    }

    /// The variables that say where programs are and where servers may be started.
    pub fn variables(&self) -> [Variable; 3] {
        [
            ("TASKHARBOR_PG_BIN", Some(self.binaries.dir().into())),
            ("TASKHARBOR_PG_DIR", Some(self.run.dir().into())),
            ("TASKHARBOR_PG_USER", self.account.name().map(Into::into)),
        ]
    }
}
