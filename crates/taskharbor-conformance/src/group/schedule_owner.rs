//! Schedules as deploys change them: declared by an owner, with a version. Settings in lists.

use taskharbor_core::{
    Admin, Blob,
    admin::{Change, Configure, Declaration, ListSettings, ScheduleRecord, Setting, SettingKind},
    error::{Denied, InvalidRequest},
    name::OwnerName,
};

use super::schedule::{change, fire_late, named, new, put, stored};
use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{T0, at, invalid, queue},
};

group! {
    schedule_owner {
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
        a_declaration_that_names_a_schedule_twice_fails_as_a_call ["SCH-17"]
    }
    flows {}
}

pub(super) fn owner(text: &str) -> OwnerName {
    OwnerName::new(text).expect("a valid owner name")
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
pub(super) async fn all(t: &DriverUnderTest) -> Vec<(String, Option<String>, String)> {
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

pub(super) fn shown(name: &str, owner: &str, definition: &str) -> (String, Option<String>, String) {
    let owner = Some(owner).filter(|owner| !owner.is_empty()).map(str::to_owned);
    (name.to_owned(), owner, definition.to_owned())
}

/// Declares schedules, each first due at the tenth second; the answer as it is.
pub(super) async fn declare(
    t: &DriverUnderTest,
    of: &str,
    version: Option<u64>,
    schedules: &[(&str, &str)],
) -> Result<(), Denied> {
    let schedules = schedules.iter().map(|(name, text)| new(name, text, Some(at(10)))).collect();
    let declaration = Declaration::new(owner(of), version, schedules);
    change(t, Change::DeclareSchedules(declaration), T0).await
}

async fn a_declaration_gives_the_owner_exactly_these(t: DriverUnderTest) {
    declare(&t, "billing", Some(1), &[("a", "1"), ("b", "1"), ("c", "1")]).await.expect("declared");
    fire_late(&t, "a").await;
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
            fire_late(&t, "a").await;
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

async fn a_declaration_that_names_a_schedule_twice_fails_as_a_call(t: DriverUnderTest) {
    let schedules = vec![new("a", "1", None), new("b", "1", None), new("a", "2", None)];
    let twice = Declaration::new(owner("o"), None, schedules);
    let changes = vec![Change::PutSchedule(new("p", "1", None)), Change::DeclareSchedules(twice)];
    let answer = t.driver.configure(Configure::new(changes, T0)).await;
    assert_eq!(invalid(answer), InvalidRequest::DuplicateSchedule(named("a")));
    assert_eq!(all(&t).await, []);
}
