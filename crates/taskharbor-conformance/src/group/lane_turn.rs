//! Turns: from which lane the next job comes.

use taskharbor_core::{
    NewJob, State,
    admin::{Action, QueueLimits},
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{LEASE, T0, ack, at, job, job_in},
    limits_under_test::{in_lane, jobs_of, lane},
};

group! {
    lane_turn {
        lanes_take_turns_by_name ["LAN-2"]
        jobs_without_a_lane_are_the_first_lane ["LAN-2"]
        the_first_turn_of_all_is_the_first_lanes ["LAN-2"]
        a_turn_has_as_many_jobs_as_its_weight_says ["LAN-2"]
        single_grants_and_batches_take_the_same_turns ["LAN-2" "LAN-4"]
        a_turn_goes_on_with_the_next_call ["LAN-2"]
        a_turn_goes_on_in_other_priorities ["LAN-2"]
        another_weight_counts_from_the_next_job_on ["LAN-2" "LIM-8"]
        the_jobs_of_a_lane_come_in_their_order ["LAN-3" "ORD-1"]
        a_higher_priority_comes_first_in_any_lane ["ORD-1" "LAN-2"]
        a_small_lane_is_served_beside_a_backlog ["LAN-2" "LAN-4"]
        jobs_without_a_lane_do_not_starve ["LAN-2"]
        a_lane_without_a_job_to_grant_is_passed_by ["LAN-2" "LAN-4"]
        a_new_lane_gets_its_turn ["LAN-2"]
        a_scheduled_job_keeps_no_job_of_its_lane_waiting ["LAN-3" "RES-1"]
        a_reclaimed_job_waits_for_the_turn_of_its_lane ["LEA-2" "LAN-2"]
        a_marked_job_takes_no_part_of_a_turn ["LEA-5" "LAN-2"]
        all_jobs_of_many_lanes_are_granted_in_one_call ["LAN-4"]
        each_queue_has_turns_of_its_own ["LAN-1" "LAN-2"]
    }
    flows {}
}

async fn put_lanes(t: &DriverUnderTest, lanes: &[(&str, usize)]) {
    t.put_all(lanes.iter().flat_map(|(name, count)| jobs_of(name, *count)), T0).await;
}

async fn lanes_take_turns_by_name(t: DriverUnderTest) {
    put_lanes(&t, &[("b", 3), ("a", 3), ("c", 2), ("B", 1)]).await;
    let expected = ["B1", "a1", "b1", "c1", "a2", "b2", "c2", "a3", "b3"];
    assert_eq!(t.take_each(9, T0).await, expected);
}

async fn jobs_without_a_lane_are_the_first_lane(t: DriverUnderTest) {
    put_lanes(&t, &[("!", 2), ("a", 2), ("", 3)]).await;
    assert_eq!(t.take_each(9, T0).await, ["1", "!1", "a1", "2", "!2", "a2", "3"]);
}

async fn the_first_turn_of_all_is_the_first_lanes(t: DriverUnderTest) {
    put_lanes(&t, &[("c", 1), ("b", 2), ("a", 2)]).await;
    let mut taken = t.take_texts(2, T0).await;
    taken.sort();
    assert_eq!(taken, ["a1", "b1"]);
    assert_eq!(t.take_each(9, T0).await, ["c1", "a2", "b2"]);
}

async fn a_turn_has_as_many_jobs_as_its_weight_says(t: DriverUnderTest) {
    t.limit(QueueLimits::new().weight("gold", 3).weight("tin", 2)).await;
    put_lanes(&t, &[("gold", 7), ("tin", 3), ("", 3)]).await;
    let expected = [
        "1", "gold1", "gold2", "gold3", "tin1", "tin2", "2", "gold4", "gold5", "gold6", "tin3",
        "3", "gold7",
    ];
    assert_eq!(t.take_each(20, T0).await, expected);
}

/// The grants of several calls, each of which takes this many jobs.
async fn in_batches(t: &DriverUnderTest, name: &str, size: usize) -> Vec<Vec<String>> {
    let lanes = [("gold", 9), ("tin", 6), ("x", 4)];
    for (of, count) in lanes {
        let new = |n| job_in(name, &format!("{of}{n} of {name}")).lane(lane(of));
        t.put_all((1..=count).map(new), T0).await;
    }
    t.limit_queue(name, QueueLimits::new().weight("gold", 3).weight("tin", 2).inflight(100)).await;
    let mut batches = Vec::new();
    loop {
        let jobs = t.reserve(&[(name, size)], T0, LEASE).await.expect("reserve").jobs;
        let text = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
        let taken: Vec<_> = jobs.iter().map(|leased| text(leased.job.id.as_str())).collect();
        if taken.is_empty() {
            return batches;
        }
        batches.push(taken);
    }
}

async fn single_grants_and_batches_take_the_same_turns(t: DriverUnderTest) {
    let single: Vec<String> = in_batches(&t, "single", 1).await.into_iter().flatten().collect();
    assert_eq!(single.len(), 19);
    for size in [2, 3, 4, 5, 7, 19, 50] {
        let batches = in_batches(&t, &format!("by {size}"), size).await;
        let expected: Vec<Vec<String>> = single.chunks(size).map(<[String]>::to_vec).collect();
        assert_eq!(batches.len(), expected.len(), "by {size}");
        for (mut batch, mut expected) in batches.into_iter().zip(expected) {
            // A call lists its jobs by position.
            batch.sort();
            expected.sort();
            assert_eq!(batch, expected, "by {size}");
        }
    }
}

async fn a_turn_goes_on_with_the_next_call(t: DriverUnderTest) {
    t.limit(QueueLimits::new().weight("a", 3)).await;
    put_lanes(&t, &[("a", 6), ("b", 2)]).await;
    assert_eq!(t.take_texts(2, T0).await, ["a1", "a2"]);
    assert_eq!(t.take_each(6, at(1)).await, ["a3", "b1", "a4", "a5", "a6", "b2"]);
}

async fn a_turn_goes_on_in_other_priorities(t: DriverUnderTest) {
    put_lanes(&t, &[("a", 2), ("b", 2), ("c", 2)]).await;
    assert_eq!(t.take_each(1, T0).await, ["a1"]);
    t.put_all([in_lane("a", "high a").priority(5), in_lane("b", "high b").priority(5)], T0).await;
    assert_eq!(t.take_each(9, T0).await, ["high b", "high a", "b1", "c1", "a2", "b2", "c2"]);
}

async fn another_weight_counts_from_the_next_job_on(t: DriverUnderTest) {
    put_lanes(&t, &[("a", 6), ("b", 6)]).await;
    assert_eq!(t.take_each(3, T0).await, ["a1", "b1", "a2"]);
    t.limit(QueueLimits::new().weight("a", 3).weight("b", 2)).await;
    assert_eq!(t.take_each(4, T0).await, ["a3", "a4", "b2", "b3"]);
    t.remove_limits().await;
    assert_eq!(t.take_each(5, T0).await, ["a5", "b4", "a6", "b5", "b6"]);
}

async fn the_jobs_of_a_lane_come_in_their_order(t: DriverUnderTest) {
    let new = |text: &str| in_lane("a", text);
    t.put_all([new("late").run_at(at(5)), new("1"), new("2").priority(1), new("3")], T0).await;
    t.put_all([new("4"), new("5").priority(1)], at(1)).await;
    assert_eq!(t.take_each(9, at(9)).await, ["2", "5", "1", "3", "4", "late"]);
}

async fn a_higher_priority_comes_first_in_any_lane(t: DriverUnderTest) {
    put_lanes(&t, &[("a", 2), ("b", 2)]).await;
    let high: Vec<NewJob> = (1..=3).map(|n| in_lane("z", &format!("z{n}")).priority(1)).collect();
    t.put_all(high, T0).await;
    assert_eq!(t.take_each(9, T0).await, ["z1", "z2", "z3", "a1", "b1", "a2", "b2"]);
}

async fn a_small_lane_is_served_beside_a_backlog(t: DriverUnderTest) {
    put_lanes(&t, &[("big", 1_000)]).await;
    t.take_each(3, T0).await;
    t.put(in_lane("small", "small"), at(1)).await;
    assert!(t.take_each(2, at(1)).await.contains(&"small".to_owned()));
    t.put(in_lane("another", "another"), at(2)).await;
    assert!(t.take_texts(2, at(2)).await.contains(&"another".to_owned()));
}

async fn jobs_without_a_lane_do_not_starve(t: DriverUnderTest) {
    put_lanes(&t, &[("a", 50), ("b", 50)]).await;
    t.take_each(5, T0).await;
    t.put_all(jobs_of("", 5), at(1)).await;
    let taken = t.take_each(15, at(1)).await;
    let plain: Vec<_> = taken.iter().filter(|text| text.parse::<u32>().is_ok()).collect();
    assert_eq!(plain, ["1", "2", "3", "4", "5"], "{taken:?}");
    // Nor do lanes beside a backlog without one.
    t.put_all((10..200).map(|n| job(&n.to_string())), at(2)).await;
    let taken = t.take_each(6, at(2)).await;
    assert_eq!(taken.iter().filter(|text| text.starts_with('a')).count(), 2, "{taken:?}");
}

async fn a_lane_without_a_job_to_grant_is_passed_by(t: DriverUnderTest) {
    put_lanes(&t, &[("a", 1), ("c", 3)]).await;
    t.put(in_lane("b", "later").run_at(at(9)), T0).await;
    assert_eq!(t.take_each(9, T0).await, ["a1", "c1", "c2", "c3"]);
}

async fn a_new_lane_gets_its_turn(t: DriverUnderTest) {
    put_lanes(&t, &[("a", 3), ("c", 3)]).await;
    assert_eq!(t.take_each(1, T0).await, ["a1"]);
    put_lanes(&t, &[("b", 1)]).await;
    assert_eq!(t.take_each(9, T0).await, ["b1", "c1", "a2", "c2", "a3", "c3"]);
}

async fn a_scheduled_job_keeps_no_job_of_its_lane_waiting(t: DriverUnderTest) {
    t.put(in_lane("a", "future").run_at(at(9_000)), T0).await;
    put_lanes(&t, &[("a", 300)]).await;
    t.limit(QueueLimits::new().per_lane(400)).await;
    assert_eq!(t.take_many(400, T0).await.len(), 300);
}

async fn a_reclaimed_job_waits_for_the_turn_of_its_lane(t: DriverUnderTest) {
    // Jobs of one lane hang and lose their leases; those of the others go on all the same.
    put_lanes(&t, &[("hung", 4)]).await;
    t.take_many(4, T0).await;
    put_lanes(&t, &[("a", 10), ("z", 10)]).await;
    let taken = t.take_each(9, at(60)).await;
    let of = |name: &str| taken.iter().filter(|text| text.starts_with(name)).count();
    assert_eq!((of("hung"), of("a"), of("z")), (3, 3, 3), "{taken:?}");
}

async fn a_marked_job_takes_no_part_of_a_turn(t: DriverUnderTest) {
    put_lanes(&t, &[("b", 1)]).await;
    t.take(T0).await.expect("a grant");
    t.act("b1", Action::Cancel, T0).await;
    t.put_all(["b2", "b3"].map(|text| in_lane("b", text)), at(70)).await;
    put_lanes(&t, &[("a", 2)]).await;
    assert_eq!(t.take_each(9, at(80)).await, ["a1", "b2", "a2", "b3"]);
    assert_eq!(t.state("b1", at(80)).await, State::Cancelled);
}

async fn all_jobs_of_many_lanes_are_granted_in_one_call(t: DriverUnderTest) {
    let jobs = (0..120).map(|n| in_lane(&format!("lane {}", n % 40), &n.to_string()));
    t.put_all(jobs, T0).await;
    let jobs = t.take_many(200, T0).await;
    assert_eq!(jobs.len(), 120);
    t.apply_all(&jobs, ack(), T0).await;
}

async fn each_queue_has_turns_of_its_own(t: DriverUnderTest) {
    for name in ["q", "r"] {
        for of in ["a", "b"] {
            t.put_all((0..2).map(|n| job_in(name, &format!("{name}{of}{n}")).lane(lane(of))), T0)
                .await;
        }
    }
    assert_eq!(t.take_each(1, T0).await, ["qa0"]);
    let leased = t.take_from("r", T0).await.expect("a grant");
    assert_eq!(leased.job.id.as_str(), "ra0");
    assert_eq!(t.take_each(1, T0).await, ["qb0"]);
}
