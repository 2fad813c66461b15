//! Schedules as people change them: put, paused, resumed, removed, imported.

use taskharbor_core::{
    Admin, Driver, Timestamp,
    admin::{Change, Configure, Declaration, NewSchedule, ScheduleRecord, SlotTotals},
    driver::{Fire, FireSchedule, Limits},
    error::{Denied, InvalidRequest},
};

use super::{
    schedule::{change, due_names, fire_late, fire_slot, named, new, put, record, stored},
    schedule_owner::{all, declare, owner, shown},
};
use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{T0, after, at, invalid},
};

group! {
    schedule_change {
        a_schedule_is_read_back_as_it_was_given ["SCH-1"]
        an_equal_definition_changes_nothing ["SCH-9"]
        another_definition_replaces_the_stored_one ["SCH-9"]
        a_replaced_schedule_keeps_its_slot_if_asked ["SCH-9"]
        a_schedule_without_a_slot_to_keep_gets_the_given_one ["SCH-9"]
        a_slot_that_was_fired_is_not_the_next_one_again ["SCH-9" "SCH-10"]
        a_paused_schedule_stays_paused_when_it_is_replaced ["SCH-9" "SCH-6"]
        pausing_keeps_the_next_slot_and_the_first_time ["SCH-6"]
        resuming_gives_the_next_slot_of_the_request ["SCH-7"]
        resuming_by_an_old_revision_is_denied ["SCH-7"]
        resuming_a_schedule_that_is_not_paused_changes_nothing ["SCH-7"]
        removing_a_schedule_leaves_its_jobs ["SCH-13"]
        an_unknown_schedule_cannot_be_changed ["SCH-13"]
        an_imported_schedule_is_as_it_was ["SCH-16"]
        importing_again_changes_nothing_and_another_is_denied ["SCH-16"]
        a_definition_may_have_256_kib ["SCH-17" "SCH-1"]
    }
    flows {}
}

async fn a_schedule_is_read_back_as_it_was_given(t: DriverUnderTest) {
    let definition: Vec<u8> = (0..=255).collect();
    for (name, slot) in [("nightly report", None), ("é'\"\\%_;--", Some(Timestamp::MAX))] {
        let new = NewSchedule::new(named(name), &definition[..], slot);
        change(&t, Change::PutSchedule(new), at(3)).await.expect("put");
        let record = stored(&t, name).await;
        assert_eq!(record.name, named(name));
        assert_eq!(&*record.definition, &definition[..]);
        assert_eq!((record.next_slot, record.owner, record.paused_since), (slot, None, None));
        assert_eq!((record.totals, record.error), (SlotTotals::default(), None));
        assert_eq!(record.firings, []);
    }
    assert_eq!(record(&t, "é").await, None);
}

async fn an_equal_definition_changes_nothing(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    fire_late(&t, "s").await;
    let before = stored(&t, "s").await;
    put(&t, "s", "daily", Some(at(99))).await;
    put(&t, "s", "daily", None).await;
    assert_eq!(stored(&t, "s").await, before);
}

async fn another_definition_replaces_the_stored_one(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    fire_late(&t, "s").await;
    let before = stored(&t, "s").await;
    put(&t, "s", "hourly", Some(at(99))).await;
    let after = stored(&t, "s").await;
    assert_eq!(&*after.definition, b"hourly");
    assert_eq!((after.next_slot, after.error), (Some(at(99)), None));
    assert_eq!((after.totals, &after.firings), (before.totals, &before.firings));
    assert_ne!(after.revision, before.revision);
}

async fn a_replaced_schedule_keeps_its_slot_if_asked(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    declare(&t, "billing", None, &[("d", "daily")]).await.expect("declared");
    let kept = |name, definition| new(name, definition, Some(at(99))).keep_slot();
    change(&t, Change::PutSchedule(kept("s", "daily, other job")), T0).await.expect("put");
    let declaration = Declaration::new(owner("billing"), None, vec![kept("d", "daily, too")]);
    change(&t, Change::DeclareSchedules(declaration), T0).await.expect("declared");
    assert_eq!(due_names(&t, at(10)).await, ["d", "s"]);
    for (name, definition) in [("s", "daily, other job"), ("d", "daily, too")] {
        let record = stored(&t, name).await;
        assert_eq!((&*record.definition, record.next_slot), (definition.as_bytes(), Some(at(10))));
    }
}

async fn a_schedule_without_a_slot_to_keep_gets_the_given_one(t: DriverUnderTest) {
    put(&t, "ended", "once", None).await;
    for name in ["ended", "new"] {
        let put = new(name, "daily", Some(at(10))).keep_slot();
        change(&t, Change::PutSchedule(put), T0).await.expect("put");
        assert_eq!(stored(&t, name).await.next_slot, Some(at(10)), "{name}");
    }
}

async fn a_slot_that_was_fired_is_not_the_next_one_again(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    declare(&t, "billing", None, &[("d", "daily")]).await.expect("declared");
    for name in ["s", "d"] {
        fire_slot(&t, name, &format!("{name}@10"), 10).await;
    }
    // Who changes them has read the clock before the slot was fired.
    let mut definitions = 0;
    for (given, next) in [
        (Some(at(5)), Some(after(at(10)))),
        (Some(at(10)), Some(after(at(10)))),
        (Some(after(at(10))), Some(after(at(10)))),
        (Some(at(15)), Some(at(15))),
        (None, None),
    ] {
        definitions += 1;
        let definition = format!("changed {definitions}");
        put(&t, "s", &definition, given).await;
        let kept = new("d", &definition, given);
        let declaration = Declaration::new(owner("billing"), None, vec![kept]);
        change(&t, Change::DeclareSchedules(declaration), T0).await.expect("declared");
        for name in ["s", "d"] {
            assert_eq!(stored(&t, name).await.next_slot, next, "{name} with {given:?}");
        }
    }
    // There is no slot to keep.
    let put = new("s", "kept", Some(at(3))).keep_slot();
    change(&t, Change::PutSchedule(put), T0).await.expect("put");
    assert_eq!(stored(&t, "s").await.next_slot, Some(after(at(10))));
}

async fn a_paused_schedule_stays_paused_when_it_is_replaced(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    change(&t, Change::PauseSchedule(named("s")), at(1)).await.expect("paused");
    put(&t, "s", "hourly", Some(at(99))).await;
    let record = stored(&t, "s").await;
    assert_eq!((record.paused_since, record.next_slot), (Some(at(1)), Some(at(99))));
}

async fn pausing_keeps_the_next_slot_and_the_first_time(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    change(&t, Change::PauseSchedule(named("s")), at(1)).await.expect("paused");
    let paused = stored(&t, "s").await;
    assert_eq!((paused.paused_since, paused.next_slot), (Some(at(1)), Some(at(10))));
    change(&t, Change::PauseSchedule(named("s")), at(2)).await.expect("paused");
    assert_eq!(stored(&t, "s").await, paused);
}

fn resume(name: &str, revision: u64, next_slot: Option<Timestamp>) -> Change {
    Change::ResumeSchedule { name: named(name), revision, next_slot }
}

async fn resuming_gives_the_next_slot_of_the_request(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    for slot in [Some(at(70)), None] {
        change(&t, Change::PauseSchedule(named("s")), at(1)).await.expect("paused");
        let revision = stored(&t, "s").await.revision;
        change(&t, resume("s", revision, slot), at(60)).await.expect("resumed");
        let record = stored(&t, "s").await;
        assert_eq!((record.paused_since, record.next_slot), (None, slot));
    }
}

async fn resuming_by_an_old_revision_is_denied(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    change(&t, Change::PauseSchedule(named("s")), at(1)).await.expect("paused");
    let old = stored(&t, "s").await.revision;
    put(&t, "s", "hourly", Some(at(10))).await;
    let before = stored(&t, "s").await;
    for revision in [old, before.revision + 1, u64::MAX] {
        let denied = change(&t, resume("s", revision, None), at(2)).await;
        assert_eq!(denied, Err(Denied::ScheduleChanged));
    }
    assert_eq!(stored(&t, "s").await, before);
}

async fn resuming_a_schedule_that_is_not_paused_changes_nothing(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    let before = stored(&t, "s").await;
    for revision in [before.revision, before.revision + 1] {
        change(&t, resume("s", revision, Some(at(99))), at(2)).await.expect("resumed");
    }
    assert_eq!(stored(&t, "s").await, before);
}

async fn removing_a_schedule_leaves_its_jobs(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    fire_late(&t, "s").await;
    change(&t, Change::RemoveSchedule(named("s")), at(12)).await.expect("removed");
    assert_eq!(record(&t, "s").await, None);
    assert_eq!(t.take_order(at(12)).await, ["s@10"]);
}

async fn an_unknown_schedule_cannot_be_changed(t: DriverUnderTest) {
    put(&t, "other", "daily", Some(at(10))).await;
    let denied = Err(Denied::ScheduleNotFound);
    assert_eq!(change(&t, Change::PauseSchedule(named("s")), T0).await, denied);
    assert_eq!(change(&t, resume("s", 1, None), T0).await, denied);
    assert_eq!(change(&t, Change::RemoveSchedule(named("s")), T0).await, denied);
    assert_eq!(all(&t).await, [shown("other", "", "daily")]);
}

async fn an_imported_schedule_is_as_it_was(t: DriverUnderTest) {
    declare(&t, "billing", Some(1), &[("a", "1")]).await.expect("declared");
    fire_late(&t, "a").await;
    change(&t, Change::PauseSchedule(named("a")), at(12)).await.expect("paused");
    let exported = stored(&t, "a").await;
    let target = t.another().await;
    change(&target, Change::ImportSchedule(Box::new(exported.clone())), at(50)).await.expect("new");
    let imported = stored(&target, "a").await;
    assert!(imported.equals_but_revision(&exported), "{imported:?} {exported:?}");
    change(&target, resume("a", imported.revision, Some(at(60))), at(51)).await.expect("resumed");
    let item = FireSchedule::new(named("a"), stored(&target, "a").await.revision, None);
    let fired = target.driver.fire(Fire::new(vec![item], at(60))).await.expect("fire");
    assert_eq!(fired, [Ok(Vec::new())]);
    target.driver.close().await.expect("closed");
}

async fn importing_again_changes_nothing_and_another_is_denied(t: DriverUnderTest) {
    put(&t, "a", "1", Some(at(10))).await;
    let exported = stored(&t, "a").await;
    let import = |record: &ScheduleRecord| Change::ImportSchedule(Box::new(record.clone()));
    change(&t, import(&exported), at(1)).await.expect("equal");
    assert_eq!(stored(&t, "a").await, exported);
    fire_late(&t, "a").await;
    let before = stored(&t, "a").await;
    let denied = change(&t, import(&exported), at(1)).await;
    assert_eq!(denied, Err(Denied::ScheduleExists(named("a"))));
    assert_eq!(stored(&t, "a").await, before);
}

async fn a_definition_may_have_256_kib(t: DriverUnderTest) {
    let of = |bytes: usize| NewSchedule::new(named("s"), vec![0xA5; bytes], None);
    change(&t, Change::PutSchedule(of(Limits::MAX_DEFINITION_BYTES)), T0).await.expect("fits");
    assert_eq!(stored(&t, "s").await.definition.len(), Limits::MAX_DEFINITION_BYTES);
    let large = of(Limits::MAX_DEFINITION_BYTES + 1);
    let declared = Declaration::new(owner("o"), None, vec![large.clone()]);
    for change in [Change::PutSchedule(large), Change::DeclareSchedules(declared)] {
        let answer = t.driver.configure(Configure::new(vec![change], T0)).await;
        assert!(matches!(invalid(answer), InvalidRequest::OutOfRange { .. }));
    }
}
