//! Evictions beside everything that holders and other workers do.

use std::collections::HashSet;

use taskharbor_core::{
    State,
    driver::{Extended, Leased, Settled},
    error::Refusal,
};

use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{LEASE, T0, ack, at, extension, job, job_in},
};

group! {
    evict_race {
        an_ack_racing_an_eviction_wins_or_loses ["EVI-1" "EVI-2" "SET-10"]
        an_extension_racing_an_eviction_wins_or_loses ["EVI-1" "EVI-2" "LEA-7"]
        racing_evictions_count_each_lease_once ["EVI-2"]
        evictions_racing_reserves_give_every_job_to_one_worker ["EVI-1" "RES-4" "RES-9"]
    }
    flows {}
}

const ROUNDS: usize = 40;

/// What came of a meeting of a holder and an eviction.
#[derive(Debug)]
enum Met {
    Settled(Result<Settled, Refusal>),
    Extended(Result<Extended, Refusal>),
    Evicted(usize),
}

async fn held(t: &DriverUnderTest, round: usize) -> Leased {
    let name = round.to_string();
    t.put(job_in(&name, &name), T0).await;
    t.take_as(&name, &name, 1, T0).await.remove(0)
}

async fn an_ack_racing_an_eviction_wins_or_loses(t: DriverUnderTest) {
    for round in 0..ROUNDS {
        let (name, leased) = (round.to_string(), held(&t, round).await);
        let answers = at_once([true, false].map(|acks| {
            let (t, leased, name) = (t.clone(), leased.clone(), name.clone());
            async move {
                if acks {
                    return Met::Settled(t.settle(&leased, ack(), at(1)).await);
                }
                Met::Evicted(t.evict(&name, at(1)).await)
            }
        }))
        .await;
        let again = t.take_as("other", &name, 1, at(1)).await;
        match &answers[..] {
            [Met::Settled(Ok(Settled::Applied)), Met::Evicted(0)] => {
                assert_eq!(again, []);
                assert_eq!(t.state(&name, at(1)).await, State::Done);
            }
            [Met::Settled(Err(Refusal::LeaseExpired)), Met::Evicted(1)] => {
                assert_eq!(again.len(), 1, "the job is lost");
                t.apply_all(&again, ack(), at(1)).await;
            }
            other => panic!("{other:?}"),
        }
    }
}

async fn an_extension_racing_an_eviction_wins_or_loses(t: DriverUnderTest) {
    for round in 0..ROUNDS {
        let (name, leased) = (round.to_string(), held(&t, round).await);
        let answers = at_once([true, false].map(|extends| {
            let (t, leased, name) = (t.clone(), leased.clone(), name.clone());
            async move {
                if extends {
                    return Met::Extended(t.extend(&leased, at(1), LEASE * 100).await);
                }
                Met::Evicted(t.evict(&name, at(1)).await)
            }
        }))
        .await;
        // An eviction ends the lease whether it was extended before or not.
        match &answers[..] {
            [Met::Extended(Ok(extended)), Met::Evicted(1)] => {
                let leased = Leased::new(leased.job, extended.lease);
                t.refuses(&leased, Refusal::LeaseExpired, at(1)).await;
            }
            [Met::Extended(Err(Refusal::LeaseExpired)), Met::Evicted(1)] => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(t.take_as("other", &name, 1, at(1)).await.len(), 1, "the job is lost");
    }
}

async fn racing_evictions_count_each_lease_once(t: DriverUnderTest) {
    for round in 0..10 {
        t.put_all((0..20).map(|n| job(&format!("{round} {n}"))), T0).await;
        let leases = t.take_as("w", "q", 20, T0).await;
        let items = leases[..10].iter().map(extension).collect();
        t.extend_all(items, T0, LEASE * 2).await;
        let counts = at_once([0; 4].map(|_| {
            let t = t.clone();
            async move { t.evict("w", at(1)).await }
        }))
        .await;
        assert_eq!(counts.iter().sum::<usize>(), 20, "{counts:?}");
        let again = t.take_as("v", "q", 20, at(1)).await;
        assert_eq!(again.len(), 20);
        t.apply_all(&again, ack(), at(1)).await;
    }
}

async fn evictions_racing_reserves_give_every_job_to_one_worker(t: DriverUnderTest) {
    for round in 0..10 {
        t.put_all((0..24).map(|n| job(&format!("{round} {n}"))), T0).await;
        let old = t.take_as("w", "q", 24, T0).await;
        let granted = at_once((0..6).map(|task| {
            let t = t.clone();
            async move {
                if task == 0 {
                    assert_eq!(t.evict("w", at(1)).await, 24);
                }
                let mut granted = Vec::new();
                for _ in 0..6 {
                    granted.extend(t.take_as(&format!("v{task}"), "q", 3, at(1)).await);
                }
                granted
            }
        }))
        .await
        .concat();
        let ids: HashSet<_> = granted.iter().map(|it| &it.job.id).collect();
        assert_eq!(ids.len(), granted.len(), "a job was granted twice");
        for leased in &old {
            let answer = t.settle(leased, ack(), at(1)).await;
            assert!(answer.is_err(), "{answer:?}");
        }
        t.apply_all(&granted, ack(), at(1)).await;
        let left = t.take_many(24, at(1)).await;
        assert_eq!(granted.len() + left.len(), 24, "a job was lost");
        t.apply_all(&left, ack(), at(1)).await;
    }
}
