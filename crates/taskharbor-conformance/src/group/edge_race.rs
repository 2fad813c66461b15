//! Concurrent calls on the same flow: each change takes effect exactly once.

use taskharbor_core::{
    NewJob, State,
    driver::{Enqueued, Leased, Settled},
    job::JobSet,
};

use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{T0, ack, id, job, join, key},
};

group! {
    edge_race {}
    flows {
        racing_acks_of_the_last_parents_unblock_their_dependant_once ["FLO-8"]
        racing_repeats_of_an_ack_count_once ["FLO-8" "FLO-2" "SET-10"]
        racing_acks_through_a_join_unblock_its_dependant_once ["FLO-8" "FLO-6"]
        workers_that_race_through_a_flow_run_every_member_once ["FLO-8" "RES-9"]
        racing_enqueues_of_one_flow_store_it_once ["FLO-5" "ENQ-7"]
        racing_flows_with_one_key_store_one_of_them ["FLO-4" "KEY-6"]
        racing_calls_that_name_many_flows_in_any_order_all_succeed ["FLO-8" "FLO-1"]
    }
}

const ROUNDS: usize = 12;
const MEMBERS: usize = 12;

/// This many jobs, and one after all of them.
fn chord(round: usize) -> (Vec<NewJob>, String) {
    let names: Vec<String> = (0..MEMBERS).map(|n| format!("{round}-{n}")).collect();
    let end = format!("{round}-end");
    let mut jobs: Vec<NewJob> = names.iter().map(|name| job(name)).collect();
    jobs.push(job(&end).after(names.iter().map(|name| id(name))));
    (jobs, end)
}

async fn ack_one(t: DriverUnderTest, leased: Leased) -> Settled {
    t.settle(&leased, ack(), T0).await.expect("not refused")
}

/// The grants that many tasks get when all ask at once.
async fn all_take(t: &DriverUnderTest) -> Vec<String> {
    let asked = (0..8).map(|_| {
        let t = t.clone();
        async move { t.take(T0).await }
    });
    let granted = at_once(asked).await;
    let ids = granted.iter().flatten().map(|it| it.job.id.to_string());
    ids.collect()
}

async fn racing_acks_of_the_last_parents_unblock_their_dependant_once(t: DriverUnderTest) {
    for round in 0..ROUNDS {
        let (jobs, end) = chord(round);
        t.put_flow(jobs, T0).await;
        let members = t.take_many(MEMBERS, T0).await;
        let acks = members.into_iter().map(|leased| ack_one(t.clone(), leased));
        assert_eq!(at_once(acks).await, [Settled::Applied; MEMBERS]);
        let record = t.record(&end, T0).await;
        assert_eq!((record.state, record.pending), (State::Ready, 0));
        assert_eq!(all_take(&t).await, [end.as_str()]);
        assert_eq!(t.record(&end, T0).await.job.deliveries, 1);
    }
}

async fn racing_repeats_of_an_ack_count_once(t: DriverUnderTest) {
    for round in 0..ROUNDS {
        let (jobs, end) = chord(round);
        t.put_flow(jobs, T0).await;
        let mut members = t.take_many(MEMBERS, T0).await;
        let last = members.pop().expect("members");
        let twice = members.iter().flat_map(|leased| [leased, leased]);
        let acks = twice.map(|leased| ack_one(t.clone(), leased.clone()));
        let answers = at_once(acks).await;
        for pair in answers.chunks(2) {
            let applied = pair.iter().filter(|it| **it == Settled::Applied);
            assert_eq!(applied.count(), 1, "{pair:?}");
        }
        let record = t.record(&end, T0).await;
        assert_eq!((record.state, record.pending), (State::Blocked, 1));
        t.apply(&last, ack(), T0).await;
        t.run(&end, ack(), T0).await;
    }
}

async fn racing_acks_through_a_join_unblock_its_dependant_once(t: DriverUnderTest) {
    for round in 0..ROUNDS {
        let (mut jobs, end) = chord(round);
        jobs.pop();
        let (left, right) = jobs.split_at(MEMBERS / 2);
        let of = |name: &str, members: &[NewJob]| {
            join(name, &[]).after(members.iter().map(|job| job.id.clone()))
        };
        let names = [format!("{round}-left"), format!("{round}-right")];
        let joins = [of(&names[0], left), of(&names[1], right)];
        jobs.extend(joins);
        jobs.push(job(&end).after(names.iter().map(|name| id(name))));
        t.put_flow(jobs, T0).await;
        let members = t.take_many(MEMBERS, T0).await;
        at_once(members.into_iter().map(|leased| ack_one(t.clone(), leased))).await;
        let record = t.record(&end, T0).await;
        assert_eq!((record.state, record.pending), (State::Ready, 0));
        assert_eq!(all_take(&t).await, [end.as_str()]);
    }
}

async fn workers_that_race_through_a_flow_run_every_member_once(t: DriverUnderTest) {
    let (jobs, _) = chord(0);
    let count = jobs.len();
    t.put_flow(jobs, T0).await;
    let work = (0..8).map(|_| {
        let t = t.clone();
        async move {
            let mut ran = Vec::new();
            // Bounded, so that a driver that loses a member fails the case instead of hanging it.
            for _ in 0..10_000 {
                if t.flow("0-end", T0).await.finished_at.is_some() {
                    break;
                }
                if let Some(leased) = t.take(T0).await {
                    t.apply(&leased, ack(), T0).await;
                    ran.push(leased.job.id);
                }
                tokio::task::yield_now().await;
            }
            ran
        }
    });
    let ran: Vec<_> = at_once(work).await.into_iter().flatten().collect();
    assert_eq!(ran.len(), count);
    for text in &ran {
        assert_eq!(t.record(text.as_str(), T0).await.job.deliveries, 1);
    }
}

async fn racing_enqueues_of_one_flow_store_it_once(t: DriverUnderTest) {
    for round in 0..ROUNDS {
        let (jobs, end) = chord(round);
        let enqueues = (0..8).map(|_| {
            let (t, jobs) = (t.clone(), jobs.clone());
            async move { t.put_flow(jobs, T0).await }
        });
        let answers = at_once(enqueues).await;
        let whole = answers.iter().filter(|it| it.iter().all(Enqueued::is_new));
        assert_eq!(whole.count(), 1);
        let stored = answers.iter().flatten().filter(|it| it.is_new());
        assert_eq!(stored.count(), jobs.len());
        assert_eq!(t.record(&end, T0).await.pending, MEMBERS);
    }
}

async fn racing_flows_with_one_key_store_one_of_them(t: DriverUnderTest) {
    for round in 0..ROUNDS {
        let enqueues = (0..8).map(|n| {
            let t = t.clone();
            async move {
                let names = [format!("{round}-{n}"), format!("{round}-{n}-end")];
                let end = job(&names[1]).after([id(&names[0])]);
                let end = end.idempotency_key(key(&format!("k{round}")));
                let set = JobSet::flow(vec![job(&names[0]), end]);
                t.enqueue_set(set, T0).await.expect("not rejected")
            }
        });
        let answers = at_once(enqueues).await;
        let winner = answers.iter().find(|it| it.iter().all(Enqueued::is_new));
        let tail = winner.expect("one is stored")[1].id();
        let existing = vec![Enqueued::Existing(tail.clone()); 2];
        let losers = answers.iter().filter(|it| **it == existing);
        assert_eq!(losers.count(), 7, "{answers:?}");
    }
    let stored = t.snapshot(T0).await;
    assert_eq!(stored.records.len(), 2 * ROUNDS);
    assert_eq!(stored.flows.len(), ROUNDS);
}

async fn racing_calls_that_name_many_flows_in_any_order_all_succeed(t: DriverUnderTest) {
    for round in 0..ROUNDS {
        let mut calls: Vec<Vec<Leased>> = vec![Vec::new(); MEMBERS];
        let mut ends = Vec::new();
        for flow in 0..4 {
            let (jobs, end) = chord(round * 4 + flow);
            t.put_flow(jobs, T0).await;
            ends.push(end);
            for (call, leased) in calls.iter_mut().zip(t.take_many(MEMBERS, T0).await) {
                call.push(leased);
            }
        }
        for (n, call) in calls.iter_mut().enumerate() {
            call.rotate_left(n % 4);
            if n % 2 == 1 {
                call.reverse();
            }
        }
        let acks = calls.into_iter().map(|call| {
            let t = t.clone();
            async move { t.apply_all(&call, ack(), T0).await }
        });
        at_once(acks).await;
        for end in ends {
            t.run(&end, ack(), T0).await;
        }
        assert_eq!(t.take(T0).await, None);
    }
}
