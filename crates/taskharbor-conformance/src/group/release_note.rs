//! The notes of released jobs.

use taskharbor_core::{
    State, Text,
    admin::Action,
    driver::{LeaseMark, Transition},
    job::{ReleaseNote, ReleaseReason},
};

use super::lease::mark;
use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{T0, ack, ack_with, at, child, fail, job, release, requeue, retry},
};

group! {
    release_note {
        a_note_stays_with_the_job_through_grants ["SET-12"]
        a_reclaim_drops_the_note ["SET-13"]
        a_release_without_a_note_leaves_the_one_there_is ["SET-12"]
        the_next_note_takes_the_place_of_the_last ["SET-12"]
        a_retry_drops_the_note ["SET-13"]
        a_terminal_job_has_no_note_and_gets_none_back ["SET-13"]
        the_longest_note_is_kept_whole ["SET-12" "JOB-4"]
        a_note_is_moved_with_its_job ["SET-12" "MOV-2"]
    }
    flows {
        a_member_has_no_note_once_it_is_done ["SET-13"]
    }
}

fn no_handler() -> ReleaseNote {
    let text = "worker w: no handler: none at all\nit's \"so\" since 12";
    ReleaseNote::new(ReleaseReason::NoHandler, text).unfit_since(Some(at(3)))
}

fn noted(note: ReleaseNote) -> Transition {
    Transition::Release { run_at: Some(at(5)), started: false, note: Some(note) }
}

/// The job `a` is released with a note, due at `at(5)`.
async fn released(t: &DriverUnderTest) {
    t.put(job("a"), T0).await;
    t.run("a", noted(no_handler()), T0).await;
}

async fn note(t: &DriverUnderTest, text: &str) -> Option<ReleaseNote> {
    t.record(text, at(200)).await.job.released
}

async fn a_note_stays_with_the_job_through_grants(t: DriverUnderTest) {
    released(&t).await;
    assert_eq!(note(&t, "a").await, Some(no_handler()));
    assert_eq!(t.take_the("a", at(5)).await.job.released, Some(no_handler()));
    assert_eq!(note(&t, "a").await, Some(no_handler()));
}

async fn a_reclaim_drops_the_note(t: DriverUnderTest) {
    for (text, as_this) in [
        ("unmarked", None),
        ("started", Some(LeaseMark::Started)),
        ("leaving", Some(LeaseMark::Leaving)),
    ] {
        t.put(job(text), T0).await;
        t.run(text, noted(no_handler()), T0).await;
        let leased = t.take_the(text, at(5)).await;
        if let Some(as_this) = as_this {
            mark(&t, &leased, as_this, at(6)).await;
        }
        let reclaimed = t.take_the(text, at(100)).await;
        assert_eq!(reclaimed.job.released, None, "{text}");
        assert_eq!(note(&t, text).await, None, "{text}");
        t.apply(&reclaimed, ack(), at(100)).await;
    }
}

async fn a_release_without_a_note_leaves_the_one_there_is(t: DriverUnderTest) {
    released(&t).await;
    t.run("a", release(None), at(5)).await;
    assert_eq!(note(&t, "a").await, Some(no_handler()));
    t.run("a", release(Some(at(9))), at(6)).await;
    assert_eq!(t.take_the("a", at(9)).await.job.released, Some(no_handler()));
    t.put(job("b"), T0).await;
    t.run("b", release(None), at(9)).await;
    assert_eq!(note(&t, "b").await, None);
}

async fn the_next_note_takes_the_place_of_the_last(t: DriverUnderTest) {
    released(&t).await;
    let snoozed = ReleaseNote::new(ReleaseReason::Snoozed, "");
    t.run("a", noted(snoozed.clone()), at(5)).await;
    assert_eq!(note(&t, "a").await, Some(snoozed));
}

async fn a_retry_drops_the_note(t: DriverUnderTest) {
    released(&t).await;
    t.run("a", retry(None, at(5)), at(5)).await;
    assert_eq!(note(&t, "a").await, None);
    assert_eq!(t.take_the("a", at(6)).await.job.released, None);
}

async fn a_terminal_job_has_no_note_and_gets_none_back(t: DriverUnderTest) {
    let ends = [("done", ack()), ("output", ack_with("it")), ("dead", fail(at(5)))];
    for (text, end) in ends {
        t.put(job(text), T0).await;
        t.run(text, noted(no_handler()), T0).await;
        t.run(text, end, at(5)).await;
        assert_eq!(note(&t, text).await, None, "{text}");
    }
    released(&t).await;
    t.act("a", Action::Cancel, at(5)).await;
    assert_eq!(note(&t, "a").await, None);
    for text in ["dead", "a"] {
        t.act(text, requeue(), at(6)).await;
        assert_eq!(note(&t, text).await, None, "{text}");
    }
}

async fn the_longest_note_is_kept_whole(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let long = ReleaseNote::new(ReleaseReason::Unreadable, "é".repeat(Text::MAX_BYTES / 2));
    let long = long.unfit_since(Some(T0));
    t.run("a", noted(long.clone()), T0).await;
    assert_eq!(note(&t, "a").await, Some(long));
}

async fn a_note_is_moved_with_its_job(t: DriverUnderTest) {
    released(&t).await;
    let units = t.export(1_000).await;
    let other = t.another().await;
    for answer in other.import(units.clone()).await {
        answer.expect("imported");
    }
    assert_eq!(other.export(1_000).await, units);
    assert_eq!(other.take_the("a", at(5)).await.job.released, Some(no_handler()));
}

async fn a_member_has_no_note_once_it_is_done(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"])], T0).await;
    t.run("a", noted(no_handler()), T0).await;
    t.run("a", ack(), at(5)).await;
    assert_eq!((note(&t, "a").await, t.state("b", at(5)).await), (None, State::Ready));
}
