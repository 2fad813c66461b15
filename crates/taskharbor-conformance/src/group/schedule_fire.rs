//! Firing a schedule, which stores jobs and moves on in one step.

use taskharbor_core::{
    Driver, State, Text, Timestamp,
    admin::{Firing, SlotTotals},
    driver::{Due, Fire},
};

use super::{
    schedule::{due, existing, fire, fire_slot, firing, inserted, keyed, put, slot, stored},
    watch::wakes,
};
use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{T0, ack, at, before, job},
};

group! {
    schedule_fire {
        firing_stores_the_job_and_moves_to_the_next_slot ["SCH-2" "SCH-14"]
        a_fired_job_waits_for_its_own_time ["SCH-2" "RES-1"]
        firing_several_slots_stores_a_job_for_each ["SCH-2" "SCH-14"]
        firing_no_slot_moves_on_and_counts_what_was_missed ["SCH-2" "SCH-14"]
        firing_may_end_a_schedule ["SCH-2" "SCH-8"]
        an_error_is_kept_until_the_next_firing ["SCH-2"]
        a_job_that_stands_in_the_place_of_another_is_counted_as_skipped ["SCH-2" "SCH-14"]
        a_firing_whose_job_is_stored_already_moves_on ["SCH-2" "ENQ-4"]
        the_last_ten_firings_are_kept ["SCH-14"]
        two_schedules_alike_both_fire ["SCH-2"]
        a_dead_lettered_job_does_not_hold_up_the_next_slot ["SCH-2" "KEY-7"]
        a_job_that_is_fired_wakes ["WAK-1"]
    }
    flows {}
}

async fn firing_stores_the_job_and_moves_to_the_next_slot(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    let item = firing(&t, "s", Some(at(20))).await.slots([slot(at(10), job("s@10"))]);
    assert_eq!(fire(&t, item, at(11)).await, Ok(vec![inserted("s@10")]));
    let fired = stored(&t, "s").await;
    assert_eq!(fired.next_slot, Some(at(20)));
    assert_eq!(fired.totals, SlotTotals::new(1, 0, 0));
    assert_eq!(fired.firings, [Firing::new(at(10), at(11), inserted("s@10"))]);
    assert_eq!(due(&t, 10, at(19)).await, Due::new(Vec::new(), Some(at(20))));
    let job = t.record("s@10", at(11)).await;
    assert_eq!((job.state, job.job.created_at), (State::Ready, at(11)));
    t.run("s@10", ack(), at(11)).await;
}

async fn a_fired_job_waits_for_its_own_time(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    let late = slot(at(10), job("s@10").run_at(at(15)));
    let item = firing(&t, "s", None).await.slots([late]);
    fire(&t, item, at(11)).await.expect("fired");
    assert_eq!(t.take(before(at(15))).await, None);
    t.take_the("s@10", at(15)).await;
}

async fn firing_several_slots_stores_a_job_for_each(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    let slots = [10, 20, 30].map(|n| slot(at(n), job(&format!("s@{n}"))));
    let item = firing(&t, "s", Some(at(40))).await.slots(slots);
    let jobs = ["s@10", "s@20", "s@30"].map(inserted);
    assert_eq!(fire(&t, item, at(35)).await, Ok(jobs.to_vec()));
    assert_eq!(t.take_order(at(35)).await, ["s@10", "s@20", "s@30"]);
    let fired = stored(&t, "s").await;
    assert_eq!(fired.totals, SlotTotals::new(3, 0, 0));
    let firings = [10, 20, 30].map(|n| Firing::new(at(n), at(35), inserted(&format!("s@{n}"))));
    assert_eq!(fired.firings, firings);
}

async fn firing_no_slot_moves_on_and_counts_what_was_missed(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    for _ in 0..2 {
        let item = firing(&t, "s", Some(at(50))).await.missed(7);
        assert_eq!(fire(&t, item, at(45)).await, Ok(Vec::new()));
    }
    let fired = stored(&t, "s").await;
    assert_eq!((fired.next_slot, fired.totals), (Some(at(50)), SlotTotals::new(0, 0, 14)));
    assert_eq!(fired.firings, []);
}

async fn firing_may_end_a_schedule(t: DriverUnderTest) {
    put(&t, "s", "once", Some(at(10))).await;
    let item = firing(&t, "s", None).await.slots([slot(at(10), job("s@10"))]);
    fire(&t, item, at(10)).await.expect("fired");
    assert_eq!(due(&t, 10, Timestamp::MAX).await, Due::new(Vec::new(), None));
}

async fn an_error_is_kept_until_the_next_firing(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    let error = Text::new("no such zone: 'Atlantis' \u{1F30A}");
    let item = firing(&t, "s", Some(at(20))).await.missed(1).error(error.clone());
    fire(&t, item, at(10)).await.expect("fired");
    assert_eq!(stored(&t, "s").await.error, Some(error));
    fire_slot(&t, "s", "s@20", 20).await;
    assert_eq!(stored(&t, "s").await.error, None);
}

async fn a_job_that_stands_in_the_place_of_another_is_counted_as_skipped(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    for (n, answer) in [(10, inserted("s@10")), (20, existing("s@10"))] {
        let slots = [slot(at(n), keyed(&format!("s@{n}")))];
        let item = firing(&t, "s", Some(at(n + 10))).await.slots(slots);
        assert_eq!(fire(&t, item, at(n)).await, Ok(vec![answer]));
    }
    let fired = stored(&t, "s").await;
    assert_eq!((fired.next_slot, fired.totals), (Some(at(30)), SlotTotals::new(1, 1, 0)));
    assert_eq!(fired.firings[1], Firing::new(at(20), at(20), existing("s@10")));
    assert_eq!(t.take_order(at(20)).await, ["s@10"]);
}

async fn a_firing_whose_job_is_stored_already_moves_on(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    t.put(job("s@10"), T0).await;
    assert_eq!(fire_slot(&t, "s", "s@10", 10).await, existing("s@10"));
    let fired = stored(&t, "s").await;
    assert_eq!((fired.next_slot, fired.totals), (Some(at(20)), SlotTotals::new(0, 1, 0)));
}

async fn the_last_ten_firings_are_kept(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    let name = |n: u64| format!("s@{n}");
    for n in 1..=9 {
        fire_slot(&t, "s", &name(n * 10), n * 10).await;
    }
    let slots = [100, 110, 120].map(|n| slot(at(n), job(&name(n))));
    let item = firing(&t, "s", Some(at(130))).await.slots(slots);
    fire(&t, item, at(125)).await.expect("fired");
    let fired = stored(&t, "s").await;
    let slots: Vec<_> = fired.firings.iter().map(|it| it.slot).collect();
    assert_eq!(slots, (3..=12).map(|n| at(n * 10)).collect::<Vec<_>>());
    assert_eq!(fired.firings[9], Firing::new(at(120), at(125), inserted("s@120")));
    assert_eq!(fired.totals.stored, 12);
}

async fn two_schedules_alike_both_fire(t: DriverUnderTest) {
    let mut items = Vec::new();
    for name in ["a", "b"] {
        put(&t, name, "daily", Some(at(10))).await;
        let slots = [slot(at(10), job(&format!("{name}@10")))];
        items.push(firing(&t, name, Some(at(20))).await.slots(slots));
    }
    let answers = t.driver.fire(Fire::new(items, at(10))).await.expect("fire");
    assert_eq!(answers, ["a@10", "b@10"].map(|text| Ok(vec![inserted(text)])));
}

async fn a_dead_lettered_job_does_not_hold_up_the_next_slot(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    for n in [10, 20] {
        let text = format!("s@{n}");
        let item = firing(&t, "s", Some(at(n + 10))).await.slots([slot(at(n), keyed(&text))]);
        assert_eq!(fire(&t, item, at(n)).await, Ok(vec![inserted(&text)]));
        t.run(&text, crate::fixture::fail(at(n)), at(n)).await;
    }
    assert_eq!(t.states(&["s@10", "s@20"], at(20)).await, [State::Dlq; 2]);
}

async fn a_job_that_is_fired_wakes(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    let item = firing(&t, "s", Some(at(20))).await;
    wakes(&t, fire(&t, item.slots([slot(at(10), job("s@10"))]), at(10))).await;
}
