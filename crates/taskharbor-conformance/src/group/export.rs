//! Everything that is stored, out of one store and into another.

use std::time::Duration;

use taskharbor_core::{
    Admin, Blob, JobType, NewJob, State, Text, Timestamp,
    admin::{Action, Cursor, Requeue},
    driver::{Extension, Lease, LeaseMark, LeaseToken, Leased, Settled},
    error::InvalidRequest,
    export::{EdgeState, ExportUnit, ExportedJob, ExportedKey, ImportRefused, Imported},
    job::{FailedAttempt, FailurePolicy, Headers, KeyHold},
    life::{ActiveLease, Finish, Life, Stage},
    name::Holder,
};

use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{
        LEASE, T0, ack, ack_with, at, done_with, fail, failure, id, invalid, job, job_in, key,
        queue, release, retry,
    },
};

use Imported::{Existing, Stored};

group! {
    export {
        an_empty_store_exports_nothing ["MOV-1"]
        single_jobs_are_exported_and_imported_unchanged ["MOV-1" "MOV-2"]
        pages_of_every_size_are_together_the_whole ["MOV-1"]
        a_page_of_units_has_one_to_a_thousand ["MOV-1"]
        a_cursor_that_is_none_exports_nothing ["MOV-1" "ADM-13"]
        units_made_by_hand_are_stored_as_they_are ["MOV-2"]
        a_unit_that_is_stored_already_is_left_as_it_is ["MOV-4"]
        an_interrupted_import_can_be_repeated ["MOV-4"]
        a_unit_whose_key_another_job_holds_is_refused ["MOV-5"]
        a_key_that_outlived_its_job_is_imported ["MOV-1" "MOV-2" "KEY-9"]
        units_that_contradict_themselves_are_refused ["MOV-6" "MOV-3"]
        an_imported_lease_is_settled_with_its_old_token ["MOV-7" "LEA-1"]
        an_imported_lease_that_ended_is_reclaimed ["MOV-7" "LEA-4"]
        an_imported_terminal_job_recognises_its_token ["MOV-7" "SET-6" "PRU-2"]
        imported_jobs_are_granted_in_their_order ["MOV-7" "ORD-1"]
        an_imported_key_is_held_and_freed ["MOV-7" "KEY-7" "KEY-4"]
        a_call_without_units_has_no_answers ["MOV-3"]
        racing_imports_of_one_unit_store_it_once ["MOV-3" "MOV-4"]
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

async fn a_unit_that_is_stored_already_is_left_as_it_is(t: DriverUnderTest) {
    single_jobs(&t).await;
    let units = t.export(1_000).await;
    let mut changed = units.clone();
    for job in changed.iter_mut().flat_map(|unit| &mut unit.jobs) {
        job.new.payload = Blob::from(b"changed");
        job.life.deliveries += 1;
    }
    for again in [units.clone(), changed] {
        assert_eq!(t.import(again).await, vec![Ok(Existing); units.len()]);
    }
    assert_same(&t.export(1_000).await, &units);
}

async fn an_interrupted_import_can_be_repeated(t: DriverUnderTest) {
    single_jobs(&t).await;
    let units = t.export(1_000).await;
    let other = t.another().await;
    other.import(units[..5].to_vec()).await;
    let answers = other.import(units.clone()).await;
    let mut expected = vec![Ok(Existing); 5];
    expected.resize(units.len(), Ok(Stored));
    assert_eq!(answers, expected);
    assert_same(&other.export(1_000).await, &units);
    // A unit twice in one call is stored once.
    let third = t.another().await;
    let answers = third.import(vec![units[0].clone(), units[0].clone()]).await;
    assert_eq!(answers, [Ok(Stored), Ok(Existing)]);
}

async fn a_unit_whose_key_another_job_holds_is_refused(t: DriverUnderTest) {
    let keyed = |text, hold| job(text).idempotency_key(key("k")).key_hold(hold);
    let other = t.another().await;
    other.put(keyed("a", KeyHold::UntilTerminal), T0).await;
    let holding = other.export(10).await;
    other.act("a", Action::Cancel, T0).await;
    let not_holding = other.export(10).await;
    let outlived = ExportedKey::new(queue("q"), key("k"), id("gone"), at(100));
    t.put(keyed("b", KeyHold::UntilPruned), T0).await;
    let stored = t.export(10).await;
    let units = vec![holding[0].clone(), ExportUnit::key(outlived.clone())];
    let refused = [Err(ImportRefused::KeyHeld(id("a"))), Err(ImportRefused::KeyHeld(id("gone")))];
    assert_eq!(t.import(units).await, refused);
    assert_same(&t.export(10).await, &stored);
    assert_eq!(t.import(not_holding).await, [Ok(Stored)]);
    // A key that outlived its job is held as well.
    let third = t.another().await;
    assert_eq!(third.import(vec![ExportUnit::key(outlived)]).await, [Ok(Stored)]);
    assert_eq!(third.import(holding).await, [Err(ImportRefused::KeyHeld(id("a")))]);
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

/// Each of these units is refused as it says; the ones beside it are stored.
pub(super) async fn assert_damaged(t: &DriverUnderTest, damaged: Vec<(&str, ExportUnit)>) {
    let limits = taskharbor_core::Driver::limits(&t.driver);
    for (n, (what, unit)) in damaged.into_iter().enumerate() {
        let sound = |text: &str| {
            let job = job(&format!("{text} {n}"));
            let life = Life::new(&job, 0, None, T0);
            ExportUnit::job(ExportedJob::new(job, T0, life, vec![], false))
        };
        let damage = unit.check(&limits).expect_err(what);
        let units = vec![sound("before"), unit, sound("after")];
        let answers = t.import(units.clone()).await;
        let expected = [Ok(Stored), Err(ImportRefused::Damaged(damage)), Ok(Stored)];
        assert_eq!(answers, expected, "{what}");
        for text in ["before", "after"] {
            t.act(&format!("{text} {n}"), Action::Cancel, T0).await;
            t.act(&format!("{text} {n}"), Action::Purge, T0).await;
        }
    }
    assert_eq!(t.export(10).await, []);
}

async fn units_that_contradict_themselves_are_refused(t: DriverUnderTest) {
    let other = t.another().await;
    other.put_all([job("a"), job("b")], T0).await;
    let units = other.export(10).await;
    let sound = &units[0];
    let with = |change: &dyn Fn(&mut ExportedJob)| {
        let mut unit = sound.clone();
        change(&mut unit.jobs[0]);
        unit
    };
    let mut two = sound.clone();
    two.jobs.extend(units[1].jobs.clone());
    let mut nothing = sound.clone();
    nothing.jobs.clear();
    let mut both = sound.clone();
    both.key = Some(ExportedKey::new(queue("q"), key("k"), id("x"), T0));
    let damaged = vec![
        ("nothing at all", nothing),
        ("two jobs without a flow", two),
        ("a job and a key", both),
        ("a key held that it does not have", with(&|job| job.holds_key = true)),
        ("a flow that is not there", with(&|job| job.life.flow = Some(id("f")))),
        ("an edge without a parent", with(&|job| job.edges.push(EdgeState::Closed))),
        ("a parent without an edge", with(&|job| job.new.parents.push(id("p")))),
        ("it waits for nothing", with(&|job| job.life.stage = Stage::Blocked)),
        ("a count without open edges", with(&|job| job.life.pending = 1)),
        (
            "an end in a state that is not terminal",
            with(&|job| job.life.stage = Stage::Finished(Finish::new(State::Ready, T0, None))),
        ),
        ("no attempts", with(&|job| job.new.max_attempts = Some(0))),
        ("a key for no time", with(&|job| job.new.key_hold = KeyHold::For(Duration::ZERO))),
        (
            "an open edge to a job outside",
            with(&|job| {
                job.new.parents.push(id("p"));
                job.edges.push(EdgeState::Open);
                (job.life.stage, job.life.pending) = (Stage::Blocked, 1);
            }),
        ),
        (
            "a spent edge to a job that is done",
            with(&|job| {
                job.new.parents.push(id("p"));
                job.edges.push(EdgeState::Spent { state: State::Done, reason: None });
            }),
        ),
    ];
    assert_damaged(&t, damaged).await;
}

async fn an_imported_lease_is_settled_with_its_old_token(t: DriverUnderTest) {
    t.put_all(["a", "b"].map(job), T0).await;
    let leased = t.take_many(2, T0).await;
    let other = moved(&t).await;
    let kept = other.keep(&leased[1], at(59), LEASE).await;
    other.apply(&leased[0], ack_with("x"), at(59)).await;
    assert_eq!(other.output("a").await, [done_with("x")]);
    other.apply(&kept, retry(None, at(100)), at(100)).await;
    assert_eq!(other.state("b", at(100)).await, State::Ready);
    assert_eq!(t.state("a", at(59)).await, State::Inflight, "the first store is as it was");
}

async fn an_imported_lease_that_ended_is_reclaimed(t: DriverUnderTest) {
    t.put_all(["a", "b"].map(job), T0).await;
    let leased = t.take_many(2, T0).await;
    t.act("b", Action::Cancel, T0).await;
    let other = moved(&t).await;
    assert_eq!(other.take(at(59)).await, None);
    let again = other.take_many(2, at(60)).await;
    assert_eq!(again.len(), 1);
    assert_eq!((again[0].job.id.as_str(), again[0].job.expirations), ("a", 1));
    assert_eq!(other.state("b", at(60)).await, State::Cancelled);
    let late = other.settle(&leased[0], ack(), at(60)).await;
    assert_eq!(late, Err(taskharbor_core::error::Refusal::LeaseMismatch));
}

async fn an_imported_terminal_job_recognises_its_token(t: DriverUnderTest) {
    let done = t.bring(job("a"), State::Done).await.expect("a lease");
    let dlq = t.bring(job("b"), State::Dlq).await.expect("a lease");
    let other = moved(&t).await;
    assert_eq!(other.settle(&done, ack(), at(1)).await, Ok(Settled::AlreadyTerminal));
    assert_eq!(other.settle(&dlq, fail(at(1)), at(1)).await, Ok(Settled::AlreadyTerminal));
    let all = |now| taskharbor_core::admin::Prune::new(10, now).done_before(now).dlq_before(now);
    assert_eq!(other.driver.prune(all(at(59))).await.expect("prune"), 0);
    assert_eq!(other.driver.prune(all(at(60))).await.expect("prune"), 2);
}

async fn imported_jobs_are_granted_in_their_order(t: DriverUnderTest) {
    t.put_all(["c", "a", "b"].map(job), T0).await;
    t.put_all([job("high").priority(1), job("later").run_at(at(5))], T0).await;
    t.put(job("released"), T0).await;
    t.act("released", Action::SetPriority(2), T0).await;
    t.run("released", release(None), at(1)).await;
    t.act("released", Action::SetPriority(0), at(1)).await;
    let other = moved(&t).await;
    let order = ["high", "c", "a", "b", "released", "later"];
    assert_eq!(other.take_order(at(9)).await, order);
    assert_eq!(t.take_order(at(9)).await, order);
    assert!(
        other.put(job("c"), at(9)).await == taskharbor_core::driver::Enqueued::Existing(id("c"))
    );
}

async fn an_imported_key_is_held_and_freed(t: DriverUnderTest) {
    let keyed =
        |text: &str, name: &str, hold| job_in(name, text).idempotency_key(key("k")).key_hold(hold);
    let holds =
        [("p", KeyHold::UntilPruned), ("d", KeyHold::UntilDone), ("t", KeyHold::UntilTerminal)];
    for (name, hold) in holds {
        t.put(keyed(name, name, hold), T0).await;
    }
    let other = moved(&t).await;
    for (name, hold) in holds {
        let again = keyed("again", name, hold);
        assert!(!other.put(again, T0).await.is_new(), "{name}");
        let leased = other.take_from(name, T0).await.expect("a grant");
        other.apply(&leased, ack(), T0).await;
        let next = format!("next {name}");
        let is_new = other.put(keyed(&next, name, hold), T0).await.is_new();
        assert_eq!(is_new, hold != KeyHold::UntilPruned, "{name}");
    }
}

async fn a_call_without_units_has_no_answers(t: DriverUnderTest) {
    assert_eq!(t.import(Vec::new()).await, []);
}

async fn racing_imports_of_one_unit_store_it_once(t: DriverUnderTest) {
    t.put_all((0..5).map(|n| job(&n.to_string())), T0).await;
    let units = t.export(10).await;
    let other = t.another().await;
    let answers = at_once((0..4).map(|_| {
        let (other, units) = (other.clone(), units.clone());
        async move { other.import(units).await }
    }))
    .await;
    for unit in 0..units.len() {
        let of_unit: Vec<_> = answers.iter().map(|answers| &answers[unit]).collect();
        let stored = of_unit.iter().filter(|it| ***it == Ok(Stored)).count();
        let existing = of_unit.iter().filter(|it| ***it == Ok(Existing)).count();
        assert_eq!((stored, existing), (1, 3), "{of_unit:?}");
    }
    assert_eq!(other.export(10).await.len(), 5);
}
