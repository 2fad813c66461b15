//! Queues that are paused, and resumed.

use taskharbor_core::{
    Admin, State, Timestamp,
    admin::{Action, Change, Configure, ListSettings, QueueCounts, Setting},
    driver::Settled,
    error::InvalidRequest,
    job::FailurePolicy,
};

use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{LEASE, T0, ack, at, child, id, invalid, job, job_in, join, queue, requeue, retry},
};

group! {
    pause {
        a_paused_queue_gives_nothing_until_it_is_resumed ["PAU-1" "PAU-2"]
        a_paused_queue_has_no_next_due_time ["PAU-1" "RES-7"]
        a_paused_queue_keeps_its_expired_leases_until_it_is_resumed ["PAU-1" "PAU-2" "LEA-3"]
        a_cancel_mark_waits_with_the_lease_in_a_paused_queue ["PAU-1" "CAN-4"]
        other_queues_are_not_affected ["PAU-1"]
        holders_of_a_paused_queues_jobs_go_on ["PAU-1"]
        people_can_manage_a_paused_queue ["PAU-1"]
        pausing_twice_keeps_the_first_time ["PAU-2" "ADM-4"]
        a_queue_paused_again_is_paused_since_then ["PAU-2" "ADM-4"]
        a_queue_without_jobs_can_be_paused ["PAU-1" "PAU-2" "ADM-4"]
        a_paused_queue_stays_paused_when_its_last_job_is_gone ["PAU-1"]
        resuming_a_queue_that_is_not_paused_changes_nothing ["PAU-2"]
        pausing_loses_no_job_to_a_racing_reserve ["PAU-1" "PAU-2"]
        settings_are_read_in_pages_by_name_each_once ["PAU-3"]
        a_page_of_settings_has_one_to_a_thousand ["PAU-3"]
        changes_of_settings_are_made_in_the_order_given ["PAU-4"]
        a_call_without_changes_has_no_answers ["PAU-4"]
    }
    flows {
        flows_go_on_within_a_paused_queue ["PAU-1"]
    }
}

async fn pause(t: &DriverUnderTest, name: &str, now: Timestamp) {
    t.driver.pause(queue(name), now).await.expect("pause");
}

async fn resume(t: &DriverUnderTest, name: &str) {
    t.driver.resume(queue(name), T0).await.expect("resume");
}

/// The list's entry for one queue, if there is one.
async fn counts(t: &DriverUnderTest, name: &str, now: Timestamp) -> Option<QueueCounts> {
    let all = t.counts(now).await;
    all.into_iter().find(|it| it.queue == queue(name))
}

async fn a_paused_queue_gives_nothing_until_it_is_resumed(t: DriverUnderTest) {
    t.put_all([job("a"), job("b")], T0).await;
    pause(&t, "q", T0).await;
    t.put(job("c"), at(1)).await;
    assert_eq!(t.take_order(at(2)).await, [""; 0]);
    resume(&t, "q").await;
    assert_eq!(t.take_order(at(2)).await, ["a", "b", "c"]);
}

async fn a_paused_queue_has_no_next_due_time(t: DriverUnderTest) {
    t.put_all([job("a"), job("b").run_at(at(9))], T0).await;
    t.take_the("a", T0).await;
    pause(&t, "q", T0).await;
    let reserved = t.reserve(&[("q", 5)], at(1), LEASE).await;
    let reserved = reserved.expect("reserve");
    assert!(reserved.jobs.is_empty());
    assert_eq!(reserved.next_due, None);
}

async fn a_paused_queue_keeps_its_expired_leases_until_it_is_resumed(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    t.take_the("a", T0).await;
    pause(&t, "q", at(1)).await;
    let held = t.record("a", at(61)).await;
    assert_eq!(held.state, State::Inflight);
    assert_eq!(t.take(at(61)).await, None);
    assert_eq!(t.record("a", at(61)).await, held);
    resume(&t, "q").await;
    let leased = t.take_the("a", at(62)).await;
    assert_eq!(leased.job.expirations, 1);
}

async fn a_cancel_mark_waits_with_the_lease_in_a_paused_queue(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    t.take_the("a", T0).await;
    t.act("a", Action::Cancel, T0).await;
    pause(&t, "q", T0).await;
    assert_eq!(t.take(at(61)).await, None);
    assert_eq!(t.state("a", at(61)).await, State::Inflight);
    resume(&t, "q").await;
    assert_eq!(t.take(at(61)).await, None);
    assert_eq!(t.state("a", at(61)).await, State::Cancelled);
}

async fn other_queues_are_not_affected(t: DriverUnderTest) {
    let jobs = [job_in("p", "a"), job_in("o", "b"), job_in("o", "c")];
    t.put_all(jobs, T0).await;
    t.put(job_in("o", "later").run_at(at(9)), T0).await;
    t.put(job_in("p", "sooner").run_at(at(5)), T0).await;
    pause(&t, "p", T0).await;
    let reserved = t.reserve(&[("p", 5), ("o", 5)], T0, LEASE).await;
    let reserved = reserved.expect("reserve");
    let granted: Vec<&str> = reserved.jobs.iter().map(|it| it.job.id.as_str()).collect();
    assert_eq!(granted, ["b", "c"]);
    let next_due = reserved.next_due.expect("something is scheduled");
    assert!(T0 < next_due && next_due <= at(9), "{next_due}");
}

async fn holders_of_a_paused_queues_jobs_go_on(t: DriverUnderTest) {
    t.put_all([job("a"), job("b")], T0).await;
    let leased = t.take_many(2, T0).await;
    pause(&t, "q", T0).await;
    let kept = t.keep(&leased[0], at(30), LEASE).await;
    assert_eq!(kept.lease.expires_at, at(90));
    t.apply(&leased[1], retry(None, at(30)), at(30)).await;
    let acked = t.settle(&kept, ack(), at(80)).await;
    assert_eq!(acked, Ok(Settled::Applied));
    assert_eq!(t.states(&["a", "b"], at(80)).await, [State::Done, State::Ready]);
    assert_eq!(t.take(at(80)).await, None);
}

async fn people_can_manage_a_paused_queue(t: DriverUnderTest) {
    t.put_all([job("a"), job("b").run_at(at(9))], T0).await;
    pause(&t, "q", T0).await;
    assert_eq!(t.act("a", Action::Cancel, T0).await, State::Cancelled);
    assert_eq!(t.act("a", requeue(), T0).await, State::Ready);
    assert_eq!(t.act("b", Action::RunNow, T0).await, State::Ready);
    t.act("b", Action::SetPriority(5), T0).await;
    assert_eq!(t.take(T0).await, None);
    resume(&t, "q").await;
    assert_eq!(t.take_order(T0).await, ["b", "a"]);
}

async fn flows_go_on_within_a_paused_queue(t: DriverUnderTest) {
    let a = job_in("other", "a").on_failure(FailurePolicy::Continue);
    let jobs = [a, join("j", &["a"]), child("b", &["j"])];
    t.put_flow(jobs, T0).await;
    pause(&t, "q", T0).await;
    let leased = t.take_from("other", T0).await.expect("not paused");
    assert_eq!(leased.job.id, id("a"));
    t.apply(&leased, ack(), at(1)).await;
    assert_eq!(t.states(&["j", "b"], at(1)).await, [State::Done, State::Ready]);
    assert_eq!(t.take(at(1)).await, None);
    resume(&t, "q").await;
    t.take_the("b", at(1)).await;
}

async fn pausing_twice_keeps_the_first_time(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    pause(&t, "q", at(1)).await;
    pause(&t, "q", at(2)).await;
    let told = counts(&t, "q", at(3)).await.expect("it is listed");
    assert_eq!(told.paused_since, Some(at(1)));
    assert_eq!(told.states.ready, 1);
    resume(&t, "q").await;
    let told = counts(&t, "q", at(3)).await.expect("it is listed");
    assert_eq!(told.paused_since, None);
    t.take_the("a", at(3)).await;
}

async fn a_queue_paused_again_is_paused_since_then(t: DriverUnderTest) {
    pause(&t, "q", at(1)).await;
    resume(&t, "q").await;
    pause(&t, "q", at(5)).await;
    let told = counts(&t, "q", at(9)).await.expect("it is listed");
    assert_eq!(told.paused_since, Some(at(5)));
}

async fn a_queue_without_jobs_can_be_paused(t: DriverUnderTest) {
    pause(&t, "q", T0).await;
    let mut expected = QueueCounts::new(queue("q"));
    expected.paused_since = Some(T0);
    assert_eq!(counts(&t, "q", T0).await, Some(expected));
    t.put(job("a"), T0).await;
    assert_eq!(t.take(T0).await, None);
    resume(&t, "q").await;
    t.take_the("a", T0).await;
}

async fn a_paused_queue_stays_paused_when_its_last_job_is_gone(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    t.act("a", Action::Cancel, T0).await;
    pause(&t, "q", T0).await;
    t.act("a", Action::Purge, T0).await;
    t.put(job("b"), T0).await;
    assert_eq!(t.take(T0).await, None);
}

async fn resuming_a_queue_that_is_not_paused_changes_nothing(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    let before = t.snapshot(T0).await;
    resume(&t, "q").await;
    resume(&t, "never seen").await;
    assert_eq!(t.snapshot(T0).await, before);
}

async fn pausing_loses_no_job_to_a_racing_reserve(t: DriverUnderTest) {
    for round in 0..12 {
        t.put_all((0..3).map(|n| job(&format!("{round}-{n}"))), T0).await;
        let taken = at_once((0..4).map(|n| {
            let t = t.clone();
            async move {
                if n == 0 {
                    pause(&t, "q", T0).await;
                    return 0;
                }
                t.take_many(1, T0).await.len()
            }
        }));
        let taken: usize = taken.await.into_iter().sum();
        resume(&t, "q").await;
        assert_eq!(taken + t.take_order(T0).await.len(), 3);
    }
}

/// All settings, in pages of this size.
async fn settings(t: &DriverUnderTest, limit: usize) -> Vec<(String, Timestamp)> {
    let mut request = ListSettings::new(limit);
    let mut all = Vec::new();
    loop {
        let page = t.driver.settings(request.clone()).await.expect("settings");
        assert!(page.items.len() <= limit, "more than a page");
        for setting in page.items {
            let Setting::PausedQueue { queue, since } = setting else { continue };
            all.push((queue.to_string(), since));
        }
        match page.next {
            Some(cursor) => request = request.after(cursor),
            None => return all,
        }
    }
}

async fn settings_are_read_in_pages_by_name_each_once(t: DriverUnderTest) {
    assert_eq!(settings(&t, 10).await, []);
    // Byte by byte: capitals first, and no letter of another script before plain ones.
    let mut names = ["b", "a", "B", "é", "a b", "a_b", "ab", "Z", "z", "\u{10ffff}"];
    for (n, name) in names.iter().enumerate() {
        pause(&t, name, at(n as u64)).await;
    }
    let mut expected: Vec<_> =
        names.iter().enumerate().map(|(n, name)| ((*name).to_owned(), at(n as u64))).collect();
    expected.sort();
    names.sort_unstable();
    for limit in [1, 3, 9, 10, 11, 1_000] {
        assert_eq!(settings(&t, limit).await, expected, "{limit}");
    }
    resume(&t, "a b").await;
    expected.retain(|(name, _)| name != "a b");
    assert_eq!(settings(&t, 2).await, expected);
}

async fn a_page_of_settings_has_one_to_a_thousand(t: DriverUnderTest) {
    for limit in [0, 1_001] {
        let refused = invalid(t.driver.settings(ListSettings::new(limit)).await);
        assert!(matches!(refused, InvalidRequest::OutOfRange { value, .. } if value == limit));
    }
}

async fn changes_of_settings_are_made_in_the_order_given(t: DriverUnderTest) {
    let pause = |name| Change::PauseQueue(queue(name));
    let resume = |name| Change::ResumeQueue(queue(name));
    let changes = vec![pause("a"), resume("a"), pause("b"), pause("b"), resume("c"), pause("a")];
    let answers = t.driver.configure(Configure::new(changes, at(1))).await.expect("configure");
    assert_eq!(answers, vec![Ok(()); 6]);
    let expected = ["a", "b"].map(|name| (name.to_owned(), at(1)));
    assert_eq!(settings(&t, 10).await, expected);
    let changes = vec![resume("a"), pause("a"), pause("b")];
    t.driver.configure(Configure::new(changes, at(2))).await.expect("configure");
    assert_eq!(settings(&t, 10).await, [("a".to_owned(), at(2)), ("b".to_owned(), at(1))]);
}

async fn a_call_without_changes_has_no_answers(t: DriverUnderTest) {
    let answers = t.driver.configure(Configure::new(Vec::new(), T0)).await;
    assert_eq!(answers.expect("configure"), []);
}
