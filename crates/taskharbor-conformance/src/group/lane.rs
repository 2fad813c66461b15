//! Lanes as a part of a job: stored, shown, moved, and without effect on anything else.

use taskharbor_core::{
    Admin, State,
    admin::{Action, Filter, QueueLimits},
    export::Imported,
    name::LaneName,
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{LEASE, T0, ack, at, child, expand, fail, id, job, job_in, release, requeue, retry},
    limits_under_test::{in_lane, jobs_of, lane},
};

group! {
    lane {
        a_lane_is_read_back_by_people_and_workers ["JOB-1" "LAN-1"]
        jobs_are_listed_by_lane ["ADM-3"]
        any_name_can_be_a_lane ["JOB-3" "LAN-2"]
        a_name_that_is_no_lane_is_refused ["JOB-3"]
        lanes_of_one_name_in_two_queues_are_two ["LAN-1" "LIM-3"]
        a_job_stays_in_its_lane ["LAN-1"]
        a_lane_is_exported_and_imported_with_its_job ["MOV-2" "LAN-1"]
        an_existing_job_keeps_its_lane ["ENQ-4" "LAN-1"]
        a_key_is_held_across_lanes ["KEY-1" "LAN-1"]
        the_answer_lists_jobs_by_position_and_not_by_turn ["RES-5" "LAN-2"]
        counts_are_not_divided_by_lane ["ADM-4" "LAN-1"]
    }
    flows {
        members_of_a_flow_have_lanes_of_their_own ["LAN-1" "JOB-1"]
    }
}

async fn a_lane_is_read_back_by_people_and_workers(t: DriverUnderTest) {
    t.put_all([in_lane("acme", "a"), job("b")], T0).await;
    let shown = [("a", Some(lane("acme"))), ("b", None)];
    for (text, name) in &shown {
        assert_eq!(t.record(text, T0).await.job.lane, *name);
    }
    let listed = t.list(Filter::all(), 10, T0).await;
    let listed: Vec<_> = listed.into_iter().map(|job| job.lane).collect();
    assert_eq!(listed, [Some(lane("acme")), None]);
    for leased in t.take_many(2, T0).await {
        let name = shown.iter().find(|it| it.0 == leased.job.id.as_str());
        assert_eq!(Some(&leased.job.lane), name.map(|it| &it.1));
    }
}

async fn jobs_are_listed_by_lane(t: DriverUnderTest) {
    t.put_all([in_lane("a", "1"), in_lane("b", "2"), job("3"), in_lane("A", "4")], T0).await;
    t.put(job_in("other", "5").lane(lane("a")), T0).await;
    let listed = async |filter: Filter| -> Vec<String> {
        let jobs = t.list(filter, 1, T0).await;
        jobs.iter().map(|job| job.id.to_string()).collect()
    };
    assert_eq!(listed(Filter::all().lane(lane("a"))).await, ["1", "5"]);
    let mut in_queue = Filter::all().lane(lane("a"));
    in_queue.queue = Some(crate::fixture::queue("q"));
    assert_eq!(listed(in_queue).await, ["1"]);
    assert_eq!(listed(Filter::all().lane(lane("A"))).await, ["4"]);
    assert_eq!(listed(Filter::all().lane(lane("c"))).await, [""; 0]);
}

async fn any_name_can_be_a_lane(t: DriverUnderTest) {
    let longest = "x".repeat(255);
    let mut names = vec![
        "'",
        "\"",
        "\\",
        "%",
        "_",
        "$1",
        "; DROP TABLE th_jobs",
        "a b",
        " a",
        "a",
        "A",
        "NULL",
        "0",
        "é",
        "e\u{301}",
        "🦀",
        "ÿ",
        "\u{ffff}",
        "lane-",
        longest.as_str(),
    ];
    let jobs = names.iter().enumerate().map(|(n, name)| in_lane(name, &n.to_string()));
    t.put_all(jobs, T0).await;
    let mut taken = Vec::new();
    while let Some(leased) = t.take(T0).await {
        taken.push(leased.job.lane.map_or_else(String::new, |name| name.to_string()));
    }
    names.sort_by_key(|name| name.as_bytes());
    assert_eq!(taken, names, "lanes take turns byte by byte");
}

async fn a_name_that_is_no_lane_is_refused(_: DriverUnderTest) {
    for text in ["", " ", "a\nb", "\0", "x".repeat(256).as_str()] {
        assert!(LaneName::new(text).is_err(), "{text:?}");
    }
}

async fn lanes_of_one_name_in_two_queues_are_two(t: DriverUnderTest) {
    for name in ["q", "r"] {
        let jobs = (0..2).map(|n| job_in(name, &format!("{name}{n}")).lane(lane("a")));
        t.put_all(jobs, T0).await;
        t.limit_queue(name, QueueLimits::new().per_lane(1)).await;
    }
    for name in ["q", "r"] {
        let jobs = t.reserve(&[(name, 5)], T0, LEASE).await.expect("reserve").jobs;
        assert_eq!(jobs.len(), 1, "{name}");
    }
    t.hold(Some("a"), Some(at(100))).await;
    assert!(t.take_from("r", at(60)).await.is_some());
    assert_eq!(t.take_from("q", at(60)).await, None);
}

async fn a_job_stays_in_its_lane(t: DriverUnderTest) {
    t.put(in_lane("a", "a"), T0).await;
    for transition in [retry(None, T0), release(None), fail(T0)] {
        let leased = t.run("a", transition, T0).await;
        assert_eq!(leased.job.lane, Some(lane("a")));
    }
    t.act("a", requeue(), T0).await;
    assert_eq!(t.take_the("a", T0).await.job.lane, Some(lane("a")));
    // Reclaimed.
    assert_eq!(t.run("a", ack(), at(60)).await.job.lane, Some(lane("a")));
    let record = t.record("a", at(60)).await;
    assert_eq!((record.state, record.job.lane), (State::Done, Some(lane("a"))));
}

async fn a_lane_is_exported_and_imported_with_its_job(t: DriverUnderTest) {
    t.put_all([in_lane("a", "1"), job("2"), in_lane("b", "3"), in_lane("a", "4")], T0).await;
    t.take(T0).await.expect("a grant");
    let units = t.export(2).await;
    let other = t.another().await;
    assert_eq!(other.import(units.clone()).await, vec![Ok(Imported::Stored); 4]);
    assert_eq!(other.export(3).await, units);
    let lanes: Vec<_> = units.iter().map(|unit| unit.jobs[0].new.lane.clone()).collect();
    assert_eq!(lanes, [Some(lane("a")), None, Some(lane("b")), Some(lane("a"))]);
    assert_eq!(other.take_each(9, T0).await, ["1", "3", "4"]);
    taskharbor_core::Driver::close(&other.driver).await.expect("close");
}

async fn an_existing_job_keeps_its_lane(t: DriverUnderTest) {
    t.put(in_lane("a", "1"), T0).await;
    assert!(!t.put(in_lane("b", "1"), T0).await.is_new());
    assert_eq!(t.record("1", T0).await.job.lane, Some(lane("a")));
}

async fn a_key_is_held_across_lanes(t: DriverUnderTest) {
    let keyed = |name, text| in_lane(name, text).idempotency_key(crate::fixture::key("k"));
    t.put(keyed("a", "1"), T0).await;
    assert_eq!(*t.put(keyed("b", "2"), T0).await.id(), id("1"));
}

async fn the_answer_lists_jobs_by_position_and_not_by_turn(t: DriverUnderTest) {
    let jobs = [("b", "1"), ("b", "2"), ("a", "3"), ("a", "4"), ("c", "5")];
    t.put_all(jobs.map(|(name, text)| in_lane(name, text)), T0).await;
    t.put_all([in_lane("c", "high").priority(1), in_lane("a", "earlier")], T0).await;
    // By turns: high, then 3 of a, 1 of b, 5 of c, and 4 of a.
    assert_eq!(t.take_texts(5, T0).await, ["high", "1", "3", "4", "5"]);
    assert_eq!(t.take_texts(5, T0).await, ["2", "earlier"]);
}

async fn counts_are_not_divided_by_lane(t: DriverUnderTest) {
    t.put_all(jobs_of("a", 2).into_iter().chain(jobs_of("b", 1)).chain(jobs_of("", 1)), T0).await;
    t.limit(QueueLimits::new().inflight(1)).await;
    t.limit_queue("only limits", QueueLimits::new().inflight(1)).await;
    t.take_many(4, T0).await;
    let counts = t.counts(T0).await;
    assert_eq!(counts.len(), 1, "a queue without jobs is not counted: {counts:?}");
    assert_eq!((counts[0].states.ready, counts[0].states.inflight), (3, 1));
}

async fn members_of_a_flow_have_lanes_of_their_own(t: DriverUnderTest) {
    t.put_flow([in_lane("a", "1"), child("2", &["1"]).lane(lane("b")), child("3", &["2"])], T0)
        .await;
    t.run("1", expand([in_lane("c", "4"), child("5", &["4"])]), T0).await;
    for (text, name) in [("4", Some("c")), ("5", None), ("2", Some("b")), ("3", None)] {
        assert_eq!(t.run(text, ack(), T0).await.job.lane, name.map(lane), "{text}");
    }
    t.act("3", Action::PurgeFlow, T0).await;
    assert_eq!(t.driver.check().await.expect("check"), []);
}
