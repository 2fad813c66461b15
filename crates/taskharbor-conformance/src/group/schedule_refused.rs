//! Firings that are refused, that race and that wait for a key.

use taskharbor_core::{
    Driver,
    admin::{Change, SlotTotals},
    driver::{Fire, FireSchedule, SlotJobs},
    error::{FireRefused, Rejected},
    job::JobSet,
};

use super::schedule::{
    change, due, due_names, existing, fire, firing, inserted, keyed, named, put, record, slot,
    stored,
};
use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{T0, ack, at, id, invalid, job},
};

group! {
    schedule_refused {
        firing_again_with_the_same_revision_changes_nothing ["SCH-3"]
        firing_with_a_revision_of_the_past_or_future_changes_nothing ["SCH-3"]
        firing_an_unknown_schedule_is_refused ["SCH-3"]
        a_rejected_set_leaves_its_schedule_as_it_was ["SCH-4"]
        a_refused_item_does_not_disturb_the_others ["SCH-4" "SCH-3"]
        of_racing_firings_of_a_slot_one_is_applied ["SCH-5"]
        racing_firings_of_many_slots_fire_each_once ["SCH-5" "SCH-14"]
        a_firing_that_waits_for_the_key_waits ["SCH-15"]
        a_job_that_is_stored_already_waits_for_no_key ["SCH-15"]
        a_firing_that_breaks_a_rule_fails_as_a_call ["SCH-17"]
    }
    flows {}
}

async fn firing_again_with_the_same_revision_changes_nothing(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    let item = firing(&t, "s", Some(at(20))).await.slots([slot(at(10), job("s@10"))]);
    fire(&t, item.clone(), at(10)).await.expect("fired");
    let (fired, jobs) = (stored(&t, "s").await, t.snapshot(at(10)).await);
    // The reply was lost, and the caller asks again; another caller makes other jobs of the slot.
    let mut other = item.clone();
    other.slots = vec![slot(at(10), job("another"))];
    for item in [item, other] {
        assert_eq!(fire(&t, item, at(11)).await, Err(FireRefused::Changed));
    }
    assert_eq!((stored(&t, "s").await, t.snapshot(at(10)).await), (fired, jobs));
}

async fn firing_with_a_revision_of_the_past_or_future_changes_nothing(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    let right = stored(&t, "s").await;
    for revision in [0, right.revision - 1, right.revision + 1, i64::MAX as u64, u64::MAX] {
        let slots = [slot(at(10), job("s@10"))];
        let item = FireSchedule::new(named("s"), revision, None).slots(slots);
        let refused = Err(FireRefused::Changed);
        if revision != right.revision {
            assert_eq!(fire(&t, item, at(10)).await, refused, "{revision}");
        }
    }
    assert_eq!(stored(&t, "s").await, right);
    assert_eq!(t.find("s@10", at(10)).await, None);
}

async fn firing_an_unknown_schedule_is_refused(t: DriverUnderTest) {
    let item = FireSchedule::new(named("s"), 1, None).slots([slot(at(10), job("s@10"))]);
    assert_eq!(fire(&t, item, at(10)).await, Err(FireRefused::NotFound));
    assert_eq!(t.find("s@10", at(10)).await, None);
    assert_eq!(record(&t, "s").await, None);
}

async fn a_rejected_set_leaves_its_schedule_as_it_was(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    let before = stored(&t, "s").await;
    let slots = [slot(at(10), job("s@10")), slot(at(20), job("s@20").max_attempts(0))];
    let item = firing(&t, "s", Some(at(30))).await.slots(slots).missed(3);
    let rejected = Rejected::MaxAttemptsOutOfRange { job: id("s@20") };
    assert_eq!(fire(&t, item, at(25)).await, Err(FireRefused::Rejected(rejected)));
    assert_eq!(stored(&t, "s").await, before);
    assert_eq!(t.take_order(at(25)).await, [""; 0]);
    assert_eq!(due_names(&t, at(25)).await, ["s"]);
}

async fn a_refused_item_does_not_disturb_the_others(t: DriverUnderTest) {
    for name in ["a", "b", "c", "d"] {
        put(&t, name, "daily", Some(at(10))).await;
    }
    change(&t, Change::PauseSchedule(named("d")), T0).await.expect("paused");
    let mut items = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let slots = [slot(at(10), job(&format!("{name}@10")))];
        items.push(firing(&t, name, Some(at(20))).await.slots(slots));
    }
    items[1].revision += 1_000;
    items[2].slots[0].set.jobs[0].max_attempts = Some(0);
    items.insert(0, FireSchedule::new(named("x"), 1, None));
    items.push(firing(&t, "a", None).await);
    items.last_mut().expect("pushed").name = named("y");
    let answers = t.driver.fire(Fire::new(items, at(10))).await.expect("fire");
    let rejected = Rejected::MaxAttemptsOutOfRange { job: id("c@10") };
    let expected = [
        Err(FireRefused::NotFound),
        Ok(vec![inserted("a@10")]),
        Err(FireRefused::Changed),
        Err(FireRefused::Rejected(rejected)),
        Err(FireRefused::Paused),
        Err(FireRefused::NotFound),
    ];
    assert_eq!(answers, expected);
    assert_eq!(t.take_order(at(10)).await, ["a@10"]);
    assert_eq!(due_names(&t, at(10)).await, ["b", "c"]);
}

async fn of_racing_firings_of_a_slot_one_is_applied(t: DriverUnderTest) {
    for round in 0..20_u64 {
        let name = format!("s{round}");
        put(&t, &name, "daily", Some(at(10))).await;
        let item = firing(&t, &name, Some(at(20))).await;
        let racing = (0..8).map(|n| {
            let slots = [slot(at(10), job(&format!("{name}@10 by {n}")))];
            let (t, item) = (t.clone(), item.clone().slots(slots));
            async move { fire(&t, item, at(10)).await }
        });
        let answers = at_once(racing).await;
        let applied = answers.iter().filter(|answer| answer.is_ok()).count();
        assert_eq!(applied, 1, "{answers:?}");
        let refused = answers.iter().filter_map(|answer| answer.as_ref().err());
        assert!(refused.into_iter().all(|why| *why == FireRefused::Changed), "{answers:?}");
        assert_eq!(t.take_order(at(10)).await.len(), 1);
        assert_eq!(stored(&t, &name).await.totals, SlotTotals::new(1, 0, 0));
    }
}

async fn racing_firings_of_many_slots_fire_each_once(t: DriverUnderTest) {
    const SLOTS: u64 = 40;
    put(&t, "s", "every second", Some(at(1))).await;
    let racing = (0..6).map(|worker| {
        let t = t.clone();
        async move {
            loop {
                let due = due(&t, 10, at(SLOTS)).await;
                let Some(record) = due.schedules.first() else { return };
                let slot_at = record.next_slot.expect("it is due");
                let next = slot_at.saturating_add(std::time::Duration::from_secs(1));
                let text = format!("{} by {worker}", slot_at.as_micros());
                let item = FireSchedule::new(named("s"), record.revision, Some(next));
                let _ = fire(&t, item.slots([slot(slot_at, job(&text))]), at(SLOTS)).await;
            }
        }
    });
    at_once(racing).await;
    let fired = stored(&t, "s").await;
    assert_eq!(fired.totals, SlotTotals::new(SLOTS, 0, 0));
    let mut slots: Vec<String> = t.take_order(at(SLOTS)).await;
    slots.iter_mut().for_each(|text| *text = text.split(' ').next().unwrap_or("").to_owned());
    let expected: Vec<_> = (1..=SLOTS).map(|n| at(n).as_micros().to_string()).collect();
    assert_eq!(slots, expected);
}

async fn a_firing_that_waits_for_the_key_waits(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    let item = firing(&t, "s", Some(at(20))).await.slots([slot(at(10), keyed("s@10"))]);
    let first = fire(&t, item.waits_for_key(), at(10)).await;
    assert_eq!(first, Ok(vec![inserted("s@10")]));
    let waiting = stored(&t, "s").await;
    let item = firing(&t, "s", Some(at(30))).await.slots([slot(at(20), keyed("s@20"))]);
    let item = item.waits_for_key();
    let held = Err(FireRefused::KeyHeld(id("s@10")));
    assert_eq!(fire(&t, item.clone(), at(20)).await, held);
    let leased = t.take_the("s@10", at(20)).await;
    assert_eq!(fire(&t, item.clone(), at(21)).await, held);
    assert_eq!(stored(&t, "s").await, waiting);
    t.apply(&leased, ack(), at(22)).await;
    assert_eq!(fire(&t, item, at(23)).await, Ok(vec![inserted("s@20")]));
    assert_eq!(stored(&t, "s").await.totals, SlotTotals::new(2, 0, 0));
}

async fn a_job_that_is_stored_already_waits_for_no_key(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    t.put(keyed("s@10"), T0).await;
    let item = firing(&t, "s", Some(at(20))).await.slots([slot(at(10), keyed("s@10"))]);
    let answer = fire(&t, item.waits_for_key(), at(10)).await;
    assert_eq!(answer, Ok(vec![existing("s@10")]));
    assert_eq!(stored(&t, "s").await.next_slot, Some(at(20)));
}

async fn a_firing_that_breaks_a_rule_fails_as_a_call(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    let right = firing(&t, "s", Some(at(20))).await;
    let with = |slots: Vec<SlotJobs>| right.clone().slots(slots);
    let two = || vec![slot(at(10), job("a")), slot(at(20), job("b"))];
    for (items, rule) in [
        (vec![right.clone(), right.clone()], "twice"),
        (vec![with(vec![slot(at(10), job("a")), slot(at(20), job("a"))])], "twice"),
        (vec![with(vec![SlotJobs::new(at(10), JobSet::plain(Vec::new()))])], "is 0"),
        (vec![with(vec![SlotJobs::new(at(10), JobSet::plain(vec![job("a"), job("b")]))])], "is 2"),
        (vec![with(two()).waits_for_key()], "is 2"),
    ] {
        let broken = invalid(t.driver.fire(Fire::new(items, at(10))).await).to_string();
        assert!(broken.contains(rule), "{broken}");
    }
    assert_eq!(t.take_order(at(20)).await, [""; 0]);
    assert_eq!(stored(&t, "s").await.revision, right.revision);
    assert_eq!(t.driver.fire(Fire::new(Vec::new(), T0)).await.expect("fire"), []);
}
