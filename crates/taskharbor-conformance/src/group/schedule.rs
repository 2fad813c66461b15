//! Schedules: which are due, and their revisions.

use taskharbor_core::{
    Admin, Driver, NewJob, Text, Timestamp,
    admin::{Change, Configure, ListSettings, NewSchedule, ScheduleRecord, Setting, SettingKind},
    driver::{Due, DueSchedules, Enqueued, Fire, FireSchedule, SlotJobs},
    error::{Denied, FireRefused, InvalidRequest},
    job::KeyHold,
    name::ScheduleName,
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{T0, after, at, before, id, invalid, job, key},
};

group! {
    schedule {
        a_schedule_is_due_at_its_slot_and_not_a_microsecond_before ["SCH-8"]
        due_schedules_come_by_slot_and_name_up_to_the_limit ["SCH-8"]
        a_request_may_begin_behind_a_schedule ["SCH-8"]
        the_next_slot_of_all_is_answered_with_every_limit ["SCH-8"]
        a_schedule_without_a_next_slot_is_never_due ["SCH-8"]
        due_schedules_are_asked_for_in_one_to_a_thousand ["SCH-8"]
        a_revision_never_returns_even_if_the_schedule_does ["SCH-1" "SCH-3"]
        every_change_gives_another_revision ["SCH-1"]
        a_paused_schedule_is_neither_due_nor_fired ["SCH-6" "SCH-8"]
    }
    flows {}
}

pub(super) fn named(text: &str) -> ScheduleName {
    ScheduleName::new(text).expect("a valid schedule name")
}

pub(super) fn new(name: &str, definition: &str, next_slot: Option<Timestamp>) -> NewSchedule {
    NewSchedule::new(named(name), definition.as_bytes(), next_slot)
}

/// Makes one change; the answer as it is.
pub(super) async fn change(
    t: &DriverUnderTest,
    change: Change,
    now: Timestamp,
) -> Result<(), Denied> {
    let mut answers =
        t.driver.configure(Configure::new(vec![change], now)).await.expect("configure");
    assert_eq!(answers.len(), 1, "one change, one answer");
    answers.remove(0)
}

/// Puts a schedule, which is not denied.
pub(super) async fn put(
    t: &DriverUnderTest,
    name: &str,
    definition: &str,
    next_slot: Option<Timestamp>,
) {
    let put = Change::PutSchedule(new(name, definition, next_slot));
    change(t, put, T0).await.expect("not denied");
}

/// The record of a schedule, if it is stored.
pub(super) async fn record(t: &DriverUnderTest, name: &str) -> Option<ScheduleRecord> {
    let request = ListSettings::new(10).kind(SettingKind::Schedule).name(name);
    let mut page = t.driver.settings(request).await.expect("settings");
    assert!(page.items.len() < 2 && page.next.is_none(), "{page:?}");
    match page.items.pop() {
        Some(Setting::Schedule(record)) => Some(*record),
        Some(other) => panic!("{other:?} is not a schedule"),
        None => None,
    }
}

/// The record of a schedule that is stored.
pub(super) async fn stored(t: &DriverUnderTest, name: &str) -> ScheduleRecord {
    record(t, name).await.unwrap_or_else(|| panic!("schedule {name} is not stored"))
}

/// This job for the slot at this instant.
pub(super) fn slot(slot: Timestamp, job: NewJob) -> SlotJobs {
    SlotJobs::new(slot, job.into())
}

/// A firing of the schedule as it is stored.
pub(super) async fn firing(
    t: &DriverUnderTest,
    name: &str,
    next_slot: Option<Timestamp>,
) -> FireSchedule {
    FireSchedule::new(named(name), stored(t, name).await.revision, next_slot)
}

/// Fires one schedule; the answer as it is.
pub(super) async fn fire(
    t: &DriverUnderTest,
    item: FireSchedule,
    now: Timestamp,
) -> Result<Vec<Enqueued>, FireRefused> {
    let mut answers = t.driver.fire(Fire::new(vec![item], now)).await.expect("fire");
    assert_eq!(answers.len(), 1, "one item, one answer");
    answers.remove(0)
}

/// Fires one slot of a schedule as it is stored, with a job of this id.
pub(super) async fn fire_slot(
    t: &DriverUnderTest,
    name: &str,
    text: &str,
    slot_at: u64,
) -> Enqueued {
    let item = firing(t, name, Some(at(slot_at + 10))).await;
    let jobs = fire(t, item.slots([slot(at(slot_at), job(text))]), at(slot_at)).await;
    jobs.expect("fired").remove(0)
}

/// Fires the slot at the tenth second: late, with two missed slots and an error.
pub(super) async fn fire_late(t: &DriverUnderTest, name: &str) {
    let item =
        firing(t, name, Some(at(20))).await.slots([slot(at(10), job(&format!("{name}@10")))]);
    fire(t, item.missed(2).error(Text::new("late")), at(11)).await.expect("fired");
}

/// A job that holds the key of the schedule until it is terminal.
pub(super) fn keyed(text: &str) -> NewJob {
    job(text).idempotency_key(key("s")).key_hold(KeyHold::UntilTerminal)
}

pub(super) async fn due(t: &DriverUnderTest, limit: usize, now: Timestamp) -> Due {
    t.driver.due_schedules(DueSchedules::new(limit, now)).await.expect("due_schedules")
}

pub(super) async fn due_names(t: &DriverUnderTest, now: Timestamp) -> Vec<String> {
    due(t, 100, now).await.schedules.iter().map(|it| it.name.to_string()).collect()
}

pub(super) fn inserted(text: &str) -> Enqueued {
    Enqueued::Inserted(id(text))
}

pub(super) fn existing(text: &str) -> Enqueued {
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

async fn the_next_slot_of_all_is_answered_with_every_limit(t: DriverUnderTest) {
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
