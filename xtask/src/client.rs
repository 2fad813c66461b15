//! The clients in other languages, tested against the command as it was built.
//!
//! Their tests are written with what their languages bring along, and find the command in
//! `TASKHARBOR_PROGRAM`. The compiler of TypeScript comes from the registry of npm, in the version that the
//! lock file of the client names; Python needs nothing beside itself.

use std::path::Path;
use std::process::Command;

use taskharbor_provision::{Installing, package};

use crate::Failure;
use crate::cargo;
use crate::shell::{on_path, output, root, run};
use crate::step::{Outcome, Step};
use crate::watchdog::run_tests;

/// The oldest Python that the client supports.
const OLDEST_PYTHON: (u32, u32) = (3, 9);

/// Builds the command and tests all clients with it.
pub(crate) fn step(installing: Installing) -> Step {
    Step::new("clients", move || test(installing).map(|()| Outcome::Passed))
}

/// `cargo xtask clients`, and the step of that name.
pub(crate) fn test(installing: Installing) -> Result<(), Failure> {
    // What is missing is said before anything is built.
    provide("python3", "python3", installing)?;
    check_python(&output(Command::new("python3").arg("--version"))?)?;
    provide("npm", "npm", installing)?;
    run(&mut cargo::build_program())?;
    run_tests(&mut python_tests())?;
    let client = root().join("clients/typescript");
    run(npm(&client).args(["ci", "--silent", "--no-audit", "--no-fund"]))?;
    run_tests(npm(&client).args(["test", "--silent"]).env("TASKHARBOR_PROGRAM", cargo::program()))
}

fn python_tests() -> Command {
    let mut command = Command::new("python3");
    command
        .args(["-W", "error::ResourceWarning", "-m", "unittest", "discover"])
        .args(["-s", "clients/python/tests"])
        .env("TASKHARBOR_PROGRAM", cargo::program())
        .current_dir(root());
    command
}

/// Finds a program, or installs the package that has it where that is allowed.
fn provide(program: &str, package: &str, installing: Installing) -> Result<(), Failure> {
    if on_path(program).is_some() {
        return Ok(());
    }
    if installing == Installing::Allowed {
        package::install(package)?;
    }
    if on_path(program).is_some() {
        return Ok(());
    }
    Err(Failure::Check(format!(
        "no {program} to test the clients with: install {package}, or add --install"
    )))
}

/// Fails unless `python3 --version` has printed a version that the client supports.
fn check_python(printed: &str) -> Result<(), Failure> {
    let mut parts = printed.trim().trim_start_matches("Python ").split('.').map(str::parse);
    let version = match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor),
        _ => (0, 0),
    };
    if version >= OLDEST_PYTHON {
        return Ok(());
    }
    let (major, minor) = OLDEST_PYTHON;
    let printed = printed.trim();
    Err(Failure::Check(format!(
        "the client is for Python {major}.{minor} and later, and python3 is {printed:?}: install a newer one"
    )))
}

fn npm(dir: &Path) -> Command {
    let mut command = Command::new("npm");
    command.current_dir(dir);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_python_that_is_too_old_is_refused() {
        for good in ["Python 3.9.0\n", "Python 3.13.1", "Python 3.15.0rc1", "Python 4.0"] {
            assert!(check_python(good).is_ok(), "{good}");
        }
        for bad in ["Python 3.8.10", "Python 2.7", "", "Python x.y"] {
            assert!(matches!(check_python(bad), Err(Failure::Check(_))), "{bad}");
        }
    }

    #[test]
    fn a_program_that_is_missing_is_named_with_what_to_install() {
        assert!(provide("sh", "dash", Installing::Refused).is_ok());
        let missing = provide("no-such-program", "its-package", Installing::Refused);
        let Err(Failure::Check(message)) = missing else { panic!("there is none") };
        assert!(message.contains("install its-package, or add --install"), "{message}");
    }
}
