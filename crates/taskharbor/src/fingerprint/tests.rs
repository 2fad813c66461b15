//! Errors that have one cause, and errors that do not.

use taskharbor_core::{JobId, JobType, QueueName, State, Text, Timestamp};

use super::*;

fn of(error: &str) -> String {
    Fingerprint::of(error).pattern().to_owned()
}

#[test]
fn what_differs_from_job_to_job_is_left_out() {
    for (error, pattern) in [
        ("timed out after 30s", "timed out after #s"),
        ("timed out after 1.5s", "timed out after #s"),
        ("took 1_000ms, not 20ms", "took #ms, not #ms"),
        ("status: 503", "status: #"),
        ("order 01919b6e-8f6a-7c3e-b1a4-0d6f5a3e9c11 is gone", "order # is gone"),
        ("order abcdefab-cdef-abcd-efab-cdefabcdefab is gone", "order # is gone"),
        ("commit 9fceb02d0ae598e95dc970b74767f19372d61af8", "commit #"),
        ("at 0x7ffdeadbeef", "at #"),
        ("customer cus_Nf8aK2lP91 has no card", "customer cus_# has no card"),
        ("no such job: job-17", "no such job: job-#"),
        ("unknown user 'ada o\\'neil'", "unknown user '…'"),
        ("unknown user \"ada\" in `mail`", "unknown user '…' in '…'"),
        ("can't find the user's mail", "can't find the user's mail"),
        ("“Ada” and «Bob»", "'…' and '…'"),
        ("an \"open quote", "an \"open quote"),
        ("cannot open /var/lib/a src/b/c", "cannot open <path> <path>"),
        ("cannot open C:\\data\\x.csv: denied", "cannot open <path>: denied"),
        ("panicked at src/main.rs:17:9:", "panicked at <path>:"),
        ("main.rs:7: bad", "<path>: bad"),
        ("read and/or write application/json", "read and/or write application/json"),
        ("cannot reach 10.0.0.7:5432 (refused)", "cannot reach <address> (refused)"),
        ("cannot reach [::1]:80, ok", "cannot reach <address>, ok"),
        ("cannot reach fe80::1", "cannot reach <address>"),
        ("cannot reach db-7.example.com:5432", "cannot reach <address>"),
        ("cannot reach db:5432", "cannot reach db:#"),
        ("bounced: ada.l@example.com, bob@example.org", "bounced: <address>, <address>"),
        ("GET https://example.com/users/7?x=1: 404", "GET <url>: #"),
        ("late since 2026-11-15T10:44:34.123456Z", "late since #"),
        ("late since 2026-11-15 10:44", "late since # #"),
        ("user_id=17, name=ada", "user_id=#, name=ada"),
        ("  two   spaces\tand a tab ", "two spaces and a tab"),
        ("", ""),
        ("\n\n", ""),
    ] {
        assert_eq!(of(error), pattern, "{error:?}");
    }
}

#[test]
fn the_line_that_says_what_happened_counts() {
    assert_eq!(of("\n\nit broke\nat line 7\nat line 8"), "it broke");
    let python = "Traceback (most recent call last):\n  File \"a.py\", line 3\nValueError: no 7\n";
    assert_eq!(of(python), "ValueError: no #");
}

#[test]
fn errors_of_one_cause_have_one_fingerprint() {
    let one = Fingerprint::of("user 17 not found");
    assert_eq!(one, Fingerprint::of("user 4 not found\nand more"));
    assert_ne!(one.to_string(), Fingerprint::of("group 17 not found").to_string());
    // Other processes and versions have to agree.
    assert_eq!(Fingerprint::of("").to_string(), "cbf29ce484222325");
    assert_eq!(Fingerprint::of("a").to_string(), "af63dc4c8601ec8c");
}

#[test]
fn hostile_errors_are_cut_and_never_split_a_character() {
    let long = "ü".repeat(10_000);
    let cut = Fingerprint::of(&long);
    assert_eq!(cut.pattern().len(), Fingerprint::MAX_PATTERN_BYTES);
    let quotes = "'\"`“«\\".repeat(2_000);
    let slashes = "/".repeat(9_000);
    let mixed = "a1".repeat(5_000);
    let bytes = String::from_utf8_lossy(&[0xff; 3_000]).into_owned();
    for error in [quotes, slashes, mixed, bytes, "\u{202e}\0\u{1b}[31m=\\'".repeat(900)] {
        assert!(Fingerprint::of(&error).pattern().len() <= Fingerprint::MAX_PATTERN_BYTES);
    }
    for text in ["=", "a=", "=b", "'", "\\", "::", "@", "a@", "~", "/", "-1", "é-7", "7é"] {
        let _ = Fingerprint::of(text);
    }
}

#[test]
fn a_job_is_grouped_by_what_dead_lettered_it() {
    let name = |text: &str| text.to_owned();
    let mut job = JobSummary::new(
        JobId::new("a").unwrap(),
        JobType::new("t").unwrap(),
        QueueName::new("q").unwrap(),
        State::Dlq,
        Timestamp::EPOCH,
    );
    assert_eq!(Fingerprint::cause(&job), "");
    job.last_error = Some(Text::new("no route\nat 7"));
    assert_eq!(Fingerprint::cause(&job), name("no route\nat 7"));
    job.reason = Some(Text::new("failed 3 times; last error: no route\nat 7"));
    assert_eq!(Fingerprint::cause(&job), name("no route\nat 7"));
    job.reason = Some(Text::new("its lease ran out 3 times in a row"));
    assert_eq!(Fingerprint::of_job(&job).pattern(), "its lease ran out # times in a row");
}
