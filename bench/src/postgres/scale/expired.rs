//! A fleet that died: many leases have run out together, and the jobs are taken again.

use std::{sync::Arc, time::Duration};

use taskharbor_core::Timestamp;
use taskharbor_postgres::PostgresDriver;

use super::super::{
    Outcome,
    server::Server,
    size::Sizes,
    store::{LEASE, Store, WakeUps, open, reserve},
};
use crate::finding::{Bound, Rounds, finding, head, median_ms, per_second};
use crate::stopwatch::now;

const SCHEMA: &str = "expired";
const CALLS: usize = 9;
const FEW: usize = 10;
const MOST_MS: f64 = 5.0;
const SESSIONS: usize = 8;
const DEMAND: usize = 50;
const SPELL: Duration = Duration::from_secs(5);
const LEAST_RATE: f64 = 5_000.0;

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    head(&format!("expired: {} leases ran out together", sizes.expired));
    let store = Arc::new(Store::new(server, SCHEMA, sizes.payload).await?);
    store.fill(sizes.expired, sizes.bulk).await?;
    let mut held = 0;
    while held < sizes.expired {
        held += match store.reserve(sizes.bulk).await?.len() {
            0 => return Err("jobs are missing".into()),
            count => count,
        };
    }
    store.vacuum().await?;
    // Time is an argument: all of them ran out a while ago.
    let later = store.clock.now().saturating_add(LEASE * 2);
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(open(server, SCHEMA, WakeUps::Off).await?);
    }
    // So that each round finds some.
    let share = sizes.expired / (sizes.rounds + 1) / SESSIONS;
    let [mut one, mut all] = [Rounds::default(), Rounds::default()];
    for _ in 0..sizes.rounds {
        one.push(calls(&sessions[0], later).await?);
        all.push(recovered(&sessions, later, share).await?);
    }
    store.check().await?;
    finding(&format!("reserve of {FEW}, median"), &one, " ms", 2, Bound::AtMost(MOST_MS));
    let what = format!("{SESSIONS} sessions, {DEMAND} in a call");
    finding(&what, &all, "/s", 0, Bound::AtLeast(LEAST_RATE));
    Ok(())
}

async fn calls(driver: &PostgresDriver, at: Timestamp) -> Outcome<f64> {
    let mut samples = Vec::new();
    for _ in 0..CALLS {
        let began = now();
        let jobs = reserve(driver, FEW, at, LEASE).await?;
        samples.push(began.elapsed());
        if jobs.len() < FEW {
            return Err("nothing is left: choose a larger expired=number".into());
        }
    }
    Ok(median_ms(&samples))
}

/// Jobs per second that the sessions take again together.
async fn recovered(sessions: &[PostgresDriver], at: Timestamp, share: usize) -> Outcome<f64> {
    let started = now();
    let session = |driver: &PostgresDriver| tokio::spawn(recover(driver.clone(), at, share));
    let running: Vec<_> = sessions.iter().map(session).collect();
    let mut count = 0;
    for session in running {
        count += session.await??;
    }
    Ok(per_second(count, started.elapsed()))
}

async fn recover(driver: PostgresDriver, at: Timestamp, share: usize) -> Outcome<usize> {
    let (started, mut count) = (now(), 0);
    while count < share && started.elapsed() < SPELL {
        match reserve(&driver, DEMAND, at, LEASE).await?.len() {
            0 => break,
            taken => count += taken,
        }
    }
    Ok(count)
}
