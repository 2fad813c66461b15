//! One measurement of one side, with new processes on a new database.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Outcome,
    database::{Database, Kind},
    program::Program,
    size::Sizes,
};
use crate::{
    postgres::{Child, Server, Usage},
    stopwatch::now,
};

/// How long an answer may take beyond the limit of the command.
const GRACE: Duration = Duration::from_secs(60);
/// How often several processes are asked how far they are.
const LOOK: Duration = Duration::from_millis(5);

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Drain,
    Single,
    Latency,
    Wal,
    Growth,
    Processes,
}

impl Part {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Single => "single",
            Self::Latency => "latency",
            Self::Wal => "wal",
            Self::Growth => "growth",
            Self::Processes => "processes",
        }
    }
}

/// What a measurement gave.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) figures: BTreeMap<String, f64>,
    pub(crate) stopped: bool,
}

impl Found {
    fn put(&mut self, name: &str, value: f64) {
        self.figures.insert(name.to_owned(), value);
    }

    /// Processor time in microseconds, for each job.
    fn spend(&mut self, what: &str, spent: Usage, jobs: f64) {
        self.put(&format!("{what}_server_us"), spent.server * 1e6 / jobs);
        self.put(&format!("{what}_client_us"), spent.client * 1e6 / jobs);
    }
}

/// A side on a database of its own.
pub(crate) struct Case<'a> {
    server: &'a Server,
    sizes: &'a Sizes,
    program: &'a Program,
    database: Database,
    is_best: bool,
}

impl<'a> Case<'a> {
    pub(crate) async fn run(
        part: Part,
        kind: Kind,
        is_best: bool,
        (server, sizes, program): (&'a Server, &'a Sizes, &'a Program),
    ) -> Outcome<Found> {
        let database = Database::create(kind, server).await?;
        let case = Self { server, sizes, program, database, is_best };
        match part {
            Part::Drain => case.drain().await,
            Part::Single => case.single().await,
            Part::Latency => case.latency().await,
            Part::Wal => case.wal().await,
            Part::Growth => case.growth().await,
            Part::Processes => case.processes().await,
        }
    }

    fn start(&self) -> Outcome<Side> {
        Ok(Side { child: self.program.start(&self.database.url())? })
    }

    /// A side whose tables are installed.
    async fn installed(&self) -> Outcome<Side> {
        let mut side = self.start()?;
        side.ask("migrate", GRACE).await?;
        Ok(side)
    }

    fn usage(&self, sides: &[Side]) -> Outcome<Usage> {
        let pids = sides.iter().map(|it| it.child.pid()).collect::<Outcome<Vec<_>>>()?;
        Usage::of(self.server, &pids)
    }

    async fn fill(&self, side: &mut Side, jobs: usize, limit: usize) -> Outcome<(f64, f64)> {
        let Sizes { bulk, payload, .. } = self.sizes;
        let line = format!("fill jobs={jobs} bulk={bulk} payload={payload} limit={limit}");
        side.ask_two(&line, limit).await
    }

    async fn run_jobs(
        &self,
        side: &mut Side,
        jobs: usize,
        all: bool,
        limit: usize,
    ) -> Outcome<(f64, f64)> {
        let (best, all) = (u8::from(self.is_best), u8::from(all));
        let line = format!("drain jobs={jobs} best={best} all={all} limit={limit}");
        side.ask_two(&line, limit).await
    }

    async fn drain(self) -> Outcome<Found> {
        let mut found = Found::default();
        let mut sides = [self.installed().await?];
        let before = self.usage(&sides)?;
        let (took, filled) =
            self.fill(&mut sides[0], self.sizes.jobs, self.sizes.limit * 2).await?;
        found.put("bulk_rate", filled / took);
        found.spend("bulk", self.usage(&sides)?.since(before), filled);
        self.database.settle().await?;
        let before = self.usage(&sides)?;
        let jobs = count(filled);
        let (took, done) = self.run_jobs(&mut sides[0], jobs, true, self.sizes.limit).await?;
        found.stopped = done < filled;
        found.put("drain_rate", done / took);
        if done > 0.0 {
            found.spend("drain", self.usage(&sides)?.since(before), done);
        }
        found.put("memory_mib", sides[0].peak_memory()?);
        Ok(found)
    }

    async fn single(self) -> Outcome<Found> {
        let mut found = Found::default();
        let mut sides = [self.installed().await?];
        // Opens connections and makes plans.
        self.fill(&mut sides[0], 10, 10).await?;
        let before = self.usage(&sides)?;
        let line = format!("single seconds={} payload={}", self.sizes.spell, self.sizes.payload);
        let jobs = sides[0].ask_one(&line, self.sizes.spell).await?;
        found.put("single_rate", jobs / to_f64(self.sizes.spell));
        found.spend("single", self.usage(&sides)?.since(before), jobs);
        Ok(found)
    }

    async fn latency(self) -> Outcome<Found> {
        let mut found = Found::default();
        let mut side = self.installed().await?;
        let Sizes { idle, rate, payload, limit, .. } = self.sizes;
        let (jobs, best) = (idle * rate, u8::from(self.is_best));
        let line =
            format!("latency jobs={jobs} rate={rate} payload={payload} best={best} limit={limit}");
        let (median, most) = side.ask_two(&line, idle + limit).await?;
        found.put("latency_p50_ms", median);
        found.put("latency_p99_ms", most);
        Ok(found)
    }

    /// Full-page images depend on when checkpoints fall, so they are off for this part.
    async fn wal(self) -> Outcome<Found> {
        let mut found = Found::default();
        let mut side = self.installed().await?;
        let jobs = self.sizes.logged;
        self.database.settle().await?;
        let start = self.database.position().await?;
        let limit = self.sizes.limit * 6;
        let (_, filled) = self.fill(&mut side, jobs, limit).await?;
        let enqueued = self.database.position().await?;
        let (_, done) = self.run_jobs(&mut side, jobs, true, limit).await?;
        if done < to_f64(jobs) || filled < done {
            return Err(format!("{done} of {jobs} jobs were done in time").into());
        }
        let ran = self.database.position().await?;
        side.ask("prune", GRACE).await?;
        self.database.settle().await?;
        let removed = self.database.position().await?;
        for (name, from, to) in [
            ("wal_bytes", start, removed),
            ("wal_enqueue_bytes", start, enqueued),
            ("wal_run_bytes", enqueued, ran),
            ("wal_remove_bytes", ran, removed),
        ] {
            found.put(name, to_f64(usize::try_from(to - from)?) / done);
        }
        Ok(found)
    }

    /// Drains a few jobs: alone, with many behind them, and after many that are finished.
    async fn growth(self) -> Outcome<Found> {
        let mut found = Found::default();
        let Sizes { few, backlog, limit, .. } = *self.sizes;
        // Enough that the last of those that count are not the last of all.
        let some = few + few / 2;
        let mut side = self.installed().await?;
        self.fill(&mut side, some, limit).await?;
        self.few(&mut side, "few", &mut found).await?;
        // The rest of them and some more are finished.
        let (_, filled) = self.fill(&mut side, backlog, limit * 4).await?;
        self.database.settle().await?;
        let (_, finished) = self.run_jobs(&mut side, count(filled), false, limit * 3).await?;
        found.put("finished_jobs", finished + to_f64(few));
        // What is left of them goes with the waiting ones.
        let (_, waiting) = self.fill(&mut side, some, limit).await?;
        self.few(&mut side, "finished", &mut found).await?;
        drop(side);
        let database = Database::create(self.database.kind(), self.server).await?;
        let case = Self { database, ..self };
        let mut side = case.installed().await?;
        let (_, filled) = case.fill(&mut side, backlog, limit * 4).await?;
        found.put("waiting_jobs", filled);
        case.few(&mut side, "waiting", &mut found).await?;
        found.stopped |= waiting < to_f64(some);
        Ok(found)
    }

    async fn few(&self, side: &mut Side, name: &str, found: &mut Found) -> Outcome {
        // Opens connections and makes plans, which the later ones would otherwise be spared.
        self.run_jobs(side, self.sizes.few / 10, false, self.sizes.limit).await?;
        self.database.settle().await?;
        let (took, done) = self.run_jobs(side, self.sizes.few, false, self.sizes.limit).await?;
        found.put(&format!("{name}_rate"), done / took);
        found.stopped |= done < to_f64(self.sizes.few);
        Ok(())
    }

    async fn processes(self) -> Outcome<Found> {
        let mut found = Found::default();
        let mut sides = vec![self.installed().await?];
        for _ in 1..self.sizes.processes {
            sides.push(self.start()?);
        }
        let spell = self.sizes.spell;
        let payload = self.sizes.payload;
        ask_all(&mut sides, &format!("single seconds=1 payload={payload}"), 1).await?;
        let line = format!("single seconds={spell} payload={payload}");
        let stored = ask_all(&mut sides, &line, spell).await?;
        found.put("processes_single_rate", stored / to_f64(spell));
        // New processes on a new database, for workers that have nothing left of the first.
        drop(sides);
        let database = Database::create(self.database.kind(), self.server).await?;
        let case = Self { database, ..self };
        let mut sides = vec![case.installed().await?];
        for _ in 1..case.sizes.processes {
            sides.push(case.start()?);
        }
        let (_, filled) = case.fill(&mut sides[0], case.sizes.jobs, case.sizes.limit * 2).await?;
        case.database.settle().await?;
        let started = now();
        let best = u8::from(case.is_best);
        ask_all(&mut sides, &format!("start best={best}"), 10).await?;
        let limit = Duration::from_secs(u64::try_from(case.sizes.limit)?);
        let mut done = 0.0;
        while done < filled && started.elapsed() < limit {
            tokio::time::sleep(LOOK).await;
            done = ask_all(&mut sides, "count", 10).await?;
        }
        let took = started.elapsed().as_secs_f64();
        found.put("processes_drain_rate", done.min(filled) / took);
        found.stopped = done < filled;
        Ok(found)
    }
}

/// A process of a side. It is killed when it is dropped.
struct Side {
    child: Child,
}

impl Side {
    async fn ask(&mut self, line: &str, limit: Duration) -> Outcome<Vec<f64>> {
        self.child.send(line).await?;
        self.child.figures(limit).await
    }

    async fn ask_one(&mut self, line: &str, limit: usize) -> Outcome<f64> {
        let limit = GRACE + Duration::from_secs(u64::try_from(limit)?);
        let figures = self.ask(line, limit).await?;
        figures.first().copied().ok_or_else(|| "no figure".into())
    }

    async fn ask_two(&mut self, line: &str, limit: usize) -> Outcome<(f64, f64)> {
        let limit = GRACE + Duration::from_secs(u64::try_from(limit)?);
        match self.ask(line, limit).await?.as_slice() {
            [first, second, ..] => Ok((*first, *second)),
            _ => Err("too few figures".into()),
        }
    }

    /// The most memory that the process has had, in MiB.
    fn peak_memory(&self) -> Outcome<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.pid()?))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib: f64 = line.ok_or("no peak")?.trim().trim_end_matches(" kB").parse()?;
        Ok(kib / 1024.0)
    }
}

/// Lets all of them do the same at the same time; answers the sum of their figures.
async fn ask_all(sides: &mut [Side], line: &str, limit: usize) -> Outcome<f64> {
    for side in sides.iter_mut() {
        side.child.send(line).await?;
    }
    let limit = GRACE + Duration::from_secs(u64::try_from(limit)?);
    let mut sum = 0.0;
    for side in sides {
        sum += side.child.figures(limit).await?.first().copied().unwrap_or_default();
    }
    Ok(sum)
}

#[expect(clippy::cast_precision_loss, reason = "a figure needs no more than 52 bits")]
fn to_f64(number: usize) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a side answers how many jobs it has stored"
)]
fn count(figure: f64) -> usize {
    figure as usize
}
