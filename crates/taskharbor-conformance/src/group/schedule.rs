//! Schedules: which are due, and firing, which stores jobs and moves on in one step.

use taskharbor_core::{
    Driver, NewJob, State, Text, Timestamp,
    admin::{Action, Change, Firing, ScheduleRecord, SlotTotals},
    driver::{Due, DueSchedules, Enqueued, Fire, FireSchedule, SlotJobs},
    error::{FireRefused, InvalidRequest, Rejected},
    job::{JobSet, KeyHold},
};

use super::{
    schedule_owner::{change, named, put, record, stored},
    watch::wakes,
};
use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{T0, ack, after, at, before, child, id, invalid, job, key},
};

group! {
    schedule {
        a_schedule_is_due_at_its_slot_and_not_a_microsecond_before ["SCH-8"]
        due_schedules_come_by_slot_and_name_up_to_the_limit ["SCH-8"]
        a_request_may_begin_behind_a_schedule ["SCH-8"]
        the_next_slot_of_all_is_answered_whatever_the_limit ["SCH-8"]
        a_schedule_without_a_next_slot_is_never_due ["SCH-8"]
        due_schedules_are_asked_for_in_one_to_a_thousand ["SCH-8"]
        firing_stores_the_job_and_moves_to_the_next_slot ["SCH-2" "SCH-14"]
        a_fired_job_waits_for_its_own_time ["SCH-2" "RES-1"]
        firing_several_slots_stores_a_job_for_each ["SCH-2" "SCH-14"]
        firing_no_slot_moves_on_and_counts_what_was_missed ["SCH-2" "SCH-14"]
        firing_may_end_a_schedule ["SCH-2" "SCH-8"]
        an_error_is_kept_until_the_next_firing ["SCH-2"]
        a_job_that_stands_in_the_place_of_another_is_counted_as_skipped ["SCH-2" "SCH-14"]
        a_firing_whose_job_is_stored_already_moves_on ["SCH-2" "ENQ-4"]
        firing_again_with_the_same_revision_changes_nothing ["SCH-3"]
        firing_with_a_revision_of_the_past_or_future_changes_nothing ["SCH-3"]
        firing_an_unknown_schedule_is_refused ["SCH-3"]
        a_revision_never_returns_even_if_the_schedule_does ["SCH-1" "SCH-3"]
        every_change_gives_another_revision ["SCH-1"]
        a_rejected_set_leaves_its_schedule_as_it_was ["SCH-4"]
        a_refused_item_does_not_disturb_the_others ["SCH-4" "SCH-3"]
        of_racing_firings_of_a_slot_one_is_applied ["SCH-5"]
        racing_firings_of_many_slots_fire_each_once ["SCH-5" "SCH-14"]
        a_paused_schedule_is_neither_due_nor_fired ["SCH-6" "SCH-8"]
        the_last_ten_firings_are_kept ["SCH-14"]
        a_firing_that_waits_for_the_key_waits ["SCH-15"]
        a_job_that_is_stored_already_waits_for_no_key ["SCH-15"]
        two_schedules_alike_both_fire ["SCH-2"]
        a_dead_lettered_job_does_not_hold_up_the_next_slot ["SCH-2" "KEY-7"]
        a_job_that_is_fired_wakes ["WAK-1"]
        a_firing_that_breaks_a_rule_fails_as_a_call ["SCH-17"]
    }
    flows {
        a_flow_is_fired_whole_and_its_tail_stands_for_it ["SCH-2"]
        a_flow_that_overlaps_a_stored_one_is_rejected ["SCH-4"]
        a_flow_waits_for_the_key_of_its_tail ["SCH-15"]
    }
}

/// This job for the slot at this instant.
fn slot(slot: Timestamp, job: NewJob) -> SlotJobs {
    SlotJobs::new(slot, job.into())
}

/// A firing of the schedule as it is stored.
async fn firing(t: &DriverUnderTest, name: &str, next_slot: Option<Timestamp>) -> FireSchedule {
    FireSchedule::new(named(name), stored(t, name).await.revision, next_slot)
}

/// Fires one schedule; the answer as it is.
async fn fire(
    t: &DriverUnderTest,
    item: FireSchedule,
    now: Timestamp,
) -> Result<Vec<Enqueued>, FireRefused> {
    let mut answers = t.driver.fire(Fire::new(vec![item], now)).await.expect("fire");
    assert_eq!(answers.len(), 1, "one item, one answer");
    answers.remove(0)
}

/// Fires one slot of a schedule as it is stored, with a job of this id.
async fn fire_slot(t: &DriverUnderTest, name: &str, text: &str, slot_at: u64) -> Enqueued {
    let item = firing(t, name, Some(at(slot_at + 10))).await;
    let jobs = fire(t, item.slots([slot(at(slot_at), job(text))]), at(slot_at)).await;
    jobs.expect("fired").remove(0)
}

async fn due(t: &DriverUnderTest, limit: usize, now: Timestamp) -> Due {
    t.driver.due_schedules(DueSchedules::new(limit, now)).await.expect("due_schedules")
}

async fn due_names(t: &DriverUnderTest, now: Timestamp) -> Vec<String> {
    due(t, 100, now).await.schedules.iter().map(|it| it.name.to_string()).collect()
}

fn inserted(text: &str) -> Enqueued {
    Enqueued::Inserted(id(text))
}

fn existing(text: &str) -> Enqueued {
    Enqueued::Existing(id(text))
}

async fn a_schedule_is_due_at_its_slot_and_not_a_microsecond_before(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    assert_eq!(due(&t, 10, before(at(10))).await, Due::new(Vec::new(), Some(at(10))));
    for now in [at(10), after(at(10)), Timestamp::MAX] {
        let answer = due(&t, 10, now).await;
        assert_eq!(answer, Due::new(vec![stored(&t, "s").await], None), "{now}");
    }
}

async fn due_schedules_come_by_slot_and_name_up_to_the_limit(t: DriverUnderTest) {
    for (name, slot) in [("b", 5), ("a", 5), ("é", 1), ("Z", 1), ("z", 9)] {
        put(&t, name, "daily", Some(at(slot))).await;
    }
    assert_eq!(due_names(&t, at(9)).await, ["Z", "é", "a", "b", "z"]);
    assert_eq!(due_names(&t, at(8)).await, ["Z", "é", "a", "b"]);
    let first: Vec<_> = due(&t, 2, at(9)).await.schedules;
    assert_eq!(first, [stored(&t, "Z").await, stored(&t, "é").await]);
}

async fn a_request_may_begin_behind_a_schedule(t: DriverUnderTest) {
    for (name, slot) in [("b", 5), ("a", 5), ("c", 5), ("z", 1), ("y", 7), ("x", 20)] {
        put(&t, name, "daily", Some(at(slot))).await;
    }
    let mut request = DueSchedules::new(2, at(10));
    let mut pages = Vec::new();
    loop {
        let answer = t.driver.due_schedules(request.clone()).await.expect("due_schedules");
        assert_eq!(answer.next, Some(at(20)));
        pages.push(answer.schedules.iter().map(|it| it.name.to_string()).collect::<Vec<_>>());
        let Some(last) = answer.schedules.last() else { break };
        request = request.after(last.next_slot.expect("it is due"), last.name.clone());
    }
    assert_eq!(pages, [vec!["z", "a"], vec!["b", "c"], vec!["y"], vec![]]);
    let behind = DueSchedules::new(9, at(10)).after(before(at(5)), named("zzz"));
    let answer = t.driver.due_schedules(behind).await.expect("due_schedules");
    assert_eq!(answer.schedules.first().map(|it| it.name.as_str()), Some("a"));
}

async fn the_next_slot_of_all_is_answered_whatever_the_limit(t: DriverUnderTest) {
    for (name, slot) in [("a", 1), ("b", 2), ("c", 30), ("d", 20)] {
        put(&t, name, "daily", Some(at(slot))).await;
    }
    change(&t, Change::PauseSchedule(named("d")), T0).await.expect("paused");
    let answer = due(&t, 1, at(10)).await;
    assert_eq!((answer.schedules.len(), answer.next), (1, Some(at(30))));
    assert_eq!(due(&t, 1, T0).await, Due::new(Vec::new(), Some(at(1))));
    assert_eq!(due(&t, 1, at(30)).await.next, None);
}

async fn a_schedule_without_a_next_slot_is_never_due(t: DriverUnderTest) {
    put(&t, "s", "once", None).await;
    assert_eq!(due(&t, 10, Timestamp::MAX).await, Due::new(Vec::new(), None));
    assert_eq!(stored(&t, "s").await.next_slot, None);
}

async fn due_schedules_are_asked_for_in_one_to_a_thousand(t: DriverUnderTest) {
    for limit in [0, 1_001] {
        let answer = t.driver.due_schedules(DueSchedules::new(limit, T0)).await;
        assert!(matches!(invalid(answer), InvalidRequest::OutOfRange { .. }));
    }
    assert_eq!(due(&t, 1_000, T0).await, Due::default());
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

/// A job that holds the key of the schedule until it is terminal.
fn keyed(text: &str) -> NewJob {
    job(text).idempotency_key(key("s")).key_hold(KeyHold::UntilTerminal)
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

async fn a_revision_never_returns_even_if_the_schedule_does(t: DriverUnderTest) {
    let mut seen = Vec::new();
    for n in 0..4 {
        put(&t, "s", "daily", Some(at(10))).await;
        let item = firing(&t, "s", Some(at(20))).await.slots([slot(at(10), job("s@10"))]);
        assert!(!seen.contains(&item.revision), "{n}: {} was there before", item.revision);
        for revision in &seen {
            let mut stale = item.clone();
            stale.revision = *revision;
            assert_eq!(fire(&t, stale, at(10)).await, Err(FireRefused::Changed));
        }
        seen.push(item.revision);
        change(&t, Change::RemoveSchedule(named("s")), at(10)).await.expect("removed");
    }
}

async fn every_change_gives_another_revision(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    let mut seen = vec![stored(&t, "s").await.revision];
    for turn in 0..5 {
        match turn {
            0 => put(&t, "s", "hourly", Some(at(10))).await,
            1 => drop(fire_slot(&t, "s", "s@10", 10).await),
            2 => change(&t, Change::PauseSchedule(named("s")), T0).await.expect("paused"),
            3 => {
                let (name, revision) = (named("s"), stored(&t, "s").await.revision);
                let resume = Change::ResumeSchedule { name, revision, next_slot: Some(at(30)) };
                change(&t, resume, T0).await.expect("resumed");
            }
            _ => {
                let item = firing(&t, "s", Some(at(30))).await;
                fire(&t, item, at(30)).await.expect("fired");
            }
        }
        let revision = stored(&t, "s").await.revision;
        assert!(!seen.contains(&revision), "turn {turn}: {revision} again");
        seen.push(revision);
    }
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

async fn a_paused_schedule_is_neither_due_nor_fired(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    change(&t, Change::PauseSchedule(named("s")), at(1)).await.expect("paused");
    let paused = stored(&t, "s").await;
    assert_eq!(due(&t, 10, at(10)).await, Due::new(Vec::new(), None));
    assert_eq!(due(&t, 10, T0).await, Due::new(Vec::new(), None));
    let item = firing(&t, "s", None).await.slots([slot(at(10), job("s@10"))]);
    assert_eq!(fire(&t, item, at(10)).await, Err(FireRefused::Paused));
    assert_eq!(stored(&t, "s").await, paused);
    assert_eq!(t.find("s@10", at(10)).await, None);
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

/// A flow of two, whose tail is `text`.
fn flow(text: &str, tail: NewJob) -> JobSet {
    JobSet::flow(vec![job(&format!("{text}/1")), tail])
}

async fn a_flow_is_fired_whole_and_its_tail_stands_for_it(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    // The tail comes first in the list: where it stands in the set must not matter.
    let set = JobSet::flow(vec![child("s@10", &["s@10/1"]), job("s@10/1")]);
    let item = firing(&t, "s", Some(at(20))).await.slots([SlotJobs::new(at(10), set)]);
    assert_eq!(fire(&t, item, at(10)).await, Ok(vec![inserted("s@10")]));
    assert_eq!(stored(&t, "s").await.firings[0].job, inserted("s@10"));
    t.run("s@10/1", ack(), at(10)).await;
    t.run("s@10", ack(), at(10)).await;
}

async fn a_flow_that_overlaps_a_stored_one_is_rejected(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    let before: ScheduleRecord = stored(&t, "s").await;
    t.put(job("s@20/1"), T0).await;
    let slots = ["s@10", "s@20"].map(|text| {
        let tail = child(text, &[&format!("{text}/1")]);
        SlotJobs::new(at(10), flow(text, tail))
    });
    let item = firing(&t, "s", Some(at(30))).await.slots(slots);
    let rejected = Rejected::Overlap { job: id("s@20/1") };
    assert_eq!(fire(&t, item, at(20)).await, Err(FireRefused::Rejected(rejected)));
    assert_eq!(stored(&t, "s").await, before);
    assert_eq!(t.find("s@10", at(20)).await, None);
}

async fn a_flow_waits_for_the_key_of_its_tail(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    for (n, now, is_held) in [(10, 10, false), (20, 20, true), (20, 21, false)] {
        let text = format!("s@{n}");
        let tail = keyed(&text).after([id(&format!("{text}/1"))]);
        let slots = [SlotJobs::new(at(n), flow(&text, tail))];
        let item = firing(&t, "s", Some(at(n + 10))).await.slots(slots).waits_for_key();
        let answer = fire(&t, item, at(now)).await;
        if is_held {
            assert_eq!(answer, Err(FireRefused::KeyHeld(id("s@10"))));
            t.act("s@10", Action::CancelFlow, at(now)).await;
        } else {
            assert_eq!(answer, Ok(vec![inserted(&text)]));
        }
    }
}
