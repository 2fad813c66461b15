//! The status of a worker: a line that is redrawn on a terminal, or a few lines elsewhere.

use std::{
    collections::HashSet,
    io::{self, IsTerminal},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde::Serialize;
use taskharbor::{Event, Observer, ReleaseReason};
use taskharbor_core::job::JobView;

use crate::{clean, screen::counted, stderr};

const REDRAWN: Duration = Duration::from_millis(250);

/// Counts what a worker does and shows it.
pub(super) struct Status {
    running: AtomicI64,
    done: AtomicU64,
    retried: AtomicU64,
    dead: AtomicU64,
    /// Types of jobs without a handler here, each told once.
    unknown: Mutex<HashSet<String>>,
    /// Types of jobs whose handlers have snoozed one, each told once.
    snoozed: Mutex<HashSet<String>>,
    is_drawn: bool,
}

/// What happened, for programs.
#[derive(Default, Serialize)]
struct Said<'a> {
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<&'a str>,
    message: &'a str,
}

/// What a worker has done, for programs.
#[derive(Serialize)]
struct Ended {
    event: &'static str,
    done: u64,
    retried: u64,
    dead_lettered: u64,
}

impl Status {
    pub(super) fn new(is_json: bool) -> Self {
        Self {
            running: AtomicI64::new(0),
            done: AtomicU64::new(0),
            retried: AtomicU64::new(0),
            dead: AtomicU64::new(0),
            unknown: Mutex::default(),
            snoozed: Mutex::default(),
            is_drawn: io::stderr().is_terminal() && !is_json,
        }
    }

    pub(super) fn running(&self) -> i64 {
        self.running.load(Ordering::Relaxed)
    }

    fn counts(&self) -> [u64; 3] {
        [&self.done, &self.retried, &self.dead].map(|count| count.load(Ordering::Relaxed))
    }

    fn line(&self) -> String {
        let [done, retried, dead] = self.counts();
        let running = self.running().max(0);
        format!("{running} running, {done} done, {retried} retried, {dead} dead-lettered")
    }

    /// Draws the line again and again, on a terminal; never ends.
    pub(super) async fn show(&self) {
        if !self.is_drawn {
            return std::future::pending().await;
        }
        loop {
            stderr::write(format!("\r\x1b[K{}", self.line()).as_bytes());
            tokio::time::sleep(REDRAWN).await;
        }
    }

    /// Says what was done.
    pub(super) fn end(&self) {
        self.clear();
        let [done, retried, dead_lettered] = self.counts();
        let ended = Ended { event: "ended", done, retried, dead_lettered };
        stderr::note(&ended, &self.line());
    }

    /// A line of its own, above the one that is redrawn.
    pub(super) fn say(&self, event: &'static str, text: &str) {
        self.say_of(event, None, text);
    }

    fn say_of(&self, event: &'static str, job: Option<&JobView>, text: &str) {
        self.clear();
        let (id, job_type) = (job.map(|job| job.id.as_str()), job.map(|job| job.job_type.as_str()));
        stderr::note(&Said { event, job: id, r#type: job_type, message: text }, &clean::line(text));
    }

    fn clear(&self) {
        if self.is_drawn {
            stderr::write(b"\r\x1b[K");
        }
    }

    /// Says once that the handler of a type has snoozed a job.
    fn snoozed(&self, job: &JobView) {
        let job_type = job.job_type.as_str();
        if is_first(&self.snoozed, job_type) {
            let text = format!(
                "the handler of type {job_type} snoozed job {}: it is tried again later, and no attempt is charged",
                job.id
            );
            self.say_of("snoozed", Some(job), &text);
        }
    }

    /// Says once that there is no handler for a type.
    fn unknown(&self, job: &JobView) {
        let job_type = job.job_type.as_str();
        if is_first(&self.unknown, job_type) {
            let text = format!(
                "no handler for jobs of type {job_type}, which are left to other workers and dead-lettered if none runs them in time: add --exec '{job_type}=COMMAND' if this one should run them"
            );
            self.say_of("no_handler", Some(job), &text);
        }
    }
}

/// Whether this type was not told before.
fn is_first(told: &Mutex<HashSet<String>>, job_type: &str) -> bool {
    told.lock().unwrap_or_else(PoisonError::into_inner).insert(job_type.to_owned())
}

impl Observer for Status {
    fn on(&self, event: &Event<'_>) {
        match event {
            Event::Reserved { .. } => {
                self.running.fetch_add(1, Ordering::Relaxed);
            }
            Event::Succeeded { .. } => {
                self.done.fetch_add(1, Ordering::Relaxed);
            }
            Event::Retried { .. } => {
                self.retried.fetch_add(1, Ordering::Relaxed);
            }
            Event::DeadLettered { job, reason, .. } => {
                self.dead.fetch_add(1, Ordering::Relaxed);
                let text = format!("job {} ({}) was dead-lettered: {reason}", job.id, job.job_type);
                self.say_of("dead_lettered", Some(job), &text);
            }
            Event::StoreUnavailable { error, .. } => {
                self.say("store_away", &format!("the store is unavailable: {}", error.reason()));
            }
            Event::WakeUpsLost { problem, .. } => {
                let text =
                    format!("no wake-ups from the store, jobs are found by polling: {problem}");
                self.say("no_wake_ups", &text);
            }
            Event::WakeUpsBack { .. } => {
                self.say("wake_ups_back", "wake-ups from the store arrive again");
            }
            Event::ScheduleFailed { schedule, error, .. } => {
                self.say("schedule_failed", &format!("schedule {schedule} was not fired: {error}"));
            }
            Event::StoreBack { .. } => self.say("store_back", "the store is back"),
            Event::WorkerStarted { name, shutdown_within, .. } => {
                let text = format!(
                    "worker {name} started; its shutdown takes {shutdown_within:?} at most"
                );
                self.say("started", &text);
            }
            Event::NameShared { name, .. } => {
                let text = format!(
                    "another worker is called {name}: an eviction of one ends the leases of both, give each a name of its own"
                );
                self.say("name_shared", &text);
            }
            Event::WorkerEvicted { name, leases, .. } => {
                let leases = counted(*leases, "lease");
                let text = format!(
                    "worker {name} did not announce itself any more and was evicted: {leases} ended"
                );
                self.say("worker_evicted", &text);
            }
            Event::EvictionDenied { error, .. } => {
                let text = format!(
                    "fast recovery has no effect, this worker may not evict others: {}",
                    error.reason()
                );
                self.say("eviction_denied", &text);
            }
            Event::Quiet { inflight, .. } => {
                let jobs = counted(*inflight, "job");
                self.say("quiet", &format!("taking no more jobs, and going on with {jobs}"));
            }
            Event::Released { job, why: ReleaseReason::NoHandler, .. } => self.unknown(job),
            Event::Released { job, why: ReleaseReason::Snoozed, .. } => self.snoozed(job),
            Event::LeaseLost { job, why, .. } => {
                let text = format!(
                    "the lease of job {} ({}) was lost, and its result is not recorded: {why}",
                    job.id, job.job_type
                );
                self.say_of("lease_lost", Some(job), &text);
            }
            _ => {}
        }
        let is_over = matches!(
            event,
            Event::Succeeded { .. }
                | Event::Retried { .. }
                | Event::DeadLettered { .. }
                | Event::Released { .. }
                | Event::LeaseLost { .. }
        );
        if is_over {
            self.running.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
