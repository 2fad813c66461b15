//! The options of commands that need PostgreSQL, which may stand among those of cargo.

use std::ffi::OsString;

use taskharbor_provision::{Installing, Options, Version};

use crate::Failure;

/// Takes the options out of the arguments. Those after `--` are for the tests themselves.
pub(crate) fn take(args: &[OsString]) -> Result<(Options, Vec<OsString>), Failure> {
    take_into(Options::from_env(), args)
}

fn take_into(mut options: Options, args: &[OsString]) -> Result<(Options, Vec<OsString>), Failure> {
    let mut rest = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("--install") => options.installing = Installing::Allowed,
            Some("--pg-version") => {
                options.version = version(args.next().and_then(|value| value.to_str()))?;
            }
            Some(arg) if arg.starts_with("--pg-version=") => {
                options.version = version(arg.split_once('=').map(|(_, value)| value))?;
            }
            Some("--") => {
                rest.push(arg.clone());
                rest.extend(args.by_ref().cloned());
            }
            _ => rest.push(arg.clone()),
        }
    }
    Ok((options, rest))
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
        take_into(PLAIN, &args.iter().map(OsString::from).collect::<Vec<_>>())
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
