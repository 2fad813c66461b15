//! `taskharbor doctor`: what is wrong with a store, its queues and its workers, on one screen.

mod handler;
mod job;
mod lane;
mod store;
mod worker;

use std::{process::ExitCode, time::Duration};

use serde::Serialize;
use taskharbor::{
    Admin, AnyDriver, Client, DriverError, ManageError, QueueCounts, Timestamp, WorkerInfo,
    WorkerStatus,
};
use taskharbor_core::admin::{Counts, Diagnosis, DiagnosisLevel};
use tokio::time::timeout;

use crate::{
    clean,
    failure::{Exit, Outcome},
    screen::{Screen, span},
    store::{Missing, Opened, Url},
    table::{Align, Cell},
    terminal::Tone,
};

/// Where counting the jobs of a queue stops.
const COUNTED: usize = 10_000;
const DAY: Duration = Duration::from_secs(86_400);
const HOUR: Duration = Duration::from_secs(3_600);
/// How long a check may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// The lines of a check.
type Checked = Result<Vec<Diagnosis>, DriverError>;

/// Look for what is wrong with the store, its queues and its workers
///
/// Each line says what was looked at, how it is, and what to do about it. A check that fails is a line of
/// its own, and so is one that this role or token may not make. The exit code is 4 if a line tells of a
/// problem: the store cannot be used, or jobs are lost, late or do not run.
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
    /// `None` if they could not be read.
    queues: Option<Vec<QueueCounts>>,
    workers: Option<Vec<WorkerStatus>>,
}

impl Patient {
    /// The workers that are there.
    fn present(&self) -> impl Iterator<Item = &WorkerStatus> {
        self.workers.iter().flatten().filter(|worker| !worker.is_overdue)
    }

    /// What those of them say about themselves whose words this version can read.
    fn infos(&self) -> impl Iterator<Item = (&WorkerStatus, &WorkerInfo)> {
        self.present().filter_map(|worker| Some((worker, worker.info.as_ref()?)))
    }
}

/// The lines so far.
#[derive(Default)]
struct Report(Vec<Diagnosis>);

impl Report {
    /// Waits for a check. One that fails is a line of its own, and the others go on.
    async fn add(&mut self, what: &'static str, check: impl Future<Output = Checked>) {
        if let Some(lines) = self.read(what, check).await {
            self.0.extend(lines);
        }
    }

    /// What a check reads, if it does not fail.
    async fn read<T>(
        &mut self,
        what: &'static str,
        check: impl Future<Output = Result<T, DriverError>>,
    ) -> Option<T> {
        let none = || DriverError::unavailable(format!("no answer within {}", span(CHECK_TIMEOUT)));
        let answer = timeout(CHECK_TIMEOUT, check).await.unwrap_or_else(|_| Err(none()));
        answer.map_err(|error| self.0.push(failed(what, &error))).ok()
    }

    fn has(&self, what: &str, level: DiagnosisLevel) -> bool {
        self.0.iter().any(|line| line.what == what && line.level == level)
    }
}

/// The line for a check that could not be made.
fn failed(what: &'static str, error: &DriverError) -> Diagnosis {
    if error.is_not_allowed() {
        let found = format!("not looked at: {}", error.reason());
        return Diagnosis::warning(what, found, "let an operator of the store run this");
    }
    let advice = match error {
        DriverError::Unavailable(_) => {
            "see whether the server of the store runs, and the network to it"
        }
        _ => "do what the message says, or report it with the version of TaskHarbor",
    };
    Diagnosis::problem(what, error.reason(), advice)
}

pub(crate) async fn run(url: &Url, screen: &mut Screen) -> Outcome<ExitCode> {
    let mut report = Report::default();
    match url.try_open(Missing::Refuse).await {
        Ok(Opened::Driver(driver)) => examine(url, driver, &mut report).await,
        Ok(Opened::Away(failure)) => report.0.push(not_opened(failure.text)),
        // A mistake in the command line says nothing about the store.
        Err(failure) if failure.exit == Exit::Usage => return Err(failure),
        Err(failure) => report.0.push(not_opened(failure.text)),
    }
    show(&report.0, screen)?;
    let worst = report.0.iter().map(|line| line.level).max();
    screen.flush()?;
    Ok(match worst {
        Some(DiagnosisLevel::Problem) => ExitCode::from(Exit::Refused as u8),
        _ => ExitCode::SUCCESS,
    })
}

fn not_opened(text: String) -> Diagnosis {
    let advice = "start its server, prepare it with `taskharbor migrate up`, or name another store with --url";
    Diagnosis::problem("store", text, advice)
}

async fn examine(url: &Url, driver: AnyDriver, report: &mut Report) {
    // Without an answer or without a schema, all other lines would say the same.
    let Some(now) = report.read("store", store::time(url, &driver)).await else { return };
    report.0.extend(now.lines);
    let now = now.time;
    if let Some(lines) = report.read("server", driver.diagnose()).await {
        report.0.extend(lines);
    }
    if report.has("schema", DiagnosisLevel::Problem) {
        return;
    }
    report.add("wake-ups", store::wake_up(url, &driver)).await;
    let counts = driver.counts(Counts::new(now).at_most(COUNTED));
    let queues = report.read("queues", counts).await;
    let client = Client::new(&driver);
    let workers = report.read("workers", async { client.workers().await.map_err(store_error) });
    let workers = workers.await;
    let patient = Patient { driver, now, queues, workers };
    report.0.extend(worker::check(&patient));
    report.add("types", handler::check(&patient)).await;
    report.add("schedules", job::schedules(&patient)).await;
    report.add("limits", lane::check(&patient)).await;
    report.add("crashes", job::crashes(&patient)).await;
    report.add("DLQ", job::dlq(&patient)).await;
}

fn store_error(error: ManageError) -> DriverError {
    match error {
        ManageError::Store(error) => error,
        other => DriverError::backend(other.to_string()),
    }
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
