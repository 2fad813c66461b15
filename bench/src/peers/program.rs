//! The programs of the sides, as `cargo xtask bench peers` has built them.

use std::{env, ffi::OsString};

use super::{Outcome, system::SYSTEMS};
use crate::postgres::Child;

/// The variable in which the programs are passed: one line for each system, `name<tab>program…`, or
/// `name<tab><tab>reason` if there is none.
const PROGRAMS: &str = "TASKHARBOR_PEERS";

/// How a system is started, or why it is not.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// The index of the system in [`SYSTEMS`].
    pub(crate) system: usize,
    pub(crate) command: Result<Vec<OsString>, String>,
}

impl Program {
    pub(crate) fn start(&self, url: &str) -> Outcome<Child> {
        let command = self.command.as_ref().map_err(Clone::clone)?;
        let (program, arguments) = command.split_first().ok_or("no program")?;
        let mut arguments: Vec<&str> = arguments.iter().filter_map(|it| it.to_str()).collect();
        arguments.extend([url, "jobs"]);
        Child::start(program, &arguments)
    }
}

/// All programs, TaskHarbor's first.
pub(crate) fn all() -> Outcome<Vec<Program>> {
    let given = env::var(PROGRAMS).map_err(|_| "no programs: run `cargo xtask bench peers`")?;
    let mut programs = Vec::new();
    for (system, known) in SYSTEMS.iter().enumerate() {
        let line = given.lines().find_map(|it| it.split_once('\t').filter(|it| it.0 == known.name));
        let command = match line {
            _ if system == 0 => Ok(vec![env::current_exe()?.into(), "peers-side".into()]),
            None => Err("it was not built".to_owned()),
            Some((_, rest)) => match rest.strip_prefix('\t') {
                Some(reason) => Err(reason.to_owned()),
                None => Ok(rest.split('\t').map(OsString::from).collect()),
            },
        };
        if let Err(reason) = &command {
            eprintln!("WARNING: {} is left out: {reason}", known.label);
        }
        programs.push(Program { system, command });
    }
    Ok(programs)
}
