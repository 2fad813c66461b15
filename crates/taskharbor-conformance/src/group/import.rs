//! Units that are refused or stored already, and imported jobs that go on in their new store.

use std::time::Duration;

use taskharbor_core::{
    Admin, Blob, State,
    admin::Action,
    driver::Settled,
    export::{EdgeState, ExportUnit, ExportedJob, ExportedKey, ImportRefused, Imported},
    job::KeyHold,
    life::{Finish, Life, Stage},
};

use super::export::{assert_same, moved, single_jobs};
use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{
        LEASE, T0, ack, ack_with, at, done_with, fail, id, job, job_in, key, queue, release, retry,
    },
};

use Imported::{Existing, Stored};

group! {
    import {
        a_unit_that_is_stored_already_is_left_as_it_is ["MOV-4"]
        an_interrupted_import_can_be_repeated ["MOV-4"]
        a_unit_whose_key_another_job_holds_is_refused ["MOV-5"]
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
