//! The faults of workers, of their connections and of their store.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use fastrand::Rng;
use taskharbor_sqlite::rusqlite::Connection;
use taskharbor_testkit::postgres::server::Stop;
use tokio::time::{Instant, sleep};

use super::{
    LEASE,
    log::{now, set_clock},
    process::Process,
    proxy::Proxy,
};
use crate::{Outcome, store::Store};

const WORKERS: usize = 3;
/// The process after those is the command, whose handler is a program.
const COMMAND: usize = WORKERS;
/// How many jobs each runs at once.
pub(super) const SLOTS: usize = 8;
/// How often processes are looked at.
const TICK: Duration = Duration::from_millis(25);
/// How long a run has to be for the clock to be set back: handles notice that within seconds.
const SETS_CLOCK_FROM: Duration = Duration::from_secs(60);
/// How often a long run says that it goes on.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// The faults of any store.
const PROCESS_FAULTS: [Fault; 6] = [
    Fault::Kill,
    Fault::Kill,
    Fault::Suspend,
    Fault::Terminate,
    Fault::NudgeClock,
    Fault::SetClock,
];
const SQLITE_FAULTS: [Fault; 2] = [Fault::Lock, Fault::FillDisk];
const POSTGRES_FAULTS: [Fault; 5] =
    [Fault::Cut, Fault::Swallow, Fault::Stall, Fault::RestartFast, Fault::RestartImmediate];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// SIGKILL.
    Kill,
    /// SIGSTOP, and SIGCONT later.
    Suspend,
    /// SIGTERM.
    Terminate,
    /// The store's clock is set forward by a little.
    NudgeClock,
    /// The store's clock is set forward or back by up to 45 s.
    SetClock,
    /// Another process holds the lock of the file.
    Lock,
    /// The file of a worker cannot grow.
    FillDisk,
    /// Connections are closed.
    Cut,
    /// Connections lead nowhere any more.
    Swallow,
    /// Connections are held up for a while.
    Stall,
    /// The server is stopped and started.
    RestartFast,
    /// The server is stopped as if the power had failed, and started.
    RestartImmediate,
}

/// The store's clock.
#[derive(Default)]
struct Clock {
    /// By how much it is ahead of the machine's, or behind it.
    shift_ms: i64,
    /// The most that it was ahead.
    most_ms: i64,
    set_back_at: Vec<i64>,
}

impl Clock {
    /// What was recorded before is late by as much as the clock was set back since, so it is never
    /// further back than this from where it has been.
    const FURTHEST_BACK_MS: i64 = 45_000;
    /// It is set in steps of this. A clock that is set back by less than a second is not followed, and
    /// no small steps forward add up to a little less than one of these while a process is suspended.
    const STEP_MS: i64 = 5_000;

    fn nudge(&mut self, by: Duration) {
        self.shift_ms += i64::try_from(by.as_millis()).unwrap_or(0);
        self.most_ms = self.most_ms.max(self.shift_ms);
    }

    fn set(&mut self, random: &mut Rng) {
        let furthest = self.most_ms - Self::FURTHEST_BACK_MS;
        let (back, forward) = (
            (self.shift_ms - furthest) / Self::STEP_MS,
            (self.most_ms - self.shift_ms) / Self::STEP_MS,
        );
        let steps = random.i64(-back..=forward);
        self.shift_ms += steps * Self::STEP_MS;
        if steps < 0 {
            self.set_back_at.push(now());
        }
    }
}

/// The processes and everything that can be broken.
pub(super) struct Havoc<'a> {
    store: &'a Store,
    dir: PathBuf,
    /// The way to a server.
    proxy: Option<Proxy>,
    /// The address of the store as workers are told it.
    url: String,
    random: Rng,
    processes: Vec<Process>,
    stalled_until: Option<Instant>,
    lock: Option<(Connection, Instant)>,
    clock: Clock,
    /// Whether the store's clock is set forward and back by much.
    sets_clock: bool,
    counts: BTreeMap<Fault, usize>,
}

impl<'a> Havoc<'a> {
    pub(super) async fn start(store: &'a Store, dir: PathBuf, seed: u64) -> Outcome<Self> {
        let proxy = match store {
            Store::Postgres(server) => Some(Proxy::start(server.port()).await?),
            Store::Sqlite(_) | Store::Memory(_) => None,
        };
        let url = match (store, &proxy) {
            (Store::Postgres(server), Some(proxy)) => {
                let (old, new) = (server.port().to_string(), proxy.port().to_string());
                store.url().replace(&format!(":{old}/"), &format!(":{new}/"))
            }
            _ => store.url(),
        };
        let mut processes = (0..WORKERS)
            .map(|_| Process::start(&url, &dir, SLOTS))
            .collect::<Result<Vec<_>, _>>()?;
        processes.push(Process::start_command(&url, &dir)?);
        Ok(Self {
            store,
            dir,
            proxy,
            url,
            random: Rng::with_seed(seed),
            processes,
            stalled_until: None,
            lock: None,
            clock: Clock::default(),
            sets_clock: false,
            counts: BTreeMap::new(),
        })
    }

    /// Breaks things until the deadline.
    pub(super) async fn run(&mut self, deadline: Instant) -> Outcome {
        self.sets_clock = deadline.duration_since(Instant::now()) >= SETS_CLOCK_FROM;
        let mut next = Instant::now() + Duration::from_secs(1);
        let mut told = Instant::now();
        while Instant::now() < deadline {
            self.look().await?;
            if told.elapsed() >= TELL_EVERY {
                told = Instant::now();
                println!("  {}", self.done());
            }
            if next <= Instant::now() {
                self.strike().await?;
                next = Instant::now() + Duration::from_millis(self.random.u64(150..1_200));
            }
            sleep(TICK).await;
        }
        Ok(())
    }

    /// Ends what is over, and replaces processes that have ended.
    async fn look(&mut self) -> Outcome {
        let now = Instant::now();
        for at in 0..self.processes.len() {
            if self.processes[at].look()? {
                self.replace(at, None).await?;
            }
        }
        if self.stalled_until.is_some_and(|until| until <= now) {
            self.stalled_until = None;
            self.proxy.iter().for_each(|proxy| proxy.stall(false));
        }
        // Dropped, a connection rolls back.
        self.lock.take_if(|(_, until)| *until <= now);
        Ok(())
    }

    /// Kills a process and starts another in its place, with more settings in its address.
    async fn replace(&mut self, at: usize, settings: Option<&str>) -> Outcome {
        let url = format!("{}{}", self.url, settings.unwrap_or_default());
        let new = match at {
            COMMAND => Process::start_command(&url, &self.dir)?,
            _ => Process::start(&url, &self.dir, SLOTS)?,
        };
        std::mem::replace(&mut self.processes[at], new).kill().await
    }

    async fn strike(&mut self) -> Outcome {
        let own: &[Fault] = match self.store {
            Store::Sqlite(_) => &SQLITE_FAULTS,
            Store::Postgres(_) => &POSTGRES_FAULTS,
            Store::Memory(_) => &[],
        };
        let is_used = |fault: &&Fault| self.sets_clock || **fault != Fault::SetClock;
        let all: Vec<Fault> = PROCESS_FAULTS.iter().chain(own).filter(is_used).copied().collect();
        let fault = all[self.random.usize(..all.len())];
        let well: Vec<usize> =
            (0..self.processes.len()).filter(|at| self.processes[*at].is_well()).collect();
        let Some(at) = (!well.is_empty()).then(|| well[self.random.usize(..well.len())]) else {
            return Ok(());
        };
        // Some shorter than a lease, some longer.
        let time = LEASE.mul_f64(0.05 + 1.5 * self.random.f64());
        if fault == Fault::Terminate && !self.processes[at].is_working() {
            return Ok(());
        }
        // A program goes on while its worker is suspended, and may outlive the lease.
        if at == COMMAND && matches!(fault, Fault::Suspend | Fault::FillDisk) {
            return Ok(());
        }
        *self.counts.entry(fault).or_default() += 1;
        match fault {
            Fault::Kill => self.replace(at, None).await,
            Fault::Suspend => self.processes[at].stop(time),
            Fault::Terminate => self.processes[at].terminate(),
            Fault::NudgeClock => {
                self.clock.nudge(time / 4);
                set_clock(&self.dir, self.clock.shift_ms)
            }
            Fault::SetClock => {
                self.clock.set(&mut self.random);
                set_clock(&self.dir, self.clock.shift_ms)
            }
            Fault::Lock => self.lock(time),
            Fault::FillDisk => self.fill_disk(at, time).await,
            Fault::Cut => {
                self.proxy.iter().for_each(Proxy::cut);
                Ok(())
            }
            Fault::Swallow => {
                self.proxy.iter().for_each(Proxy::swallow);
                Ok(())
            }
            Fault::Stall => {
                self.stalled_until = Some(Instant::now() + time);
                self.proxy.iter().for_each(|proxy| proxy.stall(true));
                Ok(())
            }
            Fault::RestartFast => self.restart(Stop::Fast),
            Fault::RestartImmediate => self.restart(Stop::Immediate),
        }
    }

    fn restart(&self, stop: Stop) -> Outcome {
        if let Store::Postgres(server) = self.store {
            tokio::task::block_in_place(|| server.restart(stop));
        }
        Ok(())
    }

    /// Holds the lock for writing, as a program that forgets to commit does.
    fn lock(&mut self, time: Duration) -> Outcome {
        let Store::Sqlite(dir) = self.store else { return Ok(()) };
        if self.lock.is_none() {
            let connection = Connection::open(dir.0.join("jobs.db"))?;
            connection.busy_timeout(Duration::from_secs(10))?;
            tokio::task::block_in_place(|| connection.execute_batch("BEGIN IMMEDIATE"))?;
            self.lock = Some((connection, Instant::now() + time));
        }
        Ok(())
    }

    /// Lets a worker have a file that cannot grow.
    async fn fill_disk(&mut self, at: usize, time: Duration) -> Outcome {
        let Store::Sqlite(dir) = self.store else { return Ok(()) };
        let bytes = std::fs::metadata(dir.0.join("jobs.db"))?.len();
        self.replace(at, Some(&format!("&max_bytes={bytes}"))).await?;
        self.processes[at].cramp(time);
        Ok(())
    }

    /// Repairs everything that can be, so that work goes on.
    pub(super) async fn heal(&mut self) -> Outcome {
        self.stalled_until = None;
        self.proxy.iter().for_each(|proxy| proxy.stall(false));
        self.lock = None;
        for at in 0..self.processes.len() {
            if !self.processes[at].is_well() {
                self.replace(at, None).await?;
            }
        }
        Ok(())
    }

    /// Fails if a process has ended.
    pub(super) async fn watch(&mut self) -> Outcome {
        loop {
            self.look().await?;
            sleep(TICK).await;
        }
    }

    /// When the store's clock was set back.
    pub(super) fn set_back_at(&self) -> &[i64] {
        &self.clock.set_back_at
    }

    /// What was done so far.
    fn done(&self) -> String {
        let counts = self.counts.iter().map(|(fault, count)| format!("{fault:?} {count}"));
        counts.collect::<Vec<_>>().join(", ")
    }

    /// Ends all processes, as an operator does; answers what was done to them.
    pub(super) async fn end(mut self) -> Outcome<String> {
        for process in std::mem::take(&mut self.processes) {
            process.end().await?;
        }
        Ok(self.done())
    }
}
