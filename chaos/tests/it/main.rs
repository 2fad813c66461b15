//! The program as a process. That these tests exist also makes the test step build it.

use std::process::{Command, Output};

fn chaos(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_taskharbor-chaos");
    Command::new(program).args(arguments).output().expect("the program runs")
}

#[test]
fn what_makes_no_sense_is_refused_with_the_usage() {
    for arguments in [&["mysql"][..], &["--minutes"], &["--minutes", "-1"], &["--seed", "x"]] {
        let output = chaos(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("--minutes N"), "{arguments:?}: {said}");
    }
}

#[test]
fn the_usage_is_shown_on_request() {
    let output = chaos(&["--help"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("--minutes N"));
}
