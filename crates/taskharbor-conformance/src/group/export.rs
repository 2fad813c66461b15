//! Everything that is stored, out of one store and into another.

use std::time::Duration;

use taskharbor_core::{
    Admin, Blob, JobType, NewJob, State, Text, Timestamp,
    admin::{Action, Cursor, Requeue},
    driver::{Extension, Lease, LeaseMark, LeaseToken, Leased},
    error::InvalidRequest,
    export::{ExportUnit, ExportedJob, ExportedKey, Imported},
    job::{FailedAttempt, FailurePolicy, Headers, KeyHold},
    life::{ActiveLease, Finish, Life, Stage},
    name::Holder,
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{LEASE, T0, at, failure, id, invalid, job, job_in, key, queue, release},
};

use Imported::Stored;

group! {
    export {
        an_empty_store_exports_nothing ["MOV-1"]
        single_jobs_are_exported_and_imported_unchanged ["MOV-1" "MOV-2"]
        pages_of_every_size_are_together_the_whole ["MOV-1"]
        a_page_of_units_has_one_to_a_thousand ["MOV-1"]
        a_cursor_that_is_none_exports_nothing ["MOV-1" "ADM-13"]
        units_made_by_hand_are_stored_as_they_are ["MOV-2"]
        a_key_that_outlived_its_job_is_imported ["MOV-1" "MOV-2" "KEY-9"]
    }
    flows {}
}

/// A job with every field set.
pub(super) fn full(text: &str) -> NewJob {
    let headers = Headers::new().with("trace", "abc").and_then(|it| it.with("x", ""));
    let mut job = job(text)
        .priority(-7)
        .run_at(at(3))
        .timeout(Duration::from_micros(1_500_001))
        .max_attempts(9)
        .headers(headers.expect("valid headers"))
        .idempotency_key(key(&format!("key of {text}")))
        .on_failure(FailurePolicy::Cancel);
    job.job_type = JobType::new("mail:send").expect("a valid type");
    job.payload = Blob::from(&[0, 255, 10, 0]);
    job
}

/// Single jobs in every state and with every hold; the lease of the job `inflight`.
pub(super) async fn single_jobs(t: &DriverUnderTest) -> Leased {
    let keyed = |text: &str, hold| job_in(text, text).idempotency_key(key("k")).key_hold(hold);
    t.put(full("full"), T0).await;
    t.put(full("scheduled").run_at(at(500)).key_hold(KeyHold::UntilDone), T0).await;
    for (text, hold, state) in [
        ("done", KeyHold::UntilDone, State::Done),
        ("dlq", KeyHold::UntilTerminal, State::Dlq),
        ("cancelled", KeyHold::UntilPruned, State::Cancelled),
        ("for a time", KeyHold::For(Duration::from_secs(900)), State::Done),
        ("ready", KeyHold::UntilTerminal, State::Ready),
        ("removed", KeyHold::For(Duration::from_secs(900)), State::Cancelled),
    ] {
        t.bring(keyed(text, hold), state).await;
    }
    t.act("removed", Action::Purge, at(1)).await;
    t.put(job_in("retried", "retried"), T0).await;
    for attempts in 1..=12 {
        let leased = t.take_from("retried", at(u64::from(attempts))).await.expect("a grant");
        let retry = taskharbor_core::driver::Transition::Retry {
            failure: failure(attempts, at(u64::from(attempts))),
            run_at: (attempts == 12).then(|| at(700)),
        };
        t.apply(&leased, retry, at(u64::from(attempts))).await;
    }
    t.bring(job_in("requeued", "requeued").max_attempts(4), State::Dlq).await;
    t.act("requeued", Action::Requeue(Requeue::new().run_at(at(90))), at(2)).await;
    t.act("requeued", Action::SetPriority(3), at(2)).await;
    t.put(job_in("hung", "hung").run_at(at(1)), T0).await;
    t.take_from("hung", at(1)).await.expect("a grant");
    let again = t.take_from("hung", at(70)).await.expect("a grant");
    t.apply(&again, release(None), at(71)).await;
    t.put(job_in("inflight", "inflight"), T0).await;
    let leased = t.take_from("inflight", at(80)).await.expect("a grant");
    t.act("inflight", Action::Cancel, at(80)).await;
    let news = Extension::new(id("inflight"), leased.lease.token).progress(Text::new("half"));
    let news = news.mark(LeaseMark::Started);
    let extended = t.extend_all(vec![news], at(81), LEASE).await.remove(0).expect("not refused");
    Leased::new(leased.job, extended.lease)
}

/// The ids of the first jobs of units, or of the jobs of their keys.
pub(super) fn firsts(units: &[ExportUnit]) -> Vec<String> {
    let first = |unit: &ExportUnit| match (&unit.jobs.first(), &unit.key) {
        (Some(job), _) => job.new.id.to_string(),
        (None, Some(key)) => format!("key of {}", key.job),
        (None, None) => panic!("an empty unit"),
    };
    units.iter().map(first).collect()
}

/// Imports everything into an empty store, which then has the same; that store.
pub(super) async fn moved(t: &DriverUnderTest) -> DriverUnderTest {
    let units = t.export(1_000).await;
    let other = t.another().await;
    let answers = other.import(units.clone()).await;
    assert_eq!(answers, vec![Ok(Stored); units.len()]);
    assert_same(&other.export(1_000).await, &units);
    assert_eq!(other.driver.check().await.expect("check"), []);
    other
}

/// The same units; says which differ.
pub(super) fn assert_same(units: &[ExportUnit], expected: &[ExportUnit]) {
    for (unit, expected) in units.iter().zip(expected) {
        assert_eq!(unit, expected);
    }
    assert_eq!(firsts(units), firsts(expected));
}

async fn an_empty_store_exports_nothing(t: DriverUnderTest) {
    let page = t.driver.export(None, 10).await.expect("export");
    assert_eq!((page.items, page.next), (Vec::new(), None));
}

async fn single_jobs_are_exported_and_imported_unchanged(t: DriverUnderTest) {
    single_jobs(&t).await;
    let units = t.export(1_000).await;
    let expected = [
        "full",
        "scheduled",
        "done",
        "dlq",
        "cancelled",
        "for a time",
        "ready",
        "retried",
        "requeued",
        "hung",
        "inflight",
        "key of removed",
    ];
    assert_eq!(firsts(&units), expected);
    assert!(units.iter().all(|unit| unit.flow.is_none() && unit.jobs.len() < 2));
    let job = |at: usize| &units[at].jobs[0];
    assert_eq!(job(0).new, full("full"));
    assert_eq!((job(0).created_at, job(0).holds_key), (T0, true));
    assert!(!job(2).holds_key && !job(3).holds_key && job(4).holds_key);
    assert_eq!(job(7).life.errors.len(), 10);
    assert_eq!((job(9).life.expirations, job(9).life.run_at), (1, None));
    moved(&t).await;
}

async fn pages_of_every_size_are_together_the_whole(t: DriverUnderTest) {
    single_jobs(&t).await;
    let whole = t.export(1_000).await;
    for limit in [1, 2, 5, 11, 12] {
        assert_same(&t.export(limit).await, &whole);
    }
    // What is removed between two pages hides no other.
    let page = t.driver.export(None, 3).await.expect("export");
    t.act("dlq", Action::Purge, at(100)).await;
    t.act("done", Action::Purge, at(100)).await;
    let rest = t.driver.export(page.next, 1_000).await.expect("export");
    let mut expected = firsts(&whole)[3..].to_vec();
    expected.retain(|text| text != "dlq");
    assert_eq!(firsts(&rest.items), expected);
}

async fn a_page_of_units_has_one_to_a_thousand(t: DriverUnderTest) {
    for limit in [0, 1_001] {
        let refused = invalid(t.driver.export(None, limit).await);
        assert!(matches!(refused, InvalidRequest::OutOfRange { value, .. } if value == limit));
    }
}

async fn a_cursor_that_is_none_exports_nothing(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    for text in ["", "nonsense", "\u{1F980}"] {
        let page = t.driver.export(Some(Cursor::new(text)), 1).await;
        assert_eq!(invalid(page), InvalidRequest::Cursor, "{text:?}");
    }
}

const END: Timestamp = Timestamp::MAX;

/// A lease whose token has all kinds of bits.
pub(super) fn lease(expires_at: Timestamp) -> Lease {
    Lease::new(LeaseToken::from_bits(0xfedc_ba98_7654_3210_0011_2233_4455_6677), expires_at)
}

/// A life with every field that means something in its stage set to other than its default.
pub(super) fn used(stage: Stage) -> Life {
    let mut life = Life::in_stage(stage, at(7));
    life.run_at = Some(at(6));
    life.priority = i16::MIN;
    life.attempts = 2;
    life.attempt_limit = Some(i32::MAX.unsigned_abs());
    life.errors = vec![
        FailedAttempt::new(1, "first \u{1F980}", T0),
        FailedAttempt::new(2, "", Timestamp::MAX),
    ];
    life.deliveries = 1_000_000;
    life.started_at = Some(Timestamp::EPOCH);
    life.expirations = 3;
    life.epoch = 2;
    life.progress = Some(Text::new("half"));
    match life.finish().map(|finish| finish.state) {
        Some(State::Done) => life.output = Some(Blob::from(&[0, 1, 255])),
        Some(_) => life.reason = Some(Text::new("a reason")),
        None => {}
    }
    life
}

pub(super) fn holder() -> Holder {
    Holder::new("holder \u{1F980}").expect("a valid holder")
}

/// Every stage that a single job can be in.
fn stages() -> Vec<Stage> {
    let finished = |state, by| Stage::Finished(Finish::new(state, at(8), by));
    vec![
        Stage::Waiting,
        Stage::Inflight(ActiveLease::new(lease(at(60)), holder(), false)),
        Stage::Inflight(
            ActiveLease::new(lease(at(60)), holder(), false).marked(Some(LeaseMark::Leaving)),
        ),
        Stage::Inflight(ActiveLease::new(lease(END), holder(), true)),
        finished(State::Done, Some(lease(at(60)))),
        finished(State::Done, None),
        finished(State::Dlq, Some(lease(at(60)))),
        finished(State::Cancelled, Some(lease(at(9)))),
        finished(State::Cancelled, None),
    ]
}

/// Units of single jobs and keys, with every field set in every stage.
pub(super) fn made_by_hand() -> Vec<ExportUnit> {
    let mut units = Vec::new();
    let holds = [
        KeyHold::UntilPruned,
        KeyHold::UntilDone,
        KeyHold::UntilTerminal,
        KeyHold::For(Duration::from_micros(1)),
    ];
    for (n, stage) in stages().into_iter().enumerate() {
        let text = format!("made {n}");
        let (hold, life) = (holds[n % 4], used(stage.clone()));
        let new = full(&text).key_hold(hold);
        let holds_key = !hold.is_freed_by(life.state(at(9)));
        units.push(ExportUnit::job(ExportedJob::new(new, at(5), life, vec![], holds_key)));
        let new = job(&format!("bare {n}"));
        let bare = Life::in_stage(stage, at(7));
        units.push(ExportUnit::job(ExportedJob::new(new, T0, bare, vec![], false)));
    }
    let key = ExportedKey::new(queue("q"), key("outlived"), id("gone"), at(1_000));
    units.push(ExportUnit::key(key));
    units
}

async fn units_made_by_hand_are_stored_as_they_are(t: DriverUnderTest) {
    let units = made_by_hand();
    assert_eq!(t.import(units.clone()).await, vec![Ok(Stored); units.len()]);
    assert_same(&t.export(1_000).await, &units);
    assert_same(&t.export(2).await, &units);
    moved(&t).await;
}

async fn a_key_that_outlived_its_job_is_imported(t: DriverUnderTest) {
    let keyed = |text| {
        let hold = KeyHold::For(Duration::from_secs(100));
        job(text).idempotency_key(key("k")).key_hold(hold)
    };
    t.bring(keyed("a"), State::Cancelled).await;
    t.act("a", Action::Purge, at(1)).await;
    let expected = ExportedKey::new(queue("q"), key("k"), id("a"), at(100));
    assert_eq!(t.export(10).await, [ExportUnit::key(expected)]);
    let other = moved(&t).await;
    let existing = taskharbor_core::driver::Enqueued::Existing(id("a"));
    assert_eq!(other.put(keyed("b"), at(99)).await, existing);
    assert!(other.put(keyed("b"), at(100)).await.is_new());
}
