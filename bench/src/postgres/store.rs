//! The driver on a schema of its own, and the loops around it that the parts have in common.

use std::time::{Duration, Instant};

use taskharbor_core::{
    Admin, Driver, JobId, JobType, NewJob, QueueName, Timestamp,
    admin::Prune,
    driver::{Demand, Enqueue, Leased, Reserve, Settle, Settlement, Transition},
    job::JobSet,
    name::Holder,
};
use taskharbor_postgres::{Config, PostgresDriver, SchemaName};
use tokio_postgres::Client;

use super::{Outcome, server::Server};
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
    pub(crate) fn now(&self) -> Timestamp {
        self.at_start.saturating_add(self.started.elapsed())
    }
}

/// A store of our own, and a connection to look at it.
pub(crate) struct Store {
    pub(crate) driver: PostgresDriver,
    pub(crate) sql: Client,
    pub(crate) clock: Clock,
    payload: Vec<u8>,
}

impl Store {
    /// Makes the schema anew.
    pub(crate) async fn new(server: &Server, schema: &str, payload: usize) -> Outcome<Self> {
        let sql = server.connect(schema).await?;
        sql.batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE")).await?;
        let driver = open(server, schema, Hints::On).await?;
        driver.migrate().await?;
        let clock = Clock { at_start: driver.store_time().await?, started: now() };
        Ok(Self { driver, sql, clock, payload: json(payload) })
    }

    /// Removes everything, quickly.
    pub(crate) async fn clear(&self) -> Outcome {
        self.sql.batch_execute("TRUNCATE th_job, th_hot, th_end; CHECKPOINT").await?;
        Ok(())
    }

    /// Jobs that nobody has stored yet.
    pub(crate) fn jobs(&self, count: usize) -> Outcome<Enqueue> {
        let now = self.clock.now();
        let (queue, job_type) = (QueueName::new(QUEUE)?, JobType::new("noop")?);
        let mut sets = Vec::with_capacity(count);
        for _ in 0..count {
            let id = JobId::generate(now)?;
            let job = NewJob::new(id, queue.clone(), job_type.clone(), &*self.payload);
            sets.push(JobSet::from(job));
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
        let demands = vec![Demand::new(QueueName::new(QUEUE)?, batch)];
        let request = Reserve::new(demands, Holder::new("bench")?, self.clock.now(), LEASE);
        Ok(self.driver.reserve(request).await?.jobs)
    }

    pub(crate) async fn ack(&self, jobs: Vec<Leased>) -> Outcome {
        let item = |it: Leased| {
            Settlement::new(it.job.id, it.lease.token, Transition::Ack { output: None })
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
        Ok(self.sql.batch_execute("VACUUM ANALYZE th_job, th_hot, th_end").await?)
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
pub(crate) enum Hints {
    On,
    Off,
}

/// Another handle to a schema, as another process would have it.
pub(crate) async fn open(server: &Server, schema: &str, hints: Hints) -> Outcome<PostgresDriver> {
    let config = Config::from_url(&server.url())?.schema(SchemaName::new(schema)?);
    Ok(PostgresDriver::open(config.listen(hints == Hints::On).pool_size(10)).await?)
}

/// A payload of this length that is JSON if there is room for it.
pub(crate) fn json(length: usize) -> Vec<u8> {
    let pad = "x".repeat(length.saturating_sub(10));
    format!("{{\"pad\":\"{pad}\"}}").into_bytes()
}
