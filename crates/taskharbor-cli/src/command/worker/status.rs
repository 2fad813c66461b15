//! What a worker tells about itself: a line that is redrawn on a terminal, or a few lines elsewhere.

use std::{
    io::{self, IsTerminal, Write},
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::Duration,
};

use taskharbor::{Event, Observer};

use crate::{clean, screen::tell};

const REDRAWN: Duration = Duration::from_millis(250);

/// Counts what a worker does and shows it.
pub(super) struct Status {
    running: AtomicI64,
    done: AtomicU64,
    retried: AtomicU64,
    dead: AtomicU64,
    is_drawn: bool,
    is_json: bool,
}

impl Status {
    pub(super) fn new(is_json: bool) -> Self {
        Self {
            running: AtomicI64::new(0),
            done: AtomicU64::new(0),
            retried: AtomicU64::new(0),
            dead: AtomicU64::new(0),
            is_drawn: io::stderr().is_terminal() && !is_json,
            is_json,
        }
    }

    pub(super) fn running(&self) -> i64 {
        self.running.load(Ordering::Relaxed)
    }

    fn line(&self) -> String {
        let [done, retried, dead] =
            [&self.done, &self.retried, &self.dead].map(|count| count.load(Ordering::Relaxed));
        format!(
            "{} running, {done} done, {retried} retried, {dead} dead-lettered",
            self.running().max(0)
        )
    }

    /// Draws the line again and again, on a terminal; never ends.
    pub(super) async fn show(&self) {
        if !self.is_drawn {
            return std::future::pending().await;
        }
        loop {
            let _ = write!(io::stderr(), "\r\x1b[K{}", self.line());
            tokio::time::sleep(REDRAWN).await;
        }
    }

    /// Says what was done.
    pub(super) fn end(&self) {
        if self.is_drawn {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
        if !self.is_json {
            tell(&self.line());
        }
    }

    /// A line of its own, above the one that is redrawn.
    fn say(&self, text: &str) {
        let clear = if self.is_drawn { "\r\x1b[K" } else { "" };
        let _ = writeln!(io::stderr(), "{clear}{}", clean::line(text));
    }
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
                self.say(&format!("job {} ({}) is dead-lettered: {reason}", job.id, job.job_type));
            }
            Event::StoreUnavailable { error, .. } => {
                self.say(&format!("the store is away: {error}"));
            }
            Event::StoreBack { .. } => self.say("the store is back"),
            Event::WorkerStarted { name, .. } if !self.is_drawn && !self.is_json => {
                self.say(&format!("worker {name} started"));
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
