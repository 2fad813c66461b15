//! The driver on a schema of its own, and the loops around it that the parts have in common.

use std::time::{Duration, Instant};

use taskharbor_core::{
    Admin, Blob, Driver, JobId, JobType, NewJob, QueueName, Timestamp,
    admin::Prune,
    driver::{Demand, Enqueue, Leased, Reserve, Settle, Settlement, Transition},
    job::JobSet,
    name::Holder,
};
use taskharbor_postgres::{Config, PostgresDriver, SchemaName};
use tokio_postgres::Client;

use super::{Outcome, peer::vacuum, server::Server, size::Sizes};
use crate::stopwatch::now;

pub(crate) const QUEUE: &str = "default";
pub(crate) const LEASE: Duration = Duration::from_secs(60);

/// The store's time, asked for once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    at_start: Timestamp,
    started: Instant,
}

impl Clock {
    pub(crate) fn start(at_start: Timestamp) -> Self {
        Self { at_start, started: now() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.at_start.saturating_add(self.started.elapsed())
    }
}

/// A store of our own, and a connection to look at it. What it is made of is the driver's business:
/// all jobs go through the driver, and a store that has to be empty is made anew.
pub(crate) struct Store {
    pub(crate) driver: PostgresDriver,
    pub(crate) sql: Client,
    pub(crate) clock: Clock,
    schema: String,
    payload: Vec<u8>,
}

impl Store {
    /// Makes the schema anew.
    pub(crate) async fn new(server: &Server, schema: &str, payload: usize) -> Outcome<Self> {
        let sql = server.connect(schema).await?;
        // The checkpoint leaves nothing of earlier rounds to be written in this one.
        let drop = format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CHECKPOINT");
        sql.batch_execute(&drop).await?;
        let driver = open(server, schema, WakeUps::On).await?;
        driver.migrate().await?;
        let clock = Clock::start(driver.store_time().await?);
        Ok(Self { driver, sql, clock, schema: schema.to_owned(), payload: json(payload) })
    }

    /// A new store with jobs that wait, as autovacuum would have left it. Its first connections are
    /// open and have made their plans.
    pub(crate) async fn filled(server: &Server, schema: &str, sizes: &Sizes) -> Outcome<Self> {
        let store = Self::new(server, schema, sizes.payload).await?;
        store.fill(sizes.jobs + 2, sizes.bulk).await?;
        let (first, second) = tokio::join!(store.step(1), store.step(1));
        if first? + second? < 2 {
            return Err("jobs are missing".into());
        }
        store.vacuum().await?;
        Ok(store)
    }

    /// New jobs.
    pub(crate) fn jobs(&self, count: usize) -> Outcome<Enqueue> {
        self.jobs_with(count, |_, job| Ok(job))
    }

    /// New jobs that differ from the usual by their number.
    pub(crate) fn jobs_with(
        &self,
        count: usize,
        change: impl Fn(usize, NewJob) -> Outcome<NewJob>,
    ) -> Outcome<Enqueue> {
        let now = self.clock.now();
        let (queue, job_type) = (QueueName::new(QUEUE)?, JobType::new("noop")?);
        let mut sets = Vec::with_capacity(count);
        for number in 0..count {
            let id = JobId::generate(now)?;
            let job = NewJob::new(id, queue.clone(), job_type.clone(), &*self.payload);
            sets.push(JobSet::from(change(number, job)?));
        }
        Ok(Enqueue::new(sets, now))
    }

    pub(crate) async fn fill(&self, count: usize, bulk: usize) -> Outcome {
        for start in (0..count).step_by(bulk) {
            self.driver.enqueue(self.jobs(bulk.min(count - start))?).await?;
        }
        Ok(())
    }

    pub(crate) async fn reserve(&self, batch: usize) -> Outcome<Vec<Leased>> {
        reserve(&self.driver, batch, self.clock.now(), LEASE).await
    }

    pub(crate) async fn ack(&self, jobs: Vec<Leased>) -> Outcome {
        self.ack_with(jobs, None).await
    }

    pub(crate) async fn ack_with(&self, jobs: Vec<Leased>, output: Option<&[u8]>) -> Outcome {
        let item = |it: Leased| {
            let output = output.map(Blob::from);
            Settlement::new(it.job.id, it.lease.token, Transition::Ack { output })
        };
        let items = jobs.into_iter().map(item).collect();
        let answers = self.driver.settle(Settle::new(items, self.clock.now())).await?;
        match answers.iter().find_map(|answer| answer.as_ref().err()) {
            Some(refusal) => Err(format!("an ack was refused: {refusal}").into()),
            None => Ok(()),
        }
    }

    /// Reserves and acks one batch; answers how many that were.
    pub(crate) async fn step(&self, batch: usize) -> Outcome<usize> {
        let jobs = self.reserve(batch).await?;
        let count = jobs.len();
        if count > 0 {
            self.ack(jobs).await?;
        }
        Ok(count)
    }

    /// Reserves and acks until nothing is left.
    pub(crate) async fn drain(&self, batch: usize) -> Outcome<usize> {
        let mut done = 0;
        loop {
            match self.step(batch).await? {
                0 => return Ok(done),
                count => done += count,
            }
        }
    }

    /// Removes all that is over, as a worker does.
    pub(crate) async fn prune(&self, bulk: usize) -> Outcome {
        // What is over is kept for as long as its lease would have lasted.
        let later = self.clock.now().saturating_add(LEASE);
        while self.driver.prune(Prune::new(bulk, later).done_before(later)).await? >= bulk {}
        Ok(())
    }

    /// As autovacuum would have.
    pub(crate) async fn vacuum(&self) -> Outcome {
        vacuum(&self.sql, &self.schema).await
    }

    /// Fails if the tables contradict each other.
    pub(crate) async fn check(&self) -> Outcome {
        match self.driver.check().await?.first() {
            Some(problem) => Err(format!("the store is inconsistent: {problem:?}").into()),
            None => Ok(()),
        }
    }
}

/// Whether processes tell each other about work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeUps {
    On,
    Off,
}

/// Another handle to a schema, as another process would have it.
pub(crate) async fn open(
    server: &Server,
    schema: &str,
    wake_ups: WakeUps,
) -> Outcome<PostgresDriver> {
    open_at(&server.url(), schema, wake_ups).await
}

/// The same on the server at this address.
pub(crate) async fn open_at(url: &str, schema: &str, wake_ups: WakeUps) -> Outcome<PostgresDriver> {
    let config = Config::from_url(url)?.schema(SchemaName::new(schema)?);
    Ok(PostgresDriver::open(config.listen(wake_ups == WakeUps::On)).await?)
}

/// Leases jobs of the usual queue through any handle.
pub(crate) async fn reserve(
    driver: &PostgresDriver,
    batch: usize,
    now: Timestamp,
    lease: Duration,
) -> Outcome<Vec<Leased>> {
    let demands = vec![Demand::new(QueueName::new(QUEUE)?, batch)];
    let request = Reserve::new(demands, Holder::new("bench")?, now, lease);
    Ok(driver.reserve(request).await?.jobs)
}

/// A payload of this length that is JSON if there is room for it.
pub(crate) fn json(length: usize) -> Vec<u8> {
    let pad = "x".repeat(length.saturating_sub(10));
    format!("{{\"pad\":\"{pad}\"}}").into_bytes()
}
