//! `taskharbor doctor`: what is wrong with a store, its queues and its workers, on one screen.

mod job;
mod store;
mod worker;

use std::{process::ExitCode, time::Duration};

use serde::Serialize;
use taskharbor::{Admin, AnyDriver, Client, QueueCounts, Timestamp, WorkerStatus};
use taskharbor_core::admin::{Counts, Diagnosis, DiagnosisLevel};

use crate::{
    clean,
    failure::{Exit, Outcome},
    screen::Screen,
    store::{Missing, Opened, Url},
    table::{Align, Cell},
    terminal::Tone,
};

/// Where counting the jobs of a queue stops.
const COUNTED: usize = 10_000;
const DAY: Duration = Duration::from_secs(86_400);

/// Look for what is wrong with the store, its queues and its workers
///
/// Each line says what was looked at, how it is, and what to do about it. The exit code is 4 if a line
/// tells of a problem: jobs are lost, late or do not run.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor doctor
  taskharbor doctor --url postgres://db/shop --json | jq -r 'select(.level != \"fine\")'")]
pub(crate) struct Args {}

/// A line as JSON.
#[derive(Serialize)]
struct Line<'a> {
    what: &'a str,
    level: &'static str,
    found: &'a str,
    advice: Option<&'a str>,
}

/// What all checks look at, read once.
struct Patient {
    driver: AnyDriver,
    now: Timestamp,
    queues: Vec<QueueCounts>,
    workers: Vec<WorkerStatus>,
}

impl Patient {
    async fn new(driver: AnyDriver) -> Outcome<Self> {
        let now = driver.now().await?;
        let queues = driver.counts(Counts::new(now).at_most(COUNTED)).await?;
        let workers = Client::new(&driver).workers().await?;
        Ok(Self { driver, now, queues, workers })
    }

    /// The workers that are there.
    fn present(&self) -> impl Iterator<Item = &WorkerStatus> {
        self.workers.iter().filter(|worker| !worker.is_overdue)
    }
}

pub(crate) async fn run(url: &Url, screen: &mut Screen) -> Outcome<ExitCode> {
    let mut found = Vec::new();
    match url.try_open(Missing::Refuse).await? {
        Opened::Away(failure) => {
            let advice = "start the server, or name another store with --url";
            found.push(Diagnosis::problem("store", failure.text, advice));
        }
        Opened::Driver(driver) => {
            found.extend(store::check(url, &driver).await?);
            let patient = Patient::new(driver).await?;
            found.extend(patient.driver.diagnose().await?);
            found.extend(worker::check(&patient));
            found.extend(job::check(&patient).await?);
        }
    }
    show(&found, screen)?;
    let worst = found.iter().map(|line| line.level).max();
    screen.flush()?;
    Ok(match worst {
        Some(DiagnosisLevel::Problem) => ExitCode::from(Exit::Refused as u8),
        _ => ExitCode::SUCCESS,
    })
}

fn show(found: &[Diagnosis], screen: &mut Screen) -> Outcome {
    if screen.is_json {
        return found.iter().try_for_each(|line| {
            let level = line.level.as_str();
            let advice = line.advice.as_deref();
            screen.document(&Line { what: &line.what, level, found: &line.found, advice })
        });
    }
    let mut rows = Vec::new();
    for line in found {
        let (tone, sign) = match line.level {
            DiagnosisLevel::Fine => (Tone::Good, "ok"),
            DiagnosisLevel::Warning => (Tone::Warning, "warning"),
            DiagnosisLevel::Problem => (Tone::Bad, "PROBLEM"),
        };
        let found = clean::line(&line.found);
        rows.push(vec![
            Cell::new(tone, sign),
            Cell::new(Tone::Strong, &*line.what),
            Cell::plain(found),
        ]);
        if let Some(advice) = &line.advice {
            let advice = format!("-> {}", clean::line(advice));
            rows.push(vec![Cell::plain(""), Cell::plain(""), Cell::new(Tone::Faint, advice)]);
        }
    }
    screen.table(&["", "CHECK", "FOUND"], &[Align::Left, Align::Left, Align::Left], rows)
}
