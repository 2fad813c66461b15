//! Parsing of the command line: help, versions and errors.

use std::process::Output;

use crate::taskharbor;

/// The exit code, and what was written to standard output and standard error.
#[expect(clippy::unwrap_used, reason = "without an answer the test has failed")]
fn answer(args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = taskharbor().args(args).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn help_names_the_commands() {
    for args in [["--help"], ["-h"], ["help"]] {
        let (code, out, err) = answer(&args);
        assert_eq!((code, &*err), (Some(0), ""));
        assert!(out.contains("Usage: taskharbor [OPTIONS] <COMMAND>"), "{out}");
        for line in [
            "  demo         Run a few hundred jobs",
            "  enqueue      Store a job",
            "  worker       Run jobs",
        ] {
            assert!(out.contains(line), "{out}");
        }
    }
    let (code, out, _) = answer(&["demo", "--help"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("is removed at the end"), "{out}");
}

#[test]
fn the_version_is_that_of_the_crate() {
    let (code, out, _) = answer(&["--version"]);
    assert_eq!((code, out), (Some(0), format!("taskharbor {}\n", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn without_a_command_the_help_is_shown_as_an_error() {
    let (code, out, err) = answer(&[]);
    assert_eq!((code, &*out), (Some(2), ""));
    assert!(err.contains("Usage: taskharbor [OPTIONS] <COMMAND>"), "{err}");
}

#[test]
fn an_unknown_command_is_refused_with_what_was_probably_meant() {
    let (code, out, err) = answer(&["dmeo"]);
    assert_eq!((code, &*out), (Some(2), ""));
    assert!(err.contains("unrecognized subcommand 'dmeo'"), "{err}");
    assert!(err.contains("a similar subcommand exists: 'demo'"), "{err}");
    let (code, _, err) = answer(&["demo", "--fast"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("unexpected argument '--fast'"), "{err}");
}

#[test]
fn a_worker_waits_for_its_store_as_long_as_it_may() {
    let url = "postgres://taskharbor@127.0.0.1:1/jobs";
    let worker = ["worker", "--builtin", "--start-timeout", "300ms", "--url", url];
    let (code, _, err) = answer(&worker);
    assert_eq!(code, Some(5), "{err}");
    assert!(err.contains("waiting for the store") && err.contains("refused"), "{err}");
}
