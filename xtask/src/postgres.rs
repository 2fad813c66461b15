//! Steps and commands that need a PostgreSQL server, which `taskharbor-provision` provides.

use std::cell::OnceCell;
use std::io;
use std::process::Command;
use std::rc::Rc;

use taskharbor_provision::{Options, Provision, Stage};

use crate::Failure;
use crate::step::{Outcome, Step};
use crate::watchdog::run_tests;

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
