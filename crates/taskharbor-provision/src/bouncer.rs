//! pgbouncer, for the test that puts one between the driver and its server.
//!
//! There is no wheel of it. Where it is not installed its package is unpacked, together with those
//! libraries that few machines have, and the test is told where they are.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::package;
use crate::shell::{cannot, on_path, output};
use crate::work_dir::WorkDir;
use crate::{Error, Installing, Variable};

/// A pgbouncer that runs on this machine.
#[derive(Debug)]
pub struct Bouncer {
    program: PathBuf,
    /// What its `LD_LIBRARY_PATH` must be, where it was unpacked.
    libraries: Option<OsString>,
}

const PROGRAM: &str = "TASKHARBOR_PGBOUNCER";
const LIBRARIES: &str = "TASKHARBOR_PGBOUNCER_LIBS";

impl Bouncer {
    /// The variables by which tests find it.
    pub fn variables(&self) -> [Variable; 2] {
        [(PROGRAM, Some(self.program.clone().into())), (LIBRARIES, self.libraries.clone())]
    }

    /// The variables if there is none.
    pub(crate) const UNSET: [Variable; 2] = [(PROGRAM, None), (LIBRARIES, None)];
}

pub(crate) fn provide(work_dir: &WorkDir, installing: Installing) -> Result<Bouncer, Error> {
    find(work_dir, installing).map_err(|error| {
        Error::new(format!(
            "no pgbouncer to test with ({error}): install pgbouncer, or set {PROGRAM} to the program"
        ))
    })
}

fn find(work_dir: &WorkDir, installing: Installing) -> Result<Bouncer, Error> {
    let asked = env::var_os(PROGRAM).filter(|value| !value.is_empty());
    if let Some(program) = asked {
        let libraries = env::var_os(LIBRARIES);
        return working(Bouncer { program: program.into(), libraries });
    }
    // Debian's is for daemons, to which not every PATH leads.
    let program = on_path("pgbouncer").unwrap_or_else(|| "/usr/sbin/pgbouncer".into());
    working(Bouncer { program, libraries: None }).or_else(|_| unpacked(work_dir, installing))
}

fn working(bouncer: Bouncer) -> Result<Bouncer, Error> {
    let mut command = Command::new(&bouncer.program);
    if let Some(libraries) = &bouncer.libraries {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    output(command.arg("--version")).map(|_| bouncer)
}

/// The one in the working directory, put there unless an earlier run has done so.
fn unpacked(work_dir: &WorkDir, installing: Installing) -> Result<Bouncer, Error> {
    let _alone = work_dir.lock()?;
    let dir = work_dir.dir().join("pgbouncer");
    if let Ok(bouncer) = working(bouncer_in(&dir)) {
        return Ok(bouncer);
    }
    if dir.exists() {
        fs::remove_dir_all(&dir).map_err(|error| cannot("remove", &dir, &error))?;
    }
    fs::create_dir(&dir).map_err(|error| cannot("make", &dir, &error))?;
    package::download(&["pgbouncer".to_owned()], &dir, installing)?;
    let depends = output(Command::new("apt-cache").args(["depends", "pgbouncer"]))?;
    package::download(&libraries_in(&depends), &dir, installing)?;
    for file in entries(&dir) {
        output(Command::new("dpkg").arg("-x").arg(&file).arg(&dir))?;
    }
    working(bouncer_in(&dir))
}

fn bouncer_in(dir: &Path) -> Bouncer {
    // Libraries lie in a directory named after the architecture.
    let dirs = entries(&dir.join("usr/lib")).into_iter().filter(|path| path.is_dir());
    Bouncer { program: dir.join("usr/sbin/pgbouncer"), libraries: env::join_paths(dirs).ok() }
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// The packages of its event loop and its resolver, whose names differ between releases.
fn libraries_in(depends: &str) -> Vec<String> {
    let names = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let rare = ["libevent", "libc-ares", "libcares"];
    names
        .filter(|name| rare.iter().any(|start| name.starts_with(start)))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rare_libraries_are_found_under_the_names_of_each_release() {
        let bookworm = "pgbouncer\n  PreDepends: init-system-helpers\n  Depends: postgresql-common\n  \
                        Depends: libc-ares2\n  Depends: libc6\n  Depends: libevent-2.1-7\n  \
                        Depends: libsystemd0\n    libelogind0\n  Suggests: python3\n";
        assert_eq!(libraries_in(bookworm), ["libc-ares2", "libevent-2.1-7"]);
        let later = "pgbouncer\n  Depends: libcares2\n  Depends: libevent-2.1-7t64\n";
        assert_eq!(libraries_in(later), ["libcares2", "libevent-2.1-7t64"]);
    }

    #[test]
    fn a_pgbouncer_that_does_not_run_is_none() {
        let missing = Bouncer { program: "/nowhere/pgbouncer".into(), libraries: None };
        assert!(working(missing).is_err());
    }
}
