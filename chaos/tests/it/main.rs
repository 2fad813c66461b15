//! The program as a process. That these tests exist also makes the test step build it.

use std::{
    io,
    process::{Command, Output},
};

fn chaos(arguments: &[&str]) -> io::Result<Output> {
    Command::new(env!("CARGO_BIN_EXE_taskharbor-chaos")).args(arguments).output()
}

#[test]
fn invalid_arguments_are_refused_with_the_usage() {
    for arguments in [&["mysql"][..], &["--minutes"], &["--minutes", "-1"], &["--seed", "x"]] {
        let output = chaos(arguments).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("--minutes N"), "{arguments:?}: {said}");
    }
}

#[test]
fn the_usage_is_shown_on_request() {
    let output = chaos(&["--help"]).unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("--minutes N"));
}
