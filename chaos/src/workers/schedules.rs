//! Worker processes that are killed around the slots of schedules.
//!
//! Each process fires schedules and runs their jobs, and none is in charge. Half of the kills fall
//! into the moment in which workers fire, and some leave no worker at all. In the end each slot has
//! exactly one job.

mod fired;

use std::{path::Path, time::Duration};

use fastrand::Rng;
use taskharbor::{Client, Missed, Overlap, Schedule, Timestamp};
use taskharbor_core::{AnyDriver, admin::SlotTotals, clock::StoreClock};
use tokio::time::{sleep, timeout};

use super::{
    DRAIN, drained,
    fault::SLOTS,
    job::{Behavior, Chore},
    judge, left,
    process::Process,
    stored,
};
use crate::{
    Outcome,
    choice::StoreKind,
    store::{Dir, Store},
};
use fired::{EVERY, Fired, acknowledged};

const WORKERS: usize = 3;
const SCHEDULES: [&str; 2] = ["first", "second"];
/// Workers fire within this time after a slot.
const FIRING_US: u64 = 150_000;

/// Kills this many worker processes, one or all of them after each slot, and checks the jobs of all
/// slots.
pub(crate) async fn run(kind: StoreKind, seed: u64, kills: usize) -> Outcome {
    let store = Store::make(kind).await?;
    let dir = Dir::make("log")?;
    let driver = store.open().await?.driver;
    let client = Client::new(&driver);
    let mut first = Vec::new();
    for name in SCHEDULES {
        let schedule =
            Schedule::every(name, EVERY).job(Chore { millis: 20, behavior: Behavior::Succeeds });
        let schedule = schedule.overlap(Overlap::Allow).missed(Missed::All { at_most: 1_000 });
        client.schedules().put(schedule).await?;
        first.push(client.schedules().upcoming(name, 1).await?[0]);
    }
    let mut processes = Processes::start(store.url(), &dir.0, seed)?;
    let all_at_once = processes.lose(kills).await?;
    let last = driver.now().await?;
    let late = |_| format!("the slots up to {last} were not fired within {DRAIN:?}");
    timeout(DRAIN, fired_up_to(&client, last)).await.map_err(late)??;
    for name in SCHEDULES {
        client.schedules().pause(name).await?;
    }
    match timeout(DRAIN, drained(&driver)).await {
        Ok(drained) => drained?,
        Err(_) => {
            return Err(format!("not all jobs ended in {DRAIN:?}: {}", left(&driver).await?).into());
        }
    }
    processes.end().await?;
    let mut fired = Vec::new();
    for (name, first) in SCHEDULES.into_iter().zip(first) {
        let (next, totals) = state(&client, name).await?;
        fired.push(Fired { name, first, next, totals });
    }
    println!("  {kills} processes killed, {all_at_once} times all {WORKERS} at once");
    verify(&store, &driver, &dir.0, &fired).await
}

async fn state(client: &Client, name: &str) -> Outcome<(Timestamp, SlotTotals)> {
    let record = client.schedules().get(name).await?.ok_or("a schedule is not stored")?.record;
    Ok((record.next_slot.ok_or("a schedule has ended")?, record.totals))
}

/// Waits until the slots up to this time are fired.
async fn fired_up_to(client: &Client, last: Timestamp) -> Outcome {
    for name in SCHEDULES {
        while state(client, name).await?.0 <= last {
            sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

/// Compares slots, jobs and what workers wrote down.
async fn verify(store: &Store, driver: &AnyDriver, dir: &Path, fired: &[Fired]) -> Outcome {
    let jobs = stored(driver).await?.into_iter().map(|job| (job.id, job.created_at)).collect();
    let mut verdict = judge(driver, dir, &acknowledged(fired)?).await?;
    for fired in fired {
        println!("  {}", fired.summary(&jobs)?);
        for problem in fired.problems(&jobs)? {
            verdict.expect(false, || problem);
        }
    }
    let deadlocks = store.deadlocks().await?;
    verdict.expect(deadlocks == 0, || format!("the server found {deadlocks} deadlocks"));
    println!("  {verdict}");
    verdict.fail()
}

/// Processes that are replaced when they are killed.
struct Processes<'a> {
    url: String,
    dir: &'a Path,
    random: Rng,
    all: Vec<Process>,
}

impl<'a> Processes<'a> {
    fn start(url: String, dir: &'a Path, seed: u64) -> Outcome<Self> {
        let all =
            (0..WORKERS).map(|_| Process::start(&url, dir, SLOTS)).collect::<Result<_, _>>()?;
        Ok(Self { url, dir, random: Rng::with_seed(seed), all })
    }

    /// Kills processes after each slot until this many are lost; answers how often that were all.
    async fn lose(&mut self, kills: usize) -> Outcome<usize> {
        let (mut killed, mut all_at_once) = (0, 0);
        while killed < kills {
            self.moment().await;
            for process in &mut self.all {
                process.look()?;
            }
            let working: Vec<usize> =
                (0..WORKERS).filter(|at| self.all[*at].is_working()).collect();
            let victims = match self.random.u8(..10) {
                0 if working.len() == WORKERS && killed + WORKERS <= kills => working,
                _ => self.random.choice(working).into_iter().collect(),
            };
            killed += victims.len();
            all_at_once += usize::from(victims.len() == WORKERS);
            let mut dying = Vec::new();
            for at in victims {
                let new = Process::start(&self.url, self.dir, SLOTS)?;
                dying.push(std::mem::replace(&mut self.all[at], new));
            }
            for process in dying {
                process.kill().await?;
            }
        }
        Ok(all_at_once)
    }

    /// Waits until a random moment between the next slot and the one after it.
    async fn moment(&mut self) {
        let passed = StoreClock::wall_time().as_micros().unsigned_abs() % 1_000_000;
        let end = if self.random.bool() { FIRING_US } else { 1_000_000 };
        sleep(Duration::from_micros(1_000_000 - passed + self.random.u64(..end))).await;
    }

    async fn end(self) -> Outcome {
        for process in self.all {
            process.end().await?;
        }
        Ok(())
    }
}
