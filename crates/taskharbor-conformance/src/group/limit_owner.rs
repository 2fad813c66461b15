//! Limits as deploys and operators set them: stored, declared by an owner, moved, refused.

use std::time::Duration;

use taskharbor_core::{
    Admin, QueueName,
    admin::{
        Change, Configure, Declaration, LaneLimits, LimitsDeclaration, LimitsRecord, ListSettings,
        QueueLimits, Rate, Setting, SettingKind,
    },
    error::{Denied, InvalidRequest},
};

use super::schedule_owner::{declare as declare_schedules, owner};
use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{T0, at, invalid, job, queue},
    limits_under_test::{jobs_of, lane},
};

group! {
    limit_owner {
        limits_are_read_back_as_they_were_given ["LIM-8"]
        numbers_at_their_limits_are_stored_exactly ["LIM-8" "LIM-9"]
        limits_replace_those_before ["LIM-8"]
        a_declaration_gives_the_owner_exactly_these_limits ["LIM-8"]
        a_declaration_touches_no_limits_of_others ["LIM-8"]
        limits_of_another_owner_are_not_changed ["LIM-8"]
        a_denied_declaration_changes_nothing_at_all ["LIM-8"]
        schedules_and_limits_share_the_version_of_their_owner ["LIM-8" "SCH-11"]
        of_racing_declarations_of_limits_one_is_there_in_the_end ["LIM-8"]
        limits_are_imported_once ["LIM-8"]
        limits_are_listed_last_and_by_queue ["PAU-3" "LIM-8"]
        holds_and_charges_are_no_settings ["RAT-4" "PAU-3"]
        removing_limits_that_are_not_there_changes_nothing ["LIM-8"]
        invalid_limits_fail_as_a_call_and_change_nothing ["LIM-9"]
        a_declaration_that_names_a_queue_twice_fails_as_a_call ["LIM-9"]
        a_thousand_lanes_have_settings_and_not_one_more ["LIM-9"]
    }
    flows {}
}

fn record(name: &str, of: Option<&str>, limits: QueueLimits) -> LimitsRecord {
    LimitsRecord::new(queue(name), of.map(owner), limits)
}

fn inflight(jobs: u32) -> QueueLimits {
    QueueLimits::new().inflight(jobs)
}

/// Declares limits of jobs inflight; the answer as it is.
async fn declare(
    t: &DriverUnderTest,
    of: &str,
    version: Option<u64>,
    limits: &[(&str, u32)],
) -> Result<(), Denied> {
    let limits = limits.iter().map(|(name, jobs)| (queue(name), inflight(*jobs))).collect();
    t.change(Change::DeclareLimits(LimitsDeclaration::new(owner(of), version, limits)), T0).await
}

/// Everything that can be set.
fn all_set() -> QueueLimits {
    let rate = |jobs, millis| Rate::per(jobs, Duration::from_millis(millis));
    let lane = LaneLimits::new().inflight(7).rate(rate(1, 1).burst(2)).weight(5);
    QueueLimits::new()
        .inflight(50)
        .per_lane(2)
        .rate(rate(90, 10_000).burst(10))
        .lane_rate(rate(3, 1_001).burst(4))
        .lane("gold 🦀", lane)
        .lane("'; --", LaneLimits::new().inflight(1))
        .lane("rate", LaneLimits::new().rate(rate(2, 7)))
        .weight("Gold", 1_000)
}

async fn limits_are_read_back_as_they_were_given(t: DriverUnderTest) {
    t.limit_queue("all", all_set()).await;
    t.limit_queue("none", QueueLimits::new()).await;
    t.limit_queue("rate", QueueLimits::new().rate(Rate::per(1, Duration::from_micros(1)))).await;
    let all = t.all_limits().await;
    let rate = QueueLimits::new().rate(Rate::per(1, Duration::from_micros(1)));
    let expected = [("all", all_set()), ("none", QueueLimits::new()), ("rate", rate)];
    assert_eq!(all, expected.map(|(name, limits)| record(name, None, limits)));
}

async fn numbers_at_their_limits_are_stored_exactly(t: DriverUnderTest) {
    let micro = Duration::from_micros(1);
    let limits = [
        QueueLimits::new().inflight(1).per_lane(1),
        QueueLimits::new().inflight(1_000_000).per_lane(1_000_000),
        QueueLimits::new().rate(Rate::per(u32::MAX, micro).burst(u32::MAX)),
        QueueLimits::new().lane_rate(Rate::per(1, Rate::MAX_SPAN)),
        QueueLimits::new().rate(Rate::per(u32::MAX, Rate::MAX_SPAN)),
        QueueLimits::new().weight("a", 1_000).weight("b", 1),
    ];
    for limits in limits {
        t.limit(limits.clone()).await;
        assert_eq!(t.all_limits().await, [record("q", None, limits)]);
    }
}

async fn limits_replace_those_before(t: DriverUnderTest) {
    t.limit(all_set()).await;
    t.limit(inflight(3)).await;
    assert_eq!(t.all_limits().await, [record("q", None, inflight(3))]);
    t.remove_limits().await;
    assert_eq!(t.all_limits().await, []);
}

async fn a_declaration_gives_the_owner_exactly_these_limits(t: DriverUnderTest) {
    declare(&t, "billing", Some(1), &[("a", 1), ("b", 2), ("c", 3)]).await.expect("declared");
    declare(&t, "billing", Some(2), &[("d", 4), ("b", 5), ("a", 1)]).await.expect("declared");
    let shown = [("a", 1), ("b", 5), ("d", 4)];
    let expected = shown.map(|(name, jobs)| record(name, Some("billing"), inflight(jobs)));
    assert_eq!(t.all_limits().await, expected);
    t.put_all((0..3).map(|n| crate::fixture::job_in("c", &n.to_string())), T0).await;
    let jobs = t.reserve(&[("c", 9)], T0, crate::fixture::LEASE).await.expect("reserve").jobs;
    assert_eq!(jobs.len(), 3, "the limits of c are gone");
    declare(&t, "billing", None, &[]).await.expect("declared");
    assert_eq!(t.all_limits().await, []);
}

async fn a_declaration_touches_no_limits_of_others(t: DriverUnderTest) {
    t.limit(inflight(9)).await;
    declare(&t, "mail", Some(9), &[("m", 1)]).await.expect("declared");
    declare_schedules(&t, "billing", None, &[("s", "1")]).await.expect("declared");
    declare(&t, "billing", Some(1), &[("a", 1)]).await.expect("declared");
    declare(&t, "billing", Some(2), &[]).await.expect("declared");
    let expected = [record("m", Some("mail"), inflight(1)), record("q", None, inflight(9))];
    assert_eq!(t.all_limits().await, expected);
    assert_eq!(super::schedule_owner::all(&t).await.len(), 1, "schedules are another list");
    declare_schedules(&t, "mail", Some(9), &[]).await.expect("declared");
    assert_eq!(t.all_limits().await, expected);
}

fn owned(name: &str, of: Option<&str>) -> Result<(), Denied> {
    Err(Denied::LimitsOwned { queue: queue(name), owner: of.map(owner) })
}

async fn limits_of_another_owner_are_not_changed(t: DriverUnderTest) {
    declare(&t, "mail", None, &[("m", 1)]).await.expect("declared");
    t.limit_queue("p", inflight(1)).await;
    assert_eq!(declare(&t, "billing", None, &[("m", 2)]).await, owned("m", Some("mail")));
    assert_eq!(declare(&t, "billing", None, &[("p", 1)]).await, owned("p", None));
    for limits in [Some(inflight(1)), Some(inflight(2)), None] {
        let set = Change::SetLimits { queue: queue("m"), limits };
        assert_eq!(t.change(set, T0).await, owned("m", Some("mail")));
    }
    let expected = [record("m", Some("mail"), inflight(1)), record("p", None, inflight(1))];
    assert_eq!(t.all_limits().await, expected);
}

async fn a_denied_declaration_changes_nothing_at_all(t: DriverUnderTest) {
    declare(&t, "mail", None, &[("m", 1)]).await.expect("declared");
    declare(&t, "billing", Some(1), &[("a", 1), ("b", 1)]).await.expect("declared");
    let all = async || t.driver.settings(ListSettings::new(100)).await.expect("settings").items;
    let before = all().await;
    let denied = declare(&t, "billing", Some(2), &[("a", 2), ("c", 1), ("m", 1), ("d", 1)]).await;
    assert_eq!(denied, owned("m", Some("mail")));
    let old = declare(&t, "billing", Some(0), &[("a", 9)]).await;
    assert_eq!(old, Err(Denied::NewerVersion { stored: 1 }));
    assert_eq!(all().await, before);
}

async fn schedules_and_limits_share_the_version_of_their_owner(t: DriverUnderTest) {
    declare(&t, "billing", Some(5), &[("a", 1)]).await.expect("declared");
    let denied = Err(Denied::NewerVersion { stored: 5 });
    assert_eq!(declare_schedules(&t, "billing", Some(4), &[("s", "1")]).await, denied);
    declare_schedules(&t, "billing", Some(6), &[("s", "1")]).await.expect("declared");
    let denied = Err(Denied::NewerVersion { stored: 6 });
    assert_eq!(declare(&t, "billing", Some(5), &[]).await, denied);
    declare(&t, "billing", None, &[("a", 2)]).await.expect("declared");
    declare(&t, "billing", Some(0), &[("a", 3)]).await.expect("there was no version");
    assert_eq!(t.all_limits().await, [record("a", Some("billing"), inflight(3))]);
}

async fn of_racing_declarations_of_limits_one_is_there_in_the_end(t: DriverUnderTest) {
    for round in 0..5_u32 {
        let of = format!("owner-{round}");
        let racing = (1..6_u32).map(|version| {
            let (t, of) = (t.clone(), of.clone());
            async move {
                let only = format!("{of} only {version}");
                let (a, z) = (format!("{of} a"), format!("{of} z"));
                let mut limits = [(a.as_str(), version), (&only, version), (&z, version)];
                if version % 2 == 0 {
                    limits.reverse();
                }
                declare(&t, &of, Some(version.into()), &limits).await
            }
        });
        let answers = at_once(racing).await;
        assert_eq!(answers[4], Ok(()), "the highest version is never denied");
        let left = t.all_limits().await.into_iter().filter(|it| it.owner == Some(owner(&of)));
        let names = [format!("{of} a"), format!("{of} only 5"), format!("{of} z")];
        let expected = names.map(|name| record(&name, Some(&of), inflight(5)));
        assert_eq!(left.collect::<Vec<_>>(), expected, "{answers:?}");
    }
}

async fn limits_are_imported_once(t: DriverUnderTest) {
    let import = |it: LimitsRecord| Change::ImportLimits(Box::new(it));
    let stored = [record("a", Some("billing"), all_set()), record("b", None, inflight(1))];
    for _ in 0..2 {
        for it in &stored {
            assert_eq!(t.change(import(it.clone()), T0).await, Ok(()));
        }
        assert_eq!(t.all_limits().await, stored);
    }
    for other in [
        record("a", None, all_set()),
        record("a", Some("mail"), all_set()),
        record("a", Some("billing"), inflight(1)),
        record("b", None, inflight(2)),
    ] {
        let name = other.queue.clone();
        assert_eq!(t.change(import(other), T0).await, Err(Denied::LimitsExist(name)));
    }
    assert_eq!(t.all_limits().await, stored);
    let owners = t.driver.settings(ListSettings::new(9).kind(SettingKind::Owner)).await;
    assert_eq!(owners.expect("settings").items, [], "an import sets no version");
    t.put_all((0..2).map(|n| crate::fixture::job_in("b", &n.to_string())), T0).await;
    let jobs = t.reserve(&[("b", 9)], T0, crate::fixture::LEASE).await.expect("reserve").jobs;
    assert_eq!(jobs.len(), 1, "imported limits hold");
}

async fn limits_are_listed_last_and_by_queue(t: DriverUnderTest) {
    for name in ["b", "B", "a: colon", "é"] {
        t.limit_queue(name, inflight(1)).await;
    }
    t.driver.pause(queue("b"), T0).await.expect("pause");
    declare_schedules(&t, "billing", Some(1), &[("z", "1")]).await.expect("declared");
    let expected = [
        "paused_queue b",
        "owner billing",
        "schedule z",
        "limits B",
        "limits a: colon",
        "limits b",
        "limits é",
    ];
    for limit in [1, 2, 3, 7, 1_000] {
        let (mut all, mut request) = (Vec::new(), ListSettings::new(limit));
        loop {
            let page = t.driver.settings(request.clone()).await.expect("settings");
            let shown = |it: &Setting| format!("{} {}", it.kind().as_str(), it.name());
            all.extend(page.items.iter().map(shown));
            match page.next {
                Some(cursor) => request = request.after(cursor),
                None => break,
            }
        }
        assert_eq!(all, expected, "pages of {limit}");
    }
    let named = ListSettings::new(9).kind(SettingKind::Limits).name("b");
    let page = t.driver.settings(named).await.expect("settings");
    assert_eq!(page.items, [Setting::Limits(Box::new(record("b", None, inflight(1))))]);
}

async fn holds_and_charges_are_no_settings(t: DriverUnderTest) {
    t.hold(None, Some(at(9))).await;
    t.hold(Some("a"), Some(at(9))).await;
    let settings = t.driver.settings(ListSettings::new(9)).await.expect("settings");
    assert_eq!(settings.items, []);
    assert_eq!(t.counts(T0).await, []);
    t.hold(None, None).await;
    t.hold(Some("a"), None).await;
    let limits = QueueLimits::new().rate(Rate::per(1, Duration::from_secs(1)));
    t.limit(limits.clone()).await;
    t.put(job("1"), T0).await;
    t.take_the("1", T0).await;
    assert_eq!(t.all_limits().await, [record("q", None, limits)]);
}

async fn removing_limits_that_are_not_there_changes_nothing(t: DriverUnderTest) {
    for _ in 0..2 {
        t.remove_limits().await;
    }
    t.hold(Some("a"), None).await;
    assert_eq!(t.all_limits().await, []);
    assert_eq!(t.counts(T0).await, []);
}

async fn invalid_limits_fail_as_a_call_and_change_nothing(t: DriverUnderTest) {
    let second = Duration::from_secs(1);
    let own = |limits| QueueLimits::new().lane("a", limits);
    t.limit(inflight(7)).await;
    t.put_all(jobs_of("", 3), T0).await;
    let invalid_limits = [
        inflight(0),
        inflight(1_000_001),
        QueueLimits::new().per_lane(0),
        QueueLimits::new().per_lane(u32::MAX),
        QueueLimits::new().rate(Rate::per(0, second)),
        QueueLimits::new().rate(Rate::per(1, Duration::ZERO)),
        QueueLimits::new().rate(Rate::per(1, Duration::from_nanos(1_500))),
        QueueLimits::new().rate(Rate::per(1, Duration::MAX)),
        QueueLimits::new().rate(Rate::per(1, second).burst(0)),
        QueueLimits::new().lane_rate(Rate::per(1, second).burst(u32::MAX)),
        QueueLimits::new().lane_rate(Rate::per(1, Rate::MAX_SPAN + Duration::from_micros(1))),
        QueueLimits::new().weight("a", 0),
        QueueLimits::new().weight("a", 1_001),
        QueueLimits::new().weight("", 1),
        QueueLimits::new().weight("a\0b", 1),
        own(LaneLimits::new()),
        own(LaneLimits::new().inflight(0)),
        own(LaneLimits::new().rate(Rate::per(1, second).burst(0))),
    ];
    let name: QueueName = queue("q");
    for limits in invalid_limits {
        let rule = limits.check().expect_err("invalid");
        let set = Change::SetLimits { queue: name.clone(), limits: Some(limits.clone()) };
        let declaration = vec![(queue("x"), inflight(1)), (name.clone(), limits.clone())];
        let declaration = LimitsDeclaration::new(owner("o"), None, declaration);
        let import = LimitsRecord::new(queue("x"), None, limits);
        for change in
            [set, Change::DeclareLimits(declaration), Change::ImportLimits(Box::new(import))]
        {
            // What stands before it in the call is not done either.
            let removed = Change::SetLimits { queue: name.clone(), limits: None };
            let changes = vec![removed, Change::PauseQueue(name.clone()), change];
            let answer = t.driver.configure(Configure::new(changes, T0)).await;
            assert_eq!(invalid(answer), rule);
        }
    }
    assert_eq!(t.all_limits().await, [record("q", None, inflight(7))]);
    assert_eq!(t.take_many(9, T0).await.len(), 3, "the queue is not paused");
}

async fn a_declaration_that_names_a_queue_twice_fails_as_a_call(t: DriverUnderTest) {
    let limits = ["a", "b", "a"].map(|name| (queue(name), inflight(1)));
    let twice = LimitsDeclaration::new(owner("o"), None, limits.into());
    let request = Configure::new(vec![Change::DeclareLimits(twice)], T0);
    let answer = invalid(t.driver.configure(request).await);
    assert_eq!(answer, InvalidRequest::DuplicateQueue(queue("a")));
    let version = Some(Declaration::MAX_VERSION + 1);
    let too_high = LimitsDeclaration::new(owner("o"), version, Vec::new());
    let request = Configure::new(vec![Change::DeclareLimits(too_high)], T0);
    assert_eq!(invalid(t.driver.configure(request).await), InvalidRequest::Version);
    assert_eq!(t.all_limits().await, []);
}

async fn a_thousand_lanes_have_settings_and_not_one_more(t: DriverUnderTest) {
    let mut limits = QueueLimits::new();
    for n in 0..1_000 {
        limits.lanes.insert(lane(&format!("lane {n}")), LaneLimits::new().weight(2));
    }
    t.limit(limits.clone()).await;
    assert_eq!(t.all_limits().await, [record("q", None, limits.clone())]);
    let too_many = limits.weight("another", 2);
    let set = Change::SetLimits { queue: queue("q"), limits: Some(too_many) };
    let refused = invalid(t.driver.configure(Configure::new(vec![set], T0)).await);
    assert!(matches!(refused, InvalidRequest::OutOfRange { value: 1_001, max: 1_000, .. }));
}
