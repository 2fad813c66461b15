//! What tests of the Postgres driver need, provided for as long as they run: a private server, the
//! programs to start more of them, and pgbouncer.
//!
//! Tests are told through their environment:
//!
//! | variable | what it says |
//! |---|---|
//! | `TASKHARBOR_TEST_POSTGRES` | the URL of a server; one that is set already is used, and none started |
//! | `TASKHARBOR_PG_BIN` | the directory of `initdb`, `pg_ctl` and `postgres` |
//! | `TASKHARBOR_PG_DIR` | a directory for servers of the tests' own: what has its data directory in there is stopped and removed at the end |
//! | `TASKHARBOR_PG_USER` | the account to run them under; only set where ours is root, to which they object |
//! | `TASKHARBOR_PGBOUNCER` | the program; unset where it cannot be had, which in CI is an error |
//! | `TASKHARBOR_PGBOUNCER_LIBS` | its `LD_LIBRARY_PATH`, if it needs one |

mod account;
mod binary;
mod bouncer;
mod leftover;
mod option;
mod package;
mod place;
mod run;
mod server;
mod wheel;

use std::cell::OnceCell;
use std::env;
use std::ffi::OsString;
use std::io;
use std::process::Command;
use std::rc::Rc;

use account::Account;
use binary::Binaries;
use bouncer::Bouncer;
use place::Place;
use run::Run;

use crate::Failure;
use crate::step::{Outcome, Step};
use crate::watchdog::run_tests;

pub(crate) use option::{Options, Version};

/// A run that has its programs but no server yet.
struct Stage {
    account: Account,
    place: Place,
    binaries: Binaries,
    run: Run,
}

impl Stage {
    fn set(options: Options) -> Result<Self, Failure> {
        let account = Account::choose()?;
        let place = Place::choose(&account)?;
        let binaries = match options.version {
            Version::Usual => binary::find(&place, options.installing)?,
            Version::Newer => binary::find_newer(&place)?,
        };
        let run = Run::begin(&place, &binaries, &account)?;
        Ok(Self { account, place, binaries, run })
    }

    fn start_server(&self) -> Result<String, Failure> {
        server::start(&self.run, &self.binaries, &self.account)
    }
}

/// All that tests need, until it is dropped.
pub(crate) struct Provision {
    stage: Stage,
    url: OsString,
    bouncer: Option<Bouncer>,
}

impl Provision {
    pub(crate) fn new(options: Options) -> Result<Self, Failure> {
        let stage = Stage::set(options)?;
        let given = env::var_os("TASKHARBOR_TEST_POSTGRES").filter(|url| !url.is_empty());
        let url = match (given, options.version) {
            (Some(url), Version::Usual) => url,
            _ => stage.start_server()?.into(),
        };
        let bouncer = match bouncer::provide(&stage.place, options.installing) {
            Ok(bouncer) => Some(bouncer),
            Err(failure) => {
                tolerate(failure, "pgbouncer")?;
                None
            }
        };
        Ok(Self { stage, url, bouncer })
    }

    /// Tells a command where everything is.
    pub(crate) fn pass_on(&self, command: &mut Command) {
        let Stage { account, binaries, run, .. } = &self.stage;
        let bouncer = self.bouncer.as_ref();
        let variables: [(&str, Option<OsString>); 6] = [
            ("TASKHARBOR_TEST_POSTGRES", Some(self.url.clone())),
            ("TASKHARBOR_PG_BIN", Some(binaries.dir().into())),
            ("TASKHARBOR_PG_DIR", Some(run.dir().into())),
            ("TASKHARBOR_PG_USER", account.name().map(Into::into)),
            ("TASKHARBOR_PGBOUNCER", bouncer.map(|bouncer| (&bouncer.program).into())),
            ("TASKHARBOR_PGBOUNCER_LIBS", bouncer.and_then(|bouncer| bouncer.libraries.clone())),
        ];
        for (name, value) in variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
    }

    fn outcome(&self) -> Outcome {
        match self.bouncer {
            Some(_) => Outcome::Passed,
            None => Outcome::PassedExcept("no pgbouncer"),
        }
    }
}

/// Warns of something that tests can do without, except in CI, which must not overlook it.
fn tolerate(failure: Failure, missing: &str) -> Result<(), Failure> {
    let (Failure::Check(reason) | Failure::Usage(reason)) = failure;
    let message = format!("no {missing} to test with ({reason}): install {missing}");
    if package::in_ci() {
        return Err(Failure::Check(message));
    }
    eprintln!("WARNING: {message}");
    Ok(())
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
        let provision = match (Provision::new(options), options.version) {
            (Err(failure), Version::Newer) => {
                tolerate(failure, "newer PostgreSQL")?;
                return Ok(Outcome::PassedExcept("there is none"));
            }
            (result, _) => result?,
        };
        let outcome = provision.outcome();
        // Nobody else sets it.
        let _ = provided.set(provision);
        Ok(outcome)
    });
    let steps = commands.into_iter().map(|(name, mut command)| {
        let shared = Rc::clone(&shared);
        Step::new(name, move || match shared.get() {
            Some(provision) => {
                provision.pass_on(&mut command);
                run_tests(&mut command).map(|()| Outcome::Passed)
            }
            None => Ok(Outcome::PassedExcept("not run")),
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
