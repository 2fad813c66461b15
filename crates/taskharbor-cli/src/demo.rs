//! `taskharbor demo`: a worker on a few hundred jobs, and what became of them.
//!
//! The [`plan`] says what is enqueued and what is to come of it. What is shown comes from the run
//! itself: from an observer ([`tally`]) and from the store ([`finding`]). The two are compared
//! ([`check`]), and the exit code says whether they agree.

mod check;
mod display;
mod finding;
mod hush;
mod job;
mod plan;
mod report;
mod tally;

use std::{io, pin::pin, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context;
use taskharbor::{Admin, AnyDriver, Client, Driver, Exponential, StateCounts, Worker};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use crate::terminal::{Terminal, Tone};
use display::{Display, Progress};
use finding::Findings;
use tally::Tally;

/// How many jobs of each queue run at once; of a queue that is not named here, eight.
const CONCURRENCY: [(&str, usize); 3] = [("media", 4), ("reports", 2), ("sms", 4)];
/// The first delay of a retry: far shorter than in earnest, to keep the demo short.
const RETRY_BASE: Duration = Duration::from_millis(300);
/// A run that takes longer than this will not end as planned.
const LIMIT: Duration = Duration::from_secs(30);
/// How long handlers may take to finish when the demo is interrupted; the slowest needs less.
const GRACE: Duration = Duration::from_secs(2);
/// What a shell reports for a program that was interrupted.
const INTERRUPTED: u8 = 130;

/// How a run ended.
enum Ended {
    /// By itself; what came of it is found out.
    Over,
    /// By Ctrl-C.
    Interrupted,
}

/// Runs the demo.
pub(crate) async fn run() -> anyhow::Result<ExitCode> {
    hush::install();
    let terminal = Terminal::stdout();
    let mut display = Display::new(io::stdout().lock(), terminal);
    let driver = taskharbor::connect("memory:").await?;
    let tally = Arc::new(Tally::new());
    let client = Client::builder(&driver).observer(Arc::clone(&tally)).build()?;
    let enqueued = job::enqueue(&client).await?;
    let worker = worker(&driver, &tally)?;

    let started = Instant::now();
    let running = worker.start();
    let ended = tokio::select! {
        // First, so that signals are listened for before anything is printed.
        biased;
        signal = tokio::signal::ctrl_c() => {
            signal.context("the process cannot listen for signals")?;
            Ended::Interrupted
        }
        // In a worker that ended by itself nothing more will happen.
        ended = running.ended() => {
            ended?;
            Ended::Over
        }
        watched = watch(&mut display, &driver, &tally, started) => {
            watched?;
            Ended::Over
        }
    };
    let elapsed = started.elapsed();
    running.shutdown().await?;

    if matches!(ended, Ended::Interrupted) {
        let over = tally::over(&tally.read());
        let left = format!("  Interrupted: {over} of {} jobs were finished.", plan::jobs());
        display.print(&[left])?;
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let findings = Findings::gather(&driver, &enqueued, tally.read(), elapsed).await?;
    driver.close().await?;
    let differences = check::differences(&findings);
    display.print(&report::lines(&findings, &differences, &terminal))?;
    Ok(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn worker(driver: &AnyDriver, tally: &Arc<Tally>) -> anyhow::Result<Worker> {
    let mut builder = Worker::builder(driver)
        .handlers(job::handlers())
        .retry(Exponential::new().base(RETRY_BASE))
        .grace(GRACE)
        .observer(Arc::clone(tally));
    for queue in plan::queues() {
        let named = CONCURRENCY.iter().find(|(name, _)| *name == queue);
        builder = builder.queue(queue, named.map_or(8, |(_, concurrency)| *concurrency));
    }
    Ok(builder.build()?)
}

/// Shows how the run stands until all jobs are over, or will not be in time.
async fn watch<W: io::Write>(
    display: &mut Display<W>,
    driver: &AnyDriver,
    tally: &Tally,
    started: Instant,
) -> anyhow::Result<()> {
    let (jobs, queues) = (plan::jobs(), plan::queues().len());
    let title =
        format!("TaskHarbor: {jobs} jobs in {queues} queues, one worker, a store in memory");
    display.print(&[display.palette().paint(Tone::Strong, &title), String::new()])?;
    let mut all_over = pin!(timeout(LIMIT, tally.reached(jobs)));
    let mut ticks = interval_at(started + display.interval(), display.interval());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        let is_over = tokio::select! {
            _ = &mut all_over => true,
            _ = ticks.tick() => false,
        };
        let (kinds, states) = (tally.read(), states(driver).await?);
        display.show(&Progress { kinds, states, elapsed: started.elapsed() })?;
        if is_over {
            return Ok(());
        }
    }
}

/// How many jobs of all queues are in each state, as the store counts them.
async fn states(driver: &AnyDriver) -> anyhow::Result<StateCounts> {
    let counts = driver.counts(driver.now().await?).await?;
    Ok(counts.into_iter().map(|queue| queue.states).sum())
}
