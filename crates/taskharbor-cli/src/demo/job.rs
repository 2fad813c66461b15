//! The jobs of the demo and the functions that run them.
//!
//! No mail is sent: a handler that works only waits, for a time that depends on its job, so that
//! the durations look like those of real work and every run looks alike.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use taskharbor::{Client, Context, EnqueueError, Handle, Handlers, Job, JobError, JobResult};
use tokio::time::sleep;

use super::{
    plan::{self, Kind},
    silence::silenced,
};

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(type = "email:send", queue = "mail")]
struct SendEmail {
    number: u32,
}

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(type = "image:resize", queue = "media")]
struct ResizeImage {
    number: u32,
}

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(type = "report:build", queue = "reports", output = Report)]
struct BuildReport {
    number: u32,
}

/// What `report:build` produces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Which report it is.
    pub(crate) number: u32,
    /// How long it is.
    pub(crate) rows: u32,
}

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(type = "reminder:send")]
struct SendReminder {}

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(type = "sms:send", queue = "sms", max_attempts = 3)]
struct SendSms {
    number: u32,
}

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(type = "webhook:call", max_attempts = 4)]
struct CallWebhook {}

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(type = "invoice:split", max_attempts = 3)]
struct SplitInvoice {
    amount: u32,
    people: u32,
}

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(type = "feed:import", max_attempts = 3, timeout = "250ms")]
struct ImportFeed {}

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(type = "user:import")]
struct ImportUser {
    address: Option<String>,
}

/// The type of a job that no handler runs, as if its code had been removed.
const LEGACY: &str = "legacy:sync";

/// All handlers.
pub(crate) fn handlers() -> Handlers {
    Handlers::new()
        .on(async |job: SendEmail, _| works(100, job.number).await)
        .on(async |job: ResizeImage, _| works(280, job.number).await)
        .on(build_report)
        .on(async |_: SendReminder, _| works(60, 0).await)
        .on(send_sms)
        .on(call_webhook)
        .on(split_invoice)
        .on(async |_: ImportFeed, _| works(60_000, 0).await)
        .on(import_user)
}

async fn build_report(job: BuildReport, _: Context) -> JobResult<Report> {
    works(500, job.number).await?;
    Ok(report(job.number))
}

async fn send_sms(job: SendSms, cx: Context) -> JobResult {
    works(60, job.number).await?;
    if cx.attempt() == 1 {
        return Err("the gateway is busy".into());
    }
    Ok(())
}

async fn call_webhook(_: CallWebhook, _: Context) -> JobResult {
    works(40, 1).await?;
    Err("connection refused".into())
}

async fn split_invoice(job: SplitInvoice, _: Context) -> JobResult {
    works(40, job.amount).await?;
    // Division by zero: the bug that this handler shows.
    let share = silenced(|| job.amount / job.people);
    works(40, share).await
}

async fn import_user(job: ImportUser, _: Context) -> JobResult {
    works(40, 0).await?;
    match job.address {
        Some(_) => Ok(()),
        None => Err(JobError::unrecoverable("the user has no address")),
    }
}

/// The report that a job of this number builds.
pub(crate) const fn report(number: u32) -> Report {
    Report { number, rows: 120 + number * 37 % 90 }
}

/// Waits for about this many milliseconds: three to five quarters of it, by the number.
async fn works(millis: u32, number: u32) -> JobResult {
    let share = number.wrapping_mul(7_919) % 1_000;
    let millis = f64::from(millis) * (0.75 + f64::from(share) / 2_000.0);
    sleep(Duration::from_secs_f64(millis / 1_000.0)).await;
    Ok(())
}

/// What is asked about again when all is over.
#[derive(Debug)]
pub(crate) struct Enqueued {
    /// The jobs that produce something.
    pub(crate) reports: Vec<Handle<Report>>,
    /// The job that was scheduled.
    pub(crate) reminder: Handle<()>,
}

/// Enqueues all jobs of the plan.
pub(crate) async fn enqueue(client: &Client) -> Result<Enqueued, EnqueueError> {
    client.enqueue_many(numbered(|number| SendEmail { number })).await?;
    client.enqueue_many(numbered(|number| ResizeImage { number })).await?;
    let reports = client.enqueue_many(numbered(|number| BuildReport { number })).await?;
    let reminder = client.enqueue(SendReminder {}).delay(plan::AHEAD).await?;
    client.enqueue_many(numbered(|number| SendSms { number })).await?;
    client.enqueue(CallWebhook {}).await?;
    client.enqueue(SplitInvoice { amount: 90, people: 0 }).await?;
    client.enqueue(ImportFeed {}).await?;
    client.enqueue(ImportUser { address: None }).await?;
    client.enqueue_raw(LEGACY, b"{}").await?;
    Ok(Enqueued { reports, reminder })
}

/// As many jobs as the plan has of this type.
fn numbered<J: Job>(make: impl Fn(u32) -> J) -> impl Iterator<Item = J> {
    let jobs = Kind::of(J::TYPE).map_or(0, |kind| kind.jobs);
    (0..).take(jobs).map(make)
}
