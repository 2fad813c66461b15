//! Schedules as people and deploys change them: put, declared, paused, resumed, removed, moved.

use taskharbor_core::{
    Admin, Blob, Driver, Text, Timestamp,
    admin::{
        Change, Configure, Declaration, ListSettings, NewSchedule, ScheduleRecord, Setting,
        SettingKind, SlotTotals,
    },
    driver::{Fire, FireSchedule, Limits, SlotJobs},
    error::{Denied, InvalidRequest},
    name::{OwnerName, ScheduleName},
};

use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{T0, at, invalid, job, queue},
};

group! {
    schedule_owner {
        a_schedule_is_read_back_as_it_was_given ["SCH-1"]
        an_equal_definition_changes_nothing ["SCH-9"]
        another_definition_replaces_the_stored_one ["SCH-9"]
        a_paused_schedule_stays_paused_when_it_is_replaced ["SCH-9" "SCH-6"]
        pausing_keeps_the_next_slot_and_the_first_time ["SCH-6"]
        resuming_gives_the_next_slot_of_the_request ["SCH-7"]
        resuming_by_an_old_revision_is_denied ["SCH-7"]
        resuming_a_schedule_that_is_not_paused_changes_nothing ["SCH-7"]
        removing_a_schedule_leaves_its_jobs ["SCH-13"]
        an_unknown_schedule_cannot_be_changed ["SCH-13"]
        a_declaration_gives_the_owner_exactly_these ["SCH-10"]
        declaring_again_changes_nothing ["SCH-10" "SCH-9"]
        a_declaration_touches_no_other_owner ["SCH-10"]
        an_empty_declaration_removes_all_schedules_of_the_owner ["SCH-10"]
        an_older_version_is_denied ["SCH-11"]
        an_older_version_does_not_bring_back_what_a_newer_removed ["SCH-11"]
        a_declaration_without_a_version_always_applies ["SCH-11"]
        a_version_can_be_set_and_forgotten ["SCH-11" "SCH-16"]
        a_schedule_of_another_owner_is_not_taken_over ["SCH-12"]
        a_denied_declaration_changes_nothing_at_all ["SCH-12" "SCH-10"]
        an_owned_schedule_can_be_paused_and_removed ["SCH-6" "SCH-13"]
        of_racing_declarations_one_is_there_in_the_end ["SCH-10" "SCH-11"]
        settings_of_all_kinds_come_in_pages ["PAU-3" "SCH-1"]
        a_setting_can_be_asked_for_by_kind_and_name ["PAU-3"]
        an_imported_schedule_is_as_it_was ["SCH-16"]
        importing_again_changes_nothing_and_another_is_denied ["SCH-16"]
        a_definition_may_have_256_kib ["SCH-17" "SCH-1"]
        a_declaration_that_names_a_schedule_twice_fails_as_a_call ["SCH-17"]
    }
    flows {}
}

pub(super) fn named(text: &str) -> ScheduleName {
    ScheduleName::new(text).expect("a valid schedule name")
}

fn owner(text: &str) -> OwnerName {
    OwnerName::new(text).expect("a valid owner name")
}

fn new(name: &str, definition: &str, next_slot: Option<Timestamp>) -> NewSchedule {
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

/// All settings, in pages of this size.
async fn settings(t: &DriverUnderTest, limit: usize) -> Vec<Setting> {
    let (mut all, mut request) = (Vec::new(), ListSettings::new(limit));
    loop {
        let page = t.driver.settings(request.clone()).await.expect("settings");
        assert!(page.items.len() <= limit, "more than a page");
        all.extend(page.items);
        match page.next {
            Some(cursor) => request = request.after(cursor),
            None => return all,
        }
    }
}

/// Name, owner and definition of all schedules.
async fn all(t: &DriverUnderTest) -> Vec<(String, Option<String>, String)> {
    let schedules = settings(t, 100).await.into_iter().filter_map(|setting| match setting {
        Setting::Schedule(record) => Some(*record),
        _ => None,
    });
    let text = |blob: &Blob| String::from_utf8_lossy(blob).into_owned();
    let shown = |it: ScheduleRecord| {
        (it.name.to_string(), it.owner.map(|owner| owner.to_string()), text(&it.definition))
    };
    schedules.map(shown).collect()
}

fn shown(name: &str, owner: &str, definition: &str) -> (String, Option<String>, String) {
    let owner = Some(owner).filter(|owner| !owner.is_empty()).map(str::to_owned);
    (name.to_owned(), owner, definition.to_owned())
}

/// Declares schedules, each first due at the tenth second; the answer as it is.
async fn declare(
    t: &DriverUnderTest,
    of: &str,
    version: Option<u64>,
    schedules: &[(&str, &str)],
) -> Result<(), Denied> {
    let schedules = schedules.iter().map(|(name, text)| new(name, text, Some(at(10)))).collect();
    let declaration = Declaration::new(owner(of), version, schedules);
    change(t, Change::DeclareSchedules(declaration), T0).await
}

/// Fires the slot at the tenth second.
async fn fire(t: &DriverUnderTest, name: &str) {
    let item = FireSchedule::new(named(name), stored(t, name).await.revision, Some(at(20)));
    let slot = SlotJobs::new(at(10), job(&format!("{name}@10")).into());
    let item = item.slots([slot]).missed(2).error(Text::new("late"));
    let answers = t.driver.fire(Fire::new(vec![item], at(11))).await.expect("fire");
    assert!(answers[0].is_ok(), "{answers:?}");
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
    fire(&t, "s").await;
    let before = stored(&t, "s").await;
    put(&t, "s", "daily", Some(at(99))).await;
    put(&t, "s", "daily", None).await;
    assert_eq!(stored(&t, "s").await, before);
}

async fn another_definition_replaces_the_stored_one(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    fire(&t, "s").await;
    let before = stored(&t, "s").await;
    put(&t, "s", "hourly", Some(at(99))).await;
    let after = stored(&t, "s").await;
    assert_eq!(&*after.definition, b"hourly");
    assert_eq!((after.next_slot, after.error), (Some(at(99)), None));
    assert_eq!((after.totals, &after.firings), (before.totals, &before.firings));
    assert_ne!(after.revision, before.revision);
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
    fire(&t, "s").await;
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

async fn a_declaration_gives_the_owner_exactly_these(t: DriverUnderTest) {
    declare(&t, "billing", Some(1), &[("a", "1"), ("b", "1"), ("c", "1")]).await.expect("declared");
    fire(&t, "a").await;
    let kept = stored(&t, "a").await;
    declare(&t, "billing", Some(2), &[("a", "1"), ("b", "2"), ("d", "1")]).await.expect("declared");
    let expected =
        [shown("a", "billing", "1"), shown("b", "billing", "2"), shown("d", "billing", "1")];
    assert_eq!(all(&t).await, expected);
    assert_eq!(stored(&t, "a").await, kept);
}

async fn declaring_again_changes_nothing(t: DriverUnderTest) {
    for version in [Some(1), Some(1), None, Some(7)] {
        declare(&t, "billing", version, &[("a", "1"), ("b", "1")]).await.expect("declared");
        if stored(&t, "a").await.totals.stored == 0 {
            fire(&t, "a").await;
        }
        assert_eq!(stored(&t, "a").await.next_slot, Some(at(20)), "{version:?}");
        assert_eq!(stored(&t, "b").await.next_slot, Some(at(10)), "{version:?}");
    }
}

async fn a_declaration_touches_no_other_owner(t: DriverUnderTest) {
    declare(&t, "mail", Some(9), &[("m", "1")]).await.expect("declared");
    declare(&t, "Billing", Some(9), &[("B", "1")]).await.expect("declared");
    put(&t, "user-42", "1", Some(at(10))).await;
    let mut before = Vec::new();
    for name in ["m", "B", "user-42"] {
        before.push(stored(&t, name).await);
    }
    declare(&t, "billing", Some(1), &[("a", "1")]).await.expect("declared");
    declare(&t, "billing", Some(2), &[]).await.expect("declared");
    for record in before {
        assert_eq!(stored(&t, record.name.as_str()).await, record);
    }
}

async fn an_empty_declaration_removes_all_schedules_of_the_owner(t: DriverUnderTest) {
    declare(&t, "billing", Some(1), &[("a", "1"), ("b", "1")]).await.expect("declared");
    declare(&t, "billing", Some(2), &[]).await.expect("declared");
    assert_eq!(settings(&t, 10).await, [Setting::Owner { owner: owner("billing"), version: 2 }]);
}

async fn an_older_version_is_denied(t: DriverUnderTest) {
    declare(&t, "billing", Some(5), &[("a", "5")]).await.expect("declared");
    for version in [0, 4] {
        let denied = declare(&t, "billing", Some(version), &[("a", "old"), ("b", "old")]).await;
        assert_eq!(denied, Err(Denied::NewerVersion { stored: 5 }), "{version}");
    }
    assert_eq!(all(&t).await, [shown("a", "billing", "5")]);
    declare(&t, "billing", Some(5), &[("a", "5 again")]).await.expect("declared");
    declare(&t, "billing", Some(Declaration::MAX_VERSION), &[("a", "max")])
        .await
        .expect("declared");
    assert_eq!(all(&t).await, [shown("a", "billing", "max")]);
}

async fn an_older_version_does_not_bring_back_what_a_newer_removed(t: DriverUnderTest) {
    declare(&t, "billing", Some(1), &[("a", "1")]).await.expect("declared");
    declare(&t, "billing", Some(2), &[]).await.expect("declared");
    let denied = declare(&t, "billing", Some(1), &[("a", "1")]).await;
    assert_eq!(denied, Err(Denied::NewerVersion { stored: 2 }));
    assert_eq!(all(&t).await, []);
}

async fn a_declaration_without_a_version_always_applies(t: DriverUnderTest) {
    declare(&t, "billing", Some(5), &[("a", "5")]).await.expect("declared");
    declare(&t, "billing", None, &[("a", "none")]).await.expect("declared");
    assert_eq!(all(&t).await, [shown("a", "billing", "none")]);
    declare(&t, "billing", Some(1), &[("a", "1")]).await.expect("declared");
    assert_eq!(all(&t).await, [shown("a", "billing", "1")]);
}

async fn a_version_can_be_set_and_forgotten(t: DriverUnderTest) {
    let set = |version| Change::SetOwnerVersion { owner: owner("billing"), version };
    change(&t, set(Some(3)), T0).await.expect("set");
    assert_eq!(settings(&t, 10).await, [Setting::Owner { owner: owner("billing"), version: 3 }]);
    let denied = declare(&t, "billing", Some(2), &[]).await;
    assert_eq!(denied, Err(Denied::NewerVersion { stored: 3 }));
    for _ in 0..2 {
        change(&t, set(None), T0).await.expect("forgotten");
        assert_eq!(settings(&t, 10).await, []);
    }
    declare(&t, "billing", Some(2), &[]).await.expect("declared");
    let too_high = Configure::new(vec![set(Some(u64::MAX))], T0);
    assert_eq!(invalid(t.driver.configure(too_high).await), InvalidRequest::Version);
}

async fn a_schedule_of_another_owner_is_not_taken_over(t: DriverUnderTest) {
    declare(&t, "mail", None, &[("m", "1")]).await.expect("declared");
    put(&t, "p", "1", Some(at(10))).await;
    let owned = |name, of: &str| {
        let owner = Some(of).filter(|of| !of.is_empty()).map(owner);
        Err(Denied::ScheduleOwned { name: named(name), owner })
    };
    assert_eq!(declare(&t, "billing", None, &[("m", "2")]).await, owned("m", "mail"));
    assert_eq!(declare(&t, "billing", None, &[("p", "1")]).await, owned("p", ""));
    for definition in ["1", "2"] {
        let put = Change::PutSchedule(new("m", definition, None));
        assert_eq!(change(&t, put, T0).await, owned("m", "mail"));
    }
    assert_eq!(all(&t).await, [shown("m", "mail", "1"), shown("p", "", "1")]);
}

async fn a_denied_declaration_changes_nothing_at_all(t: DriverUnderTest) {
    declare(&t, "mail", None, &[("m", "1")]).await.expect("declared");
    declare(&t, "billing", Some(1), &[("a", "1"), ("b", "1")]).await.expect("declared");
    let before = settings(&t, 100).await;
    let schedules = [("a", "2"), ("c", "1"), ("m", "1"), ("d", "1")];
    declare(&t, "billing", Some(2), &schedules).await.expect_err("m belongs to mail");
    assert_eq!(settings(&t, 100).await, before);
}

async fn an_owned_schedule_can_be_paused_and_removed(t: DriverUnderTest) {
    declare(&t, "billing", Some(1), &[("a", "1"), ("b", "1")]).await.expect("declared");
    change(&t, Change::PauseSchedule(named("a")), at(1)).await.expect("paused");
    change(&t, Change::RemoveSchedule(named("b")), at(1)).await.expect("removed");
    assert_eq!(stored(&t, "a").await.paused_since, Some(at(1)));
    declare(&t, "billing", Some(1), &[("a", "1"), ("b", "1")]).await.expect("declared");
    assert_eq!(stored(&t, "a").await.paused_since, Some(at(1)));
    assert_eq!(stored(&t, "b").await.owner, Some(owner("billing")));
}

async fn of_racing_declarations_one_is_there_in_the_end(t: DriverUnderTest) {
    for round in 0..10_u64 {
        let of = format!("owner-{round}");
        let racing = (0..6_u64).map(|version| {
            let (t, of) = (t.clone(), of.clone());
            async move {
                let text = version.to_string();
                let names = [format!("{of} a"), format!("{of} only {version}"), format!("{of} z")];
                let mut schedules: Vec<_> =
                    names.iter().map(|name| (name.as_str(), text.as_str())).collect();
                if version % 2 == 0 {
                    schedules.reverse();
                }
                declare(&t, &of, Some(version), &schedules).await
            }
        });
        let answers = at_once(racing).await;
        assert_eq!(answers[5], Ok(()), "the highest version is never denied");
        let of_owner = |it: &(String, Option<String>, String)| it.1.as_deref() == Some(of.as_str());
        let left: Vec<_> = all(&t).await.into_iter().filter(of_owner).collect();
        let names = [format!("{of} a"), format!("{of} only 5"), format!("{of} z")];
        assert_eq!(left, names.map(|name| (name, Some(of.clone()), "5".to_owned())), "{answers:?}");
    }
}

async fn settings_of_all_kinds_come_in_pages(t: DriverUnderTest) {
    for name in ["b", "a"] {
        t.driver.pause(queue(name), at(1)).await.expect("pause");
    }
    declare(&t, "mail", Some(2), &[("m", "1")]).await.expect("declared");
    declare(&t, "billing", Some(1), &[("z", "1"), ("B", "1")]).await.expect("declared");
    put(&t, "a: colon", "1", None).await;
    let kinds = |settings: &[Setting]| -> Vec<String> {
        settings.iter().map(|it| format!("{} {}", it.kind().as_str(), it.name())).collect()
    };
    let expected = [
        "paused_queue a",
        "paused_queue b",
        "owner billing",
        "owner mail",
        "schedule B",
        "schedule a: colon",
        "schedule m",
        "schedule z",
    ];
    for limit in [1, 2, 3, 8, 1_000] {
        assert_eq!(kinds(&settings(&t, limit).await), expected, "pages of {limit}");
    }
}

async fn a_setting_can_be_asked_for_by_kind_and_name(t: DriverUnderTest) {
    for name in ["same", "other"] {
        t.driver.pause(queue(name), at(1)).await.expect("pause");
        declare(&t, name, Some(1), &[(name, "1")]).await.expect("declared");
    }
    let asked = async |request: ListSettings| -> Vec<String> {
        let page = t.driver.settings(request).await.expect("settings");
        page.items.iter().map(|it| format!("{} {}", it.kind().as_str(), it.name())).collect()
    };
    let all = || ListSettings::new(10);
    let of_name = ["paused_queue same", "owner same", "schedule same"];
    assert_eq!(asked(all().name("same")).await, of_name);
    assert_eq!(asked(all().kind(SettingKind::Owner)).await, ["owner other", "owner same"]);
    assert_eq!(asked(all().kind(SettingKind::Schedule).name("other")).await, ["schedule other"]);
    assert_eq!(asked(all().name("nothing")).await, [""; 0]);
    let first = t.driver.settings(ListSettings::new(1).kind(SettingKind::Schedule)).await;
    let cursor = first.expect("settings").next.expect("there is another");
    let second = all().kind(SettingKind::Schedule).after(cursor);
    assert_eq!(asked(second).await, ["schedule same"]);
}

async fn an_imported_schedule_is_as_it_was(t: DriverUnderTest) {
    declare(&t, "billing", Some(1), &[("a", "1")]).await.expect("declared");
    fire(&t, "a").await;
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
    fire(&t, "a").await;
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

async fn a_declaration_that_names_a_schedule_twice_fails_as_a_call(t: DriverUnderTest) {
    let schedules = vec![new("a", "1", None), new("b", "1", None), new("a", "2", None)];
    let twice = Declaration::new(owner("o"), None, schedules);
    let changes = vec![Change::PutSchedule(new("p", "1", None)), Change::DeclareSchedules(twice)];
    let answer = t.driver.configure(Configure::new(changes, T0)).await;
    assert_eq!(invalid(answer), InvalidRequest::DuplicateSchedule(named("a")));
    assert_eq!(all(&t).await, []);
}
