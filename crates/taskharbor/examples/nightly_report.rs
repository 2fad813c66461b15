//! A nightly report: a schedule makes a job every night, and its handler writes a file with the orders of the day.
//!
//! A second schedule makes the same job every two seconds, with the orders of two seconds, so that there is something
//! to see at once. The program shows three of these reports and ends.
//!
//! Run it with `cargo run -p taskharbor --example nightly_report`. In a program of your own, the store is a database,
//! for example `sqlite:jobs.db?create=true`. Then a night in which no worker ran is made up for by the next worker.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use taskharbor::{
    BoxError, Client, Context, Exponential, Handlers, Job, JobError, JobResult, Missed, Overlap,
    Schedule, Schedules, Timestamp, Worker, blocking,
};
use tokio::sync::mpsc;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

/// Writes the report about the time before the slot.
#[derive(Serialize, Deserialize, Job)]
#[job(type = "report:orders", queue = "reports", timeout = "10m", max_attempts = 5)]
#[job(retry = Exponential::new().base(Duration::from_secs(60)))]
struct Report {
    covers: Duration,
}

struct App {
    folder: PathBuf,
    /// Tells `main` about the files, so that it can show them.
    written: mpsc::UnboundedSender<PathBuf>,
}

/// Stands for a query of your database: an order arrives every 400 ms.
fn orders(from: Timestamp, to: Timestamp) -> impl Iterator<Item = (Timestamp, i64)> {
    const EVERY: i64 = 400_000;
    let first = from.as_micros().div_euclid(EVERY) + 1;
    let last = to.as_micros().div_euclid(EVERY);
    (first..=last).filter_map(|n| Some((Timestamp::from_micros(n * EVERY).ok()?, n % 90 + 10)))
}

async fn report(job: Report, cx: Context<App>) -> JobResult {
    // The slot is the time for which the schedule made this job. A late run or a retry covers the same time.
    let to = cx.slot().ok_or_else(|| JobError::unrecoverable("only a schedule makes this job"))?;
    let from = to.saturating_sub(job.covers);
    let name = format!("orders-{}.csv", to.to_string().replace(':', "-"));
    let file = cx.state().folder.join(name);
    let path = file.clone();
    blocking(move || -> JobResult {
        let mut csv = String::from("time,euros\n");
        orders(from, to).for_each(|(time, euros)| csv.push_str(&format!("{time},{euros}\n")));
        // A reader never sees half a file, and a second run writes the same file again.
        let part = path.with_extension("part");
        fs::write(&part, csv)?;
        Ok(fs::rename(part, path)?)
    })
    .await?;
    // `main` may have ended.
    let _ = cx.state().written.send(file);
    Ok(())
}

/// All schedules of this program. A worker that starts with another list adds and removes the difference.
fn schedules(preview: Duration) -> Schedules {
    let nightly = Schedule::cron("orders-nightly", "30 2 * * *")
        .zone("Europe/Berlin")
        .job(Report { covers: DAY })
        .missed(Missed::All { at_most: 7 }) // after an outage: up to seven nights
        .within(8 * DAY)
        .overlap(Overlap::Queue);
    let now = Schedule::every("orders-preview", preview).job(Report { covers: preview });
    Schedules::owned_by("reports").add(nightly).add(now)
}

/// Shows so many reports of the second schedule.
async fn run(folder: &Path, preview: Duration, count: usize) -> Result<(), BoxError> {
    fs::create_dir_all(folder)?;
    let driver = taskharbor::connect("memory:").await?;
    let (written, mut files) = mpsc::unbounded_channel();
    let app = App { folder: folder.to_owned(), written };
    let worker = Worker::builder(&driver)
        .handlers(Handlers::new().on(report).with_state(app))
        .queue("reports", 2)
        .schedules(schedules(preview))
        .build()?
        .start();
    for n in 1..=count {
        let file = files.recv().await.ok_or("the worker has ended")?;
        println!("report {n} of {count}: {}\n{}", file.display(), fs::read_to_string(&file)?);
    }
    let client = Client::new(&driver);
    for slot in client.schedules().upcoming("orders-nightly", 3).await? {
        println!("a nightly report would be written at {slot}");
    }
    worker.shutdown().await?;
    Ok(())
}

#[taskharbor::main]
async fn main() -> Result<(), BoxError> {
    let folder = std::env::temp_dir().join("taskharbor-reports");
    run(&folder, 2 * SECOND, 3).await?;
    println!("the reports are in {}", folder.display());
    Ok(())
}

#[test]
fn it_writes_reports() {
    let folder = std::env::temp_dir().join(format!("taskharbor-reports-{}", std::process::id()));
    taskharbor::block_on(run(&folder, SECOND, 2)).unwrap();
    let mut reports = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let csv = fs::read_to_string(entry.unwrap().path()).unwrap();
        let lines: Vec<&str> = csv.lines().collect();
        // A second has two orders, or three.
        assert!(lines[0] == "time,euros" && [3, 4].contains(&lines.len()), "{csv}");
        reports += 1;
    }
    assert!(reports >= 2, "{reports}");
    fs::remove_dir_all(&folder).unwrap();
}
