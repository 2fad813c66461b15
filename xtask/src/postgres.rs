//! The environment of tests, for as long as they run: a private PostgreSQL server, the programs to start more
//! of them, pgbouncer, and a browser.
//!
//! Tests are told through their environment:
//!
//! | variable | what it says |
//! |---|---|
//! | `TASKHARBOR_TEST_POSTGRES` | the URL of a server; one that is set already is used, and none started |
//! | `TASKHARBOR_PG_BIN` | the directory of `initdb`, `pg_ctl` and `postgres` |
//! | `TASKHARBOR_PG_DIR` | a directory for servers of the tests' own: what has its data directory in there is stopped and removed at the end |
//! | `TASKHARBOR_PG_USER` | the account to run them under; only set where ours is root, to which they object |
//! | `TASKHARBOR_PGBOUNCER` | the program; unset where it cannot be had: tests that need it fail |
//! | `TASKHARBOR_PGBOUNCER_LIBS` | its `LD_LIBRARY_PATH`, if it needs one |
//! | `TASKHARBOR_CHROMIUM` | a browser; unset where none can be had: tests that need it fail |
//! | `TASKHARBOR_CHROMIUM_LIBS` | its `LD_LIBRARY_PATH`, if it needs one |

mod account;
mod binary;
mod bouncer;
mod leftover;
mod option;
mod run;
mod server;
mod wheel;
mod work_dir;

use std::cell::OnceCell;
use std::env;
use std::ffi::OsString;
use std::io;
use std::process::Command;
use std::rc::Rc;

use account::Account;
use binary::Binaries;
use bouncer::Bouncer;
use run::Run;
use work_dir::WorkDir;

use crate::Failure;
use crate::browser::{self, Browser};
use crate::step::{Outcome, Step};
use crate::watchdog::run_tests;

pub(crate) use option::{Options, Version};

/// A run that has its programs but no server yet.
struct Stage {
    account: Account,
    work_dir: WorkDir,
    binaries: Binaries,
    run: Run,
}

impl Stage {
    fn set(options: Options) -> Result<Self, Failure> {
        let account = Account::choose()?;
        let work_dir = WorkDir::choose(&account)?;
        let binaries = match options.version {
            Version::Usual => binary::find(&work_dir, options.installing)?,
            Version::Newer => binary::find_newer(&work_dir)?,
            Version::Major(major) => binary::find_major(&work_dir, major)?,
        };
        let run = Run::begin(&work_dir, &binaries, &account)?;
        Ok(Self { account, work_dir, binaries, run })
    }

    fn start_server(&self) -> Result<String, Failure> {
        server::start(&self.run, &self.binaries, &self.account)
    }
}

/// All that tests need, until it is dropped.
pub(crate) struct Provision {
    stage: Stage,
    url: OsString,
    /// Or why there is none, and what to install.
    bouncer: Result<Bouncer, String>,
    /// As the bouncer, if tests are what is run.
    browser: Option<Result<Browser, String>>,
}

impl Provision {
    pub(crate) fn new(options: Options) -> Result<Self, Failure> {
        let stage = Stage::set(options)?;
        let given = env::var_os("TASKHARBOR_TEST_POSTGRES").filter(|url| !url.is_empty());
        let url = match (given, options.version) {
            (Some(url), Version::Usual) => url,
            _ => stage.start_server()?.into(),
        };
        let bouncer = bouncer::provide(&stage.work_dir, options.installing).map_err(|failure| {
            format!(
                "no pgbouncer to test with ({}): install pgbouncer, or set TASKHARBOR_PGBOUNCER to \
                 the program",
                failure.into_message()
            )
        });
        Ok(Self { stage, url, bouncer, browser: None })
    }

    /// With what only tests need.
    pub(crate) fn for_tests(options: Options) -> Result<Self, Failure> {
        let browser = browser::find(options.installing).map_err(Failure::into_message);
        Ok(Self { browser: Some(browser), ..Self::new(options)? })
    }

    /// What could not be provided.
    fn missing(&self) -> impl Iterator<Item = &String> {
        let browser = self.browser.as_ref().and_then(|browser| browser.as_ref().err());
        self.bouncer.as_ref().err().into_iter().chain(browser)
    }

    /// Fails unless nothing is missing: every test can be run.
    fn complete(self) -> Result<Self, Failure> {
        let missing = self.missing().next().cloned();
        missing.map_or(Ok(self), |missing| Err(Failure::Check(missing)))
    }

    /// Says what is missing, which may be needed by none of the tests that were chosen.
    pub(crate) fn warn(&self) {
        for missing in self.missing() {
            eprintln!("WARNING: {missing}; tests that need it fail");
        }
    }

    /// Tells a command where everything is.
    pub(crate) fn pass_on(&self, command: &mut Command) {
        let Stage { account, binaries, run, .. } = &self.stage;
        let bouncer = self.bouncer.as_ref().ok();
        let variables: [(&str, Option<OsString>); 6] = [
            ("TASKHARBOR_TEST_POSTGRES", Some(self.url.clone())),
            ("TASKHARBOR_PG_BIN", Some(binaries.dir().into())),
            ("TASKHARBOR_PG_DIR", Some(run.dir().into())),
            ("TASKHARBOR_PG_USER", account.name().map(Into::into)),
            ("TASKHARBOR_PGBOUNCER", bouncer.map(|bouncer| (&bouncer.program).into())),
            ("TASKHARBOR_PGBOUNCER_LIBS", bouncer.and_then(|bouncer| bouncer.libraries.clone())),
        ];
        let browser = self.browser.as_ref().and_then(|browser| browser.as_ref().ok());
        let browser = browser.map(Browser::variables).into_iter().flatten();
        for (name, value) in variables.into_iter().chain(browser) {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
    }
}

/// A step that provides everything and one for each command that is told about it. All of it is gone
/// when the last of them is done, or will not be run.
pub(crate) fn steps(
    name: &'static str,
    options: Options,
    commands: Vec<(&'static str, Command)>,
) -> Vec<Step> {
    let shared = Rc::new(OnceCell::new());
    let provided = Rc::clone(&shared);
    let provide = Step::new(name, move || {
        let provision = Provision::for_tests(options)?.complete()?;
        // It is set here alone.
        let _ = provided.set(provision);
        Ok(Outcome::Passed)
    });
    let steps = commands.into_iter().map(|(name, mut command)| {
        let shared = Rc::clone(&shared);
        Step::new(name, move || match shared.get() {
            Some(provision) => {
                provision.pass_on(&mut command);
                run_tests(&mut command).map(|()| Outcome::Passed)
            }
            None => Err(Failure::Check("there is no server".to_owned())),
        })
    });
    [provide].into_iter().chain(steps).collect()
}

/// Starts a server for people and stops it when they press Enter.
pub(crate) fn serve(options: Options) -> Result<(), Failure> {
    let stage = Stage::set(options)?;
    println!("{}", stage.start_server()?);
    eprintln!("press Enter or Ctrl-C to stop it");
    // No more input is as good as Enter.
    let _ = io::stdin().read_line(&mut String::new());
    Ok(())
}
