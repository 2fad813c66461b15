//! The options of commands that need PostgreSQL, which may stand among those of cargo.

use std::env;
use std::ffi::OsString;

use crate::Failure;
use crate::package::Installing;

/// Which PostgreSQL is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// The system's version, or else any that is found.
    Usual,
    /// A newer major version than that.
    Newer,
    /// This major version.
    Major(u32),
}

/// What the command line and the environment say about PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) installing: Installing,
    pub(crate) version: Version,
}

impl Options {
    fn from_env() -> Self {
        let newer = env::var_os("TASKHARBOR_PG_NEWER").is_some_and(|value| value == "1");
        let version = if newer { Version::Newer } else { Version::Usual };
        Self { installing: Installing::by_default(), version }
    }

    /// Takes what is ours out of the arguments. Those after `--` are for the tests themselves.
    pub(crate) fn take(args: &[OsString]) -> Result<(Self, Vec<OsString>), Failure> {
        Self::from_env().taken_from(args)
    }

    fn taken_from(mut self, args: &[OsString]) -> Result<(Self, Vec<OsString>), Failure> {
        let mut rest = Vec::new();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.to_str() {
                Some("--install") => self.installing = Installing::Allowed,
                Some("--pg-version") => {
                    self.version = version(args.next().and_then(|value| value.to_str()))?;
                }
                Some(arg) if arg.starts_with("--pg-version=") => {
                    self.version = version(arg.split_once('=').map(|(_, value)| value))?;
                }
                Some("--") => {
                    rest.push(arg.clone());
                    rest.extend(args.by_ref().cloned());
                }
                _ => rest.push(arg.clone()),
            }
        }
        Ok((self, rest))
    }
}

fn version(value: Option<&str>) -> Result<Version, Failure> {
    match value {
        Some("newer") => Ok(Version::Newer),
        value => value.and_then(|it| it.parse().ok()).map(Version::Major).ok_or_else(|| {
            Failure::Usage("`--pg-version` is followed by `newer` or a number like 17".to_owned())
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Options = Options { installing: Installing::Refused, version: Version::Usual };

    fn taken(args: &[&str]) -> Result<(Options, Vec<OsString>), Failure> {
        PLAIN.taken_from(&args.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn ours_are_taken_out_and_the_rest_is_left_in_order() {
        let Ok((options, rest)) = taken(&["-p", "x", "--install", "--pg-version", "newer", "y"])
        else {
            panic!("all of it makes sense");
        };
        assert_eq!(options, Options { installing: Installing::Allowed, version: Version::Newer });
        assert_eq!(rest, ["-p", "x", "y"]);
        assert!(matches!(taken(&["y"]), Ok((PLAIN, rest)) if rest == ["y"]));
    }

    #[test]
    fn what_follows_two_dashes_is_not_ours() {
        let args = ["--", "--install", "--pg-version"];
        assert!(matches!(taken(&args), Ok((PLAIN, rest)) if rest == args));
    }

    #[test]
    fn a_version_is_asked_for_by_its_number() {
        for args in [&["--pg-version", "17"][..], &["--pg-version=17"]] {
            let Ok((options, rest)) = taken(args) else { panic!("{args:?}") };
            assert_eq!((options.version, rest.len()), (Version::Major(17), 0));
        }
        for args in [&["--pg-version"][..], &["--pg-version", "old"], &["--pg-version=17.2"]] {
            assert!(matches!(taken(args), Err(Failure::Usage(_))), "{args:?}");
        }
    }
}
