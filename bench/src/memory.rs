//! The memory driver: does the work on one job grow with the number of jobs stored?

use std::{error::Error, fs, time::Duration};

use taskharbor_core::{
    Admin, Driver, JobId, JobType, NewJob, QueueName, Timestamp,
    admin::Prune,
    driver::{Demand, Enqueue, Reserve, Settle, Settlement, Transition},
    job::JobSet,
    name::Holder,
};
use taskharbor_memory::MemoryDriver;

use crate::stopwatch::Stopwatch;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const BATCH: usize = 100;
const ROUNDS: usize = 1_000;
const FEW: usize = 1_000;
const MANY: usize = 1_000_000;
const PAYLOAD: [u8; 100] = [7; 100];

pub(crate) fn run() -> Outcome {
    tokio::runtime::Builder::new_current_thread().build()?.block_on(measure())
}

async fn measure() -> Outcome {
    println!("memory driver, batches of {BATCH}, payloads of {} bytes", PAYLOAD.len());
    let before = resident_bytes()?;
    let mut filling = Stopwatch::default();
    let mut many = Bench::new(MANY)?;
    many.fill(MANY, &mut filling).await?;
    let bytes = resident_bytes()?.saturating_sub(before) / MANY;
    println!("  enqueue                              {:>10.0} jobs/s", filling.rate());
    println!("  memory per stored job                {bytes:>10} bytes");

    let mut few = Bench::new(FEW)?;
    few.fill(FEW, &mut Stopwatch::default()).await?;
    let (mut with_few, mut with_many) = (Stopwatch::default(), Stopwatch::default());
    for _ in 0..ROUNDS {
        few.round(&mut with_few).await?;
        many.round(&mut with_many).await?;
    }
    println!("  reserve + ack, {FEW:>9} jobs stored  {:>10.0} jobs/s", with_few.rate());
    println!("  reserve + ack, {MANY:>9} jobs stored  {:>10.0} jobs/s", with_many.rate());
    let ratio = with_many.rate() / with_few.rate();
    println!("  ratio                                {ratio:>10.2} (wanted: 0.70 or more)");
    Ok(())
}

/// A driver that is kept at one number of stored jobs.
struct Bench {
    driver: MemoryDriver,
    queue: QueueName,
    job_type: JobType,
    holder: Holder,
    now: Timestamp,
}

impl Bench {
    fn new(seed: usize) -> Outcome<Self> {
        Ok(Self {
            driver: MemoryDriver::new(),
            queue: QueueName::new("bench")?,
            job_type: JobType::new("noop")?,
            holder: Holder::new("bench")?,
            now: Timestamp::from_micros(i64::try_from(seed)? + 1_794_739_474_000_000)?,
        })
    }

    async fn fill(&mut self, count: usize, watch: &mut Stopwatch) -> Outcome {
        for _ in 0..count / BATCH {
            self.now = self.now.saturating_add(Duration::from_millis(1));
            let mut sets = Vec::with_capacity(BATCH);
            for _ in 0..BATCH {
                let (queue, job_type) = (self.queue.clone(), self.job_type.clone());
                let job = NewJob::new(JobId::generate(self.now)?, queue, job_type, &PAYLOAD);
                sets.push(JobSet::from(job));
            }
            let request = Enqueue::new(sets, self.now);
            watch.time(BATCH, self.driver.enqueue(request)).await?;
        }
        Ok(())
    }

    /// Reserves and acks a batch, then puts things back as they were, off the clock.
    async fn round(&mut self, watch: &mut Stopwatch) -> Outcome {
        let lease_for = Duration::from_millis(1);
        let done = watch.time(BATCH, self.reserve_and_ack(lease_for)).await?;
        assert_eq!(done, BATCH, "the queue ran dry");
        self.now = self.now.saturating_add(lease_for);
        let prune = Prune::new(BATCH, self.now).done_before(self.now);
        assert_eq!(self.driver.prune(prune).await?, BATCH, "nothing to prune");
        self.fill(BATCH, &mut Stopwatch::default()).await
    }

    async fn reserve_and_ack(&self, lease_for: Duration) -> Outcome<usize> {
        let demands = vec![Demand::new(self.queue.clone(), BATCH)];
        let request = Reserve::new(demands, self.holder.clone(), self.now, lease_for);
        let reserved = self.driver.reserve(request).await?;
        let ack = |leased: taskharbor_core::driver::Leased| {
            let transition = Transition::Ack { output: None };
            Settlement::new(leased.job.id, leased.lease.token, transition)
        };
        let items = reserved.jobs.into_iter().map(ack).collect();
        let answers = self.driver.settle(Settle::new(items, self.now)).await?;
        Ok(answers.iter().filter(|answer| answer.is_ok()).count())
    }
}

/// The memory that the process occupies.
fn resident_bytes() -> Outcome<usize> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages: usize = statm.split_whitespace().nth(1).ok_or("no resident pages")?.parse()?;
    Ok(pages * 4096)
}
