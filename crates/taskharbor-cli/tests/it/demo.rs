//! `taskharbor demo`, off a terminal.

use std::process::{Output, Stdio};

use crate::{
    plan::{Ending, KINDS, Kind},
    taskharbor,
};

/// The words of the report's line about this kind.
fn row<'a>(text: &'a str, kind: &Kind) -> Vec<&'a str> {
    let lines = text.lines().filter(|line| line.split_whitespace().next() == Some(kind.job_type));
    // In the table of kinds each has a line, those in the DLQ another below.
    lines.map(|line| line.split_whitespace().collect()).next().unwrap_or_default()
}

#[test]
fn everything_goes_as_planned_and_is_reported_in_plain_text() {
    let Output { status, stdout, stderr } = taskharbor().arg("demo").output().unwrap();
    let text = String::from_utf8(stdout).unwrap();
    let errors = String::from_utf8(stderr).unwrap();
    assert_eq!((status.code(), errors.lines().count()), (Some(0), 1), "{text}{errors}");
    assert!(errors.starts_with("created ") && errors.contains("jobs.db"), "{errors}");
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");

    for kind in &KINDS {
        let expected = [kind.jobs, kind.done(), kind.retries(), kind.dead()];
        assert_eq!(row(&text, kind)[1..5], expected.map(|number| number.to_string()), "{text}");
        if let Ending::Dies { attempts, reason } = kind.ending {
            let dead = text.lines().find(|line| {
                let mut words = line.split_whitespace();
                words.next() == Some(kind.job_type)
                    && words.next() == Some(&attempts.to_string())
                    && line.contains(reason)
            });
            assert!(dead.is_some(), "{}: {text}", kind.job_type);
        }
    }
    let jobs: usize = KINDS.iter().map(|kind| kind.jobs).sum();
    assert!(text.contains(&format!("{jobs} of {jobs} jobs finished")), "{text}");
    assert!(text.contains("reminder:send was scheduled 3 s ahead and started "), "{text}");
    assert!(text.contains(" after it was due."), "{text}");
    assert!(text.contains(" jobs per second: all as planned."), "{text}");
    assert!(text.contains("docs/guides/workers.md") && text.contains("examples/"), "{text}");
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_it_with_what_was_done() {
    use std::{
        io::{BufRead, BufReader, Read},
        process::Command,
    };

    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let mut demo = taskharbor();
        let demo = demo.arg("demo").stdout(Stdio::piped()).stderr(Stdio::null());
        let mut demo = demo.spawn().unwrap();
        let mut output = BufReader::new(demo.stdout.take().unwrap());
        // Once it has said something it listens for signals.
        let mut text = String::new();
        output.read_line(&mut text).unwrap();
        let dir = std::env::temp_dir().join(format!("taskharbor-demo-{}", demo.id()));
        assert!(dir.exists());
        let kill = Command::new("kill").args([signal, &demo.id().to_string()]).status().unwrap();
        assert!(kill.success());
        output.read_to_string(&mut text).unwrap();
        assert_eq!(demo.wait().unwrap().code(), Some(code), "{text}");
        assert!(text.contains("Interrupted: "), "{text}");
        assert!(!text.contains("as planned"), "{text}");
        assert!(!dir.exists(), "it is left behind");
    }
}

#[cfg(unix)]
#[test]
fn a_reader_who_leaves_ends_it_without_a_word() {
    let mut demo =
        taskharbor().arg("demo").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(demo.stdout.take());
    let Output { status, stderr, .. } = demo.wait_with_output().unwrap();
    let errors = String::from_utf8(stderr).unwrap();
    assert_eq!((status.code(), errors.lines().count()), (Some(141), 1), "{errors}");
}
