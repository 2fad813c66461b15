//! A process that enqueues and works is killed at random moments, and the answers that it got are compared
//! with the file.
//!
//! The child writes a line to a log of its own and syncs it for everything it learns: `E id` when an
//! enqueue was acknowledged, `S id` before a job runs, `D id` when its ack was acknowledged. After each
//! kill no `E` may be missing in the store, and no `S` may come after the `D` of the same job, in
//! whichever process. The parent kills after a random number of lines, so it needs no clock.

use std::{
    collections::{HashMap, HashSet},
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use taskharbor_core::{
    Admin, Driver, JobId, JobType, NewJob, QueueName, State,
    admin::{Filter, List},
    clock::StoreClock,
    driver::{Demand, Enqueue, Reserve, Settle, Settled, Settlement, Transition},
    job::JobSet,
    name::Holder,
};
use taskharbor_sqlite::{Config, SqliteDriver};

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How long leases last: short, so that what a killed child held is soon granted again.
const LEASE: Duration = Duration::from_millis(200);
/// After how many lines of its log the child is killed, at most.
const LINES: usize = 400;

/// The log of what a child was told.
#[derive(Clone)]
struct Log(Arc<Mutex<File>>);

impl Log {
    fn open(dir: &Path) -> Outcome<Self> {
        let file = OpenOptions::new().create(true).append(true).open(dir.join("log"))?;
        // A line that the last kill has cut off must not be taken for part of the next.
        writeln!(&file)?;
        Ok(Self(Arc::new(Mutex::new(file))))
    }

    fn note(&self, what: &str, ids: &[JobId]) -> Outcome {
        let lines: String = ids.iter().map(|id| format!("{what} {id}\n")).collect();
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(lines.as_bytes())?;
        file.sync_data()?;
        drop(file);
        let mut out = std::io::stdout().lock();
        out.write_all(lines.as_bytes())?;
        Ok(out.flush()?)
    }
}

/// Enqueues and works until it is killed.
pub(crate) async fn child(dir: &Path) -> Outcome {
    let driver = SqliteDriver::open_with(Config::new(dir.join("jobs.db")).create(true)).await?;
    let log = Log::open(dir)?;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..2 {
        tasks.spawn(produce(driver.clone(), log.clone()));
    }
    for _ in 0..3 {
        tasks.spawn(work(driver.clone(), log.clone()));
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

async fn produce(driver: SqliteDriver, log: Log) -> Outcome {
    let (queue, job_type) = (QueueName::new("q")?, JobType::new("work")?);
    loop {
        let now = StoreClock::wall_time();
        let ids = JobId::generate_many(now, 5)?;
        let job = |id: &JobId| NewJob::new(id.clone(), queue.clone(), job_type.clone(), &[7; 100]);
        let set = JobSet::plain(ids.iter().map(job).collect());
        driver.enqueue(Enqueue::new(vec![set], now)).await?.remove(0)?;
        log.note("E", &ids)?;
    }
}

async fn work(driver: SqliteDriver, log: Log) -> Outcome {
    let (queue, holder) = (QueueName::new("q")?, Holder::new("child")?);
    loop {
        let demands = vec![Demand::new(queue.clone(), 4)];
        let request = Reserve::new(demands, holder.clone(), StoreClock::wall_time(), LEASE);
        let jobs = driver.reserve(request).await?.jobs;
        if jobs.is_empty() {
            tokio::task::yield_now().await;
            continue;
        }
        let ids: Vec<JobId> = jobs.iter().map(|leased| leased.job.id.clone()).collect();
        log.note("S", &ids)?;
        let items = jobs.into_iter().map(|leased| {
            Settlement::new(leased.job.id, leased.lease.token, Transition::Ack { output: None })
        });
        let request = Settle::new(items.collect(), StoreClock::wall_time());
        let answers = driver.settle(request).await?;
        let applied = |answer: &Result<_, _>| matches!(answer, Ok(Settled::Applied));
        let done = ids.into_iter().zip(&answers).filter(|(_, answer)| applied(answer));
        log.note("D", &done.map(|(id, _)| id).collect::<Vec<_>>())?;
    }
}

/// What all rounds came to.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) enqueued: usize,
    pub(crate) done: usize,
    pub(crate) left: usize,
}

/// Starts the child that `command` makes and kills it, this many times; fails if anything was lost or
/// ran again.
pub(crate) async fn rounds(
    dir: PathBuf,
    count: usize,
    random: &mut fastrand::Rng,
    command: impl Fn() -> Outcome<Command>,
) -> Outcome<Tally> {
    let mut tally = Tally::default();
    for round in 1..=count {
        kill_after(random.usize(1..=LINES), command()?)?;
        let whole = round % 20 == 0 || round == count;
        tally = verify(&dir, whole).await.map_err(|error| format!("round {round}: {error}"))?;
    }
    Ok(tally)
}

/// SIGKILL, after this many lines.
fn kill_after(lines: usize, mut command: Command) -> Outcome {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let out = child.stdout.take().ok_or("the child has no output")?;
    let said = BufReader::new(out).lines().filter(|line| {
        line.as_ref().is_ok_and(|line| line.starts_with("E ") || line.starts_with("S "))
    });
    let seen = said.take(lines).count();
    child.kill()?;
    child.wait()?;
    if seen < lines { Err("the child ended by itself".into()) } else { Ok(()) }
}

/// Compares the log with the store.
async fn verify(dir: &Path, whole: bool) -> Outcome<Tally> {
    let (mut enqueued, mut done) = (HashSet::new(), HashSet::new());
    let text = std::fs::read_to_string(dir.join("log"))?;
    for line in text.lines() {
        match line.split_once(' ') {
            Some(("E", id)) if id.len() == 36 => drop(enqueued.insert(id)),
            Some(("D", id)) if id.len() == 36 => drop(done.insert(id)),
            Some(("S", id)) if done.contains(id) => {
                return Err(format!("{id} ran after it was done").into());
            }
            _ => {}
        }
    }
    let driver = SqliteDriver::open(dir.join("jobs.db")).await?;
    let mut states = HashMap::new();
    let mut request = List::new(Filter::all(), 1_000, StoreClock::wall_time());
    loop {
        let page = driver.list(request.clone()).await?;
        states.extend(page.items.into_iter().map(|job| (job.id.to_string(), job.state)));
        match page.next {
            Some(next) => request = request.after(next),
            None => break,
        }
    }
    if let Some(lost) = enqueued.iter().find(|id| !states.contains_key(**id)) {
        return Err(format!("{lost} was acknowledged and is gone").into());
    }
    if let Some(id) = done.iter().find(|id| states.get(**id) != Some(&State::Done)) {
        return Err(format!("{id} was acknowledged done and is {:?}", states.get(*id)).into());
    }
    if whole && let Some(problem) = driver.check().await?.first() {
        return Err(format!("the store is inconsistent: {problem}").into());
    }
    driver.close().await?;
    let left = states.values().filter(|state| **state != State::Done).count();
    Ok(Tally { enqueued: enqueued.len(), done: done.len(), left })
}
