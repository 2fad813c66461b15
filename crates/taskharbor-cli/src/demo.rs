//! `taskharbor demo`: jobs in a file, a worker that is killed half way, and the states of the jobs at the end.
//!
//! The [`plan`] has the jobs and their expected outcomes. The worker is a process of its own
//! ([`worker_process`]), which is killed without a warning; a second one continues. The outcomes
//! shown come from the store ([`progress`], [`finding`]). They are compared with the plan
//! ([`check`]), and the exit code says whether they agree.

mod check;
mod display;
mod finding;
mod job;
mod plan;
mod progress;
mod report;
mod silence;
mod temp_dir;
pub(crate) mod worker_process;

use std::{io, process::ExitCode, time::Duration};

use anyhow::Context;
use taskharbor::{AnyDriver, Client, Driver, JobSummary, State, StateCounts};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::{
    interrupt,
    stderr::tell,
    terminal::{Terminal, Tone},
};
use display::{Display, Progress};
use finding::{Crash, Findings};
use temp_dir::TempDir;
use worker_process::WorkerProcess;

/// A run that takes longer than this will not end as planned.
const LIMIT: Duration = Duration::from_secs(40);

/// Runs the demo.
pub(crate) async fn run() -> anyhow::Result<ExitCode> {
    let terminal = Terminal::stdout();
    let mut display = Display::new(io::stdout().lock(), terminal);
    let dir = TempDir::make().context("no file can be made for the demo")?;
    let driver = worker_process::open(dir.file(), true).await?;
    tell(&format!("created {} for the time of the demo", dir.file().display()));
    let enqueued = job::enqueue(&Client::new(&driver)).await?;

    let started = Instant::now();
    let watched = tokio::select! {
        // First, so that signals are listened for before anything is printed.
        biased;
        exit = interrupt::asked_to_end() => {
            let exit = exit.map_err(|failure| anyhow::anyhow!(failure.text));
            Err(exit.context("the process cannot listen for signals")?)
        }
        crash = watch(&mut display, &driver, &dir, started) => Ok(crash?),
    };
    let elapsed = started.elapsed();
    let crash = match watched {
        Ok(crash) => crash,
        Err(exit) => {
            let now = driver.now().await?;
            let over = progress::over(&progress::count(&progress::jobs(&driver, now).await?));
            let left = format!("  Interrupted: {over} of {} jobs were finished.", plan::jobs());
            display.print(&[left])?;
            return Ok(ExitCode::from(exit as u8));
        }
    };
    let findings = Findings::gather(&driver, &enqueued, crash, elapsed).await?;
    driver.close().await?;
    let differences = check::differences(&findings);
    display.print(&report::lines(&findings, &differences, &terminal))?;
    Ok(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Shows how the run stands until all jobs are terminal, or will not be in time. Half way, the worker is
/// killed and another one started.
async fn watch<W: io::Write>(
    display: &mut Display<W>,
    driver: &AnyDriver,
    dir: &TempDir,
    started: Instant,
) -> anyhow::Result<Option<Crash>> {
    let (jobs, queues) = (plan::jobs(), plan::queues().len());
    let title = format!("TaskHarbor: {jobs} jobs in {queues} queues, one worker process, a file");
    display.print(&[display.palette().paint(Tone::Strong, &title), String::new()])?;
    let mut worker = WorkerProcess::start(dir.file())?;
    let mut crash = None;
    let mut ticks = interval_at(started + display.interval(), display.interval());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            biased;
            error = worker.ended() => return Err(error),
            _ = ticks.tick() => {}
        }
        let stored = progress::jobs(driver, driver.now().await?).await?;
        let (kinds, elapsed) = (progress::count(&stored), started.elapsed());
        let over = progress::over(&kinds);
        if crash.is_none() && over >= jobs / 2 {
            let (pid, at) = (worker.id(), started.elapsed());
            worker.kill().await?;
            // What it had recorded by then is what counts.
            let stored = progress::jobs(driver, driver.now().await?).await?;
            let killed = Crash::new(pid, at, &stored);
            display.print(&[
                display.palette().paint(Tone::Warning, &killed.sentence()),
                String::new(),
            ])?;
            crash = Some(killed);
            worker = WorkerProcess::start(dir.file())?;
        }
        display.show(&Progress { kinds, states: states(&stored), elapsed })?;
        if over == jobs || elapsed > LIMIT {
            worker.dismiss().await?;
            return Ok(crash);
        }
    }
}

/// How many jobs are in each state.
fn states(jobs: &[JobSummary]) -> StateCounts {
    let mut states = StateCounts::default();
    for job in jobs {
        *states.get_mut(job.state) += 1;
    }
    states
}

/// Whether nothing more will happen to a job.
fn is_over(job: &JobSummary) -> bool {
    matches!(job.state, State::Done | State::Dlq | State::Cancelled)
}
