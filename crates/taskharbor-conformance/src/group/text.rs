//! Free text: errors, reasons and progress are repaired, never refused.

use taskharbor_core::{
    State, Text,
    admin::Filter,
    driver::{OutputEntry, Transition},
    job::FailedAttempt,
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{LEASE, T0, child, extension, job, list},
};

group! {
    text {
        any_error_can_be_retried ["JOB-4"]
        any_progress_can_be_reported ["JOB-4"]
        ten_long_errors_are_kept_whole ["JOB-4" "JOB-7"]
    }
    flows {
        any_error_and_reason_can_be_failed_with ["JOB-4"]
    }
}

/// Text as it may come from anywhere, and as it is stored.
fn texts() -> Vec<(Text, String)> {
    let mebibytes = 5 * 1024 * 1024;
    let broken: Vec<u8> = b"caf\xe9 \xff\xfe".to_vec();
    let cut = |text: &str, count: usize| text.repeat(count);
    let same = |text: &str| (Text::new(text), text.to_owned());
    vec![
        same(""),
        same("\u{1b}[31mred\r\n\t\u{7f}"),
        same("'; DROP TABLE th_jobs; -- \\ \" $1 %s {}"),
        same(" 日本 👩‍👩‍👧 \u{202e}rtl e\u{301} "),
        (Text::new("\0"), "\u{fffd}".to_owned()),
        (Text::new("a\0b\0\0"), "a\u{fffd}b\u{fffd}\u{fffd}".to_owned()),
        (Text::from_bytes(&broken), "caf\u{fffd} \u{fffd}\u{fffd}".to_owned()),
        (Text::from_bytes(b"\xed\xa0\x80"), "\u{fffd}".repeat(3)),
        (Text::new("x".repeat(8 * 1024)), cut("x", 8 * 1024)),
        (Text::new("x".repeat(mebibytes)), cut("x", 8 * 1024)),
        (Text::new("é".repeat(mebibytes / 2)), cut("é", 4 * 1024)),
        (Text::new(format!("x{}", "é".repeat(5_000))), format!("x{}", cut("é", 4_095))),
        (Text::new("🦀".repeat(mebibytes / 4)), cut("🦀", 2 * 1024)),
        (Text::new("\0".repeat(mebibytes)), cut("\u{fffd}", 2_730)),
        (Text::from_bytes(&vec![0xff; mebibytes]), cut("\u{fffd}", 2_730)),
    ]
}

async fn any_error_can_be_retried(t: DriverUnderTest) {
    for (n, (error, stored)) in texts().into_iter().enumerate() {
        let text = n.to_string();
        t.put(job(&text), T0).await;
        let failure = FailedAttempt::new(1, error, T0);
        t.run(&text, Transition::Retry { failure, run_at: None }, T0).await;
        let record = t.record(&text, T0).await;
        assert_eq!(record.errors.len(), 1);
        assert_eq!(record.errors[0].error.as_str(), stored, "text {n}");
        let last = t.take_the(&text, T0).await.job.last_error;
        assert_eq!(last.expect("an error").as_str(), stored, "text {n}");
    }
    for (summary, (_, stored)) in t.list(Filter::all(), 1_000, T0).await.iter().zip(texts()) {
        assert_eq!(summary.last_error.as_ref().expect("an error").as_str(), stored);
    }
}

async fn any_error_and_reason_can_be_failed_with(t: DriverUnderTest) {
    for (n, (given, stored)) in texts().into_iter().enumerate() {
        let (parent, text) = (format!("{n} parent"), n.to_string());
        t.put_flow([job(&parent), child(&text, &[&parent])], T0).await;
        let (failure, reason) = (FailedAttempt::new(1, given.clone(), T0), given);
        t.run(&parent, Transition::Fail { failure, reason }, T0).await;
        let record = t.record(&parent, T0).await;
        assert_eq!(record.state, State::Dlq);
        assert_eq!(record.job.last_error.expect("an error").as_str(), stored, "text {n}");
        assert_eq!(record.reason.expect("a reason").as_str(), stored, "text {n}");
        let reason = Some(Text::new(stored));
        let failed = OutputEntry::Failed { state: State::Dlq, reason };
        assert_eq!(t.inputs(&text).await, [list(1), failed]);
    }
}

async fn any_progress_can_be_reported(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let mut leased = t.take_the("a", T0).await;
    for (n, (progress, stored)) in texts().into_iter().enumerate() {
        let item = extension(&leased).progress(progress);
        let answer = t.extend_all(vec![item], T0, LEASE).await.remove(0);
        leased.lease = answer.expect("not refused").lease;
        let progress = t.record("a", T0).await.progress;
        assert_eq!(progress.expect("progress").as_str(), stored, "text {n}");
    }
}

async fn ten_long_errors_are_kept_whole(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let error = |n: u32| format!("{n:02}{}", "é".repeat(4_095));
    for n in 1..=12 {
        let failure = FailedAttempt::new(n, error(n), T0);
        t.run("a", Transition::Retry { failure, run_at: None }, T0).await;
    }
    let record = t.record("a", T0).await;
    let stored: Vec<_> = record.errors.iter().map(|it| it.error.to_string()).collect();
    assert_eq!(stored, (3..=12).map(error).collect::<Vec<_>>());
    assert_eq!(stored[0].len(), Text::MAX_BYTES);
}
