//! The state of the machine: a fixed piece of processor work, and a fixed number of commits.
//!
//! What other programs and other machines on the same host do is in every figure. A round whose gate
//! is much slower than the best one is repeated, and marked if it stays so.

use std::{hint::black_box, time::Duration};

use serde::{Deserialize, Serialize};
use tokio_postgres::Client;

use super::Outcome;
use crate::{postgres::Server, stopwatch::now};

const STEPS: u64 = 30_000_000;
const COMMITS: usize = 200;
/// How long a machine gets to become quiet, and how often.
const PAUSE: Duration = Duration::from_secs(3);
const PAUSES: usize = 5;

/// What the fixed work took, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Reading {
    pub(crate) processor_ms: f64,
    pub(crate) commits_ms: f64,
}

impl Reading {
    /// The least, or the most, of two.
    fn with(self, other: Self, choose: fn(f64, f64) -> f64) -> Self {
        Self {
            processor_ms: choose(self.processor_ms, other.processor_ms),
            commits_ms: choose(self.commits_ms, other.commits_ms),
        }
    }

    pub(crate) fn worst(self, other: Self) -> Self {
        self.with(other, f64::max)
    }
}

pub(crate) struct Gate {
    sql: Client,
    best: Reading,
    /// How many times as slow as the best a quiet reading may be.
    most: f64,
}

impl Gate {
    pub(crate) async fn new(server: &Server, hundredths: usize) -> Outcome<Self> {
        let sql = server.connect("public").await?;
        sql.batch_execute("CREATE TABLE IF NOT EXISTS gate (number bigint)").await?;
        let most = 1.0 + f64::from(u32::try_from(hundredths)?) / 100.0;
        let best = read(&sql).await?;
        let mut gate = Self { sql, best, most };
        for _ in 0..5 {
            gate.read().await?;
        }
        Ok(gate)
    }

    pub(crate) async fn read(&mut self) -> Outcome<Reading> {
        let reading = read(&self.sql).await?;
        self.best = self.best.with(reading, f64::min);
        Ok(reading)
    }

    pub(crate) fn is_quiet(&self, reading: Reading) -> bool {
        reading.processor_ms <= self.best.processor_ms * self.most
            && reading.commits_ms <= self.best.commits_ms * self.most
    }

    /// Waits a while for the machine to become quiet.
    pub(crate) async fn wait(&mut self) -> Outcome<Reading> {
        let mut reading = self.read().await?;
        for _ in 0..PAUSES {
            if self.is_quiet(reading) {
                break;
            }
            tokio::time::sleep(PAUSE).await;
            reading = self.read().await?;
        }
        Ok(reading)
    }
}

async fn read(sql: &Client) -> Outcome<Reading> {
    let started = now();
    let mut state = black_box(1_u64);
    for step in 0..STEPS {
        // Each step needs the one before it, and no step can be skipped.
        state ^= state << 13;
        state ^= state >> 7;
        state = (state ^ (state << 17)).wrapping_add(step);
    }
    black_box(state);
    let processor_ms = started.elapsed().as_secs_f64() * 1e3;
    let insert = sql.prepare("INSERT INTO gate VALUES ($1)").await?;
    let started = now();
    for number in 0..COMMITS {
        sql.execute(&insert, &[&i64::try_from(number)?]).await?;
    }
    let commits_ms = started.elapsed().as_secs_f64() * 1e3;
    sql.batch_execute("TRUNCATE gate").await?;
    Ok(Reading { processor_ms, commits_ms })
}
