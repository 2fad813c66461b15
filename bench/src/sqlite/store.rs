//! The driver on a file of its own, and the loops around it that the parts have in common.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use taskharbor_core::{
    Admin, Driver, JobId, JobType, NewJob, QueueName, Timestamp,
    clock::StoreClock,
    driver::{Demand, Enqueue, Leased, Reserve, Settle, Settlement, Transition},
    job::JobSet,
    name::Holder,
};
use taskharbor_sqlite::{Config, SqliteDriver};

use super::Outcome;

pub(crate) const QUEUE: &str = "default";
pub(crate) const LEASE: Duration = Duration::from_secs(60);

/// A directory under `target/`, so that it is on a disk and not in memory.
pub(crate) struct TempDir(pub(crate) PathBuf);

impl TempDir {
    pub(crate) fn new() -> Outcome<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench-sqlite");
        let dir = root.join(format!("{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        Ok(Self(dir))
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.join("jobs.db")
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A store of our own.
pub(crate) struct Store {
    pub(crate) driver: SqliteDriver,
    pub(crate) temp: TempDir,
    payload: Vec<u8>,
}

impl Store {
    pub(crate) async fn new(payload: usize) -> Outcome<Self> {
        let temp = TempDir::new()?;
        let driver = SqliteDriver::open_with(Config::new(temp.file()).create(true)).await?;
        Ok(Self { driver, temp, payload: json(payload) })
    }

    pub(crate) fn now(&self) -> Timestamp {
        StoreClock::wall_time()
    }

    /// Jobs with new ids.
    pub(crate) fn jobs(&self, count: usize) -> Outcome<Enqueue> {
        let now = self.now();
        let (queue, job_type) = (QueueName::new(QUEUE)?, JobType::new("noop")?);
        let ids = JobId::generate_many(now, count)?;
        let job =
            |id| JobSet::from(NewJob::new(id, queue.clone(), job_type.clone(), &*self.payload));
        Ok(Enqueue::new(ids.into_iter().map(job).collect(), now))
    }

    /// Calls for this many jobs.
    pub(crate) fn calls(&self, count: usize, bulk: usize) -> Outcome<Vec<Enqueue>> {
        (0..count).step_by(bulk).map(|start| self.jobs(bulk.min(count - start))).collect()
    }

    pub(crate) async fn fill(&self, count: usize, bulk: usize) -> Outcome {
        for call in self.calls(count, bulk)? {
            self.driver.enqueue(call).await?;
        }
        Ok(())
    }

    /// Reserves and acks one batch; answers how many that were.
    pub(crate) async fn step(&self, batch: usize) -> Outcome<usize> {
        let demands = vec![Demand::new(QueueName::new(QUEUE)?, batch)];
        let request = Reserve::new(demands, Holder::new("bench")?, self.now(), LEASE);
        let jobs = self.driver.reserve(request).await?.jobs;
        let count = jobs.len();
        let item = |it: Leased| {
            Settlement::new(it.job.id, it.lease.token, Transition::Ack { output: None })
        };
        let items = jobs.into_iter().map(item).collect();
        let answers = self.driver.settle(Settle::new(items, self.now())).await?;
        match answers.iter().find_map(|answer| answer.as_ref().err()) {
            Some(refusal) => Err(format!("an ack was refused: {refusal}").into()),
            None => Ok(count),
        }
    }

    /// Fails if the tables contradict each other.
    pub(crate) async fn check(&self) -> Outcome {
        match self.driver.check().await?.first() {
            Some(problem) => Err(format!("the store is inconsistent: {problem}").into()),
            None => Ok(()),
        }
    }
}

/// A payload of this length that is JSON if there is room for it.
pub(crate) fn json(length: usize) -> Vec<u8> {
    let pad = "x".repeat(length.saturating_sub(10));
    format!("{{\"pad\":\"{pad}\"}}").into_bytes()
}
