//! [`Run`]: a sweep at work.

use std::{
    future::{Future, pending},
    sync::{Arc, Weak},
    time::Duration,
};

use taskharbor::{Admin, Denied, DriverError, JobId, Manage, State, Timestamp};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

use super::{PAGE, registry::SweepState, walk::Walk, wanted::Wanted};
use crate::{
    access::Access,
    action_log::ActionRecord,
    app::{App, Store},
    problem::Problem,
};

/// How many times in a second a paced sweep acts, if it may.
const STEPS_PER_S: u32 = 4;
/// The shortest time between two tellings of how far a sweep is.
const TOLD_EVERY: Duration = Duration::from_millis(250);
/// How long one call to the store may take.
const CALL_TIME: Duration = Duration::from_secs(30);
/// How long a store that does not answer is waited for.
const OUTAGE_TIME: Duration = Duration::from_secs(600);
/// How long to wait between two tries, at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// The jobs that the action log names.
const LOGGED_IDS: usize = 100;

const AWAY: &str = "the store does not answer: the sweep waits for it";
const GIVEN_UP: &str =
    "the store did not answer for 10 minutes: preview the sweep again when it does";
const STORE_FAILED: &str = "the store failed: the cause is in the server's log";
const SHUT_DOWN: &str = "the server was shut down";
const TOKEN_LOST: &str = "the token that it was started with was removed, or its role was lowered";

/// A sweep that runs.
pub(super) struct Run {
    pub(super) id: String,
    /// Weak, so that an application that drops its router ends its sweeps.
    pub(super) app: Weak<App>,
    pub(super) store: Arc<Store>,
    pub(super) access: Access,
    pub(super) details: serde_json::Value,
    pub(super) wanted: Wanted,
    /// The jobs that matched then are acted on.
    pub(super) matched_at: Timestamp,
    pub(super) rate_per_s: Option<u32>,
    pub(super) cap: usize,
    pub(super) stop: watch::Receiver<bool>,
}

/// Why a sweep ended before it had seen all jobs.
#[derive(Debug)]
enum Early {
    Stopped,
    Failed(&'static str),
}

/// How far a sweep is.
struct Progress {
    done: usize,
    refused: usize,
    ids: Vec<String>,
    /// When the next jobs may be acted on.
    next_at: Instant,
    told_at: Instant,
}

impl Run {
    /// Acts on all jobs; ends early when the server does, or when the caller has lost its access.
    pub(super) async fn go(
        mut self,
        ended: impl Future<Output = ()> + Send,
        lost: impl Future<Output = ()> + Send,
    ) {
        let (store, id) = (Arc::clone(&self.store), self.id.clone());
        let stop = async {
            let reason = tokio::select! {
                () = ended => SHUT_DOWN,
                () = lost => TOKEN_LOST,
            };
            store.sweeps.stop(&id, Some(reason));
            pending::<()>().await;
        };
        let now = Instant::now();
        let mut progress =
            Progress { done: 0, refused: 0, ids: Vec::new(), next_at: now, told_at: now };
        let end = tokio::select! {
            end = self.work(&mut progress) => end,
            () = stop => Ok(()),
        };
        self.end(progress, end).await;
    }

    async fn work(&mut self, progress: &mut Progress) -> Result<(), Early> {
        let invalid = |problem: Problem| {
            tracing::error!(detail = %problem.detail, "a sweep cannot be done");
            Early::Failed(STORE_FAILED)
        };
        let step = self.step();
        // Jobs are looked up right before they are acted on, so they have had no time to change. A
        // fingerprint matches few jobs of a page, so that a page may be larger than a step.
        let page = if self.wanted.fingerprint.is_some() { self.soon() } else { step };
        let mut walk = Walk::new(&self.wanted, self.matched_at, page).map_err(invalid)?;
        while let Some(ids) = self.next(&mut walk).await? {
            for ids in ids.chunks(step) {
                let room = self.cap.saturating_sub(progress.done + progress.refused);
                let ids = &ids[..ids.len().min(room)];
                if ids.is_empty() {
                    return Ok(());
                }
                self.pause_until(progress.next_at).await?;
                self.act(ids, progress).await?;
            }
        }
        Ok(())
    }

    /// How many jobs are acted on in one call.
    fn step(&self) -> usize {
        let paced = self.rate_per_s.map(|rate| rate.div_ceil(STEPS_PER_S));
        paced.and_then(|step| usize::try_from(step).ok()).unwrap_or(PAGE).min(PAGE)
    }

    /// How many jobs are acted on within ten seconds.
    fn soon(&self) -> usize {
        let paced = self.rate_per_s.and_then(|rate| usize::try_from(rate).ok());
        paced.map_or(PAGE, |rate| rate.saturating_mul(10).min(PAGE))
    }

    /// The next jobs.
    async fn next(&mut self, walk: &mut Walk) -> Result<Option<Vec<JobId>>, Early> {
        let mut outage = Outage::default();
        let driver = self.store.driver.clone();
        loop {
            self.go_on()?;
            match timeout(CALL_TIME, walk.next(&driver)).await {
                Ok(Ok(jobs)) => {
                    return Ok(jobs.map(|jobs| jobs.into_iter().map(|job| job.id).collect()));
                }
                Ok(Err(error)) => self.wait_out(&mut outage, Some(&error)).await?,
                Err(_) => self.wait_out(&mut outage, None).await?,
            }
        }
    }

    async fn act(&mut self, ids: &[JobId], progress: &mut Progress) -> Result<(), Early> {
        let started = Instant::now();
        let mut outage = Outage::default();
        let answers = loop {
            match timeout(CALL_TIME, self.manage(ids)).await {
                Ok(Ok(answers)) => break answers,
                Ok(Err(error)) => self.wait_out(&mut outage, Some(&error)).await?,
                Err(_) => self.wait_out(&mut outage, None).await?,
            }
        };
        for (id, answer) in ids.iter().zip(answers) {
            let is_done = match answer {
                Ok(_) => true,
                // The answer to an earlier try was lost, and the store had done its part.
                Err(denied) => outage.has_been() && self.wanted.action.may_have_led_to(&denied),
            };
            if !is_done {
                progress.refused += 1;
                continue;
            }
            progress.done += 1;
            if progress.ids.len() < LOGGED_IDS {
                progress.ids.push(id.to_string());
            }
        }
        if let Some(rate) = self.rate_per_s {
            let jobs = u32::try_from(ids.len()).unwrap_or(u32::MAX);
            let share = Duration::from_secs(1).saturating_mul(jobs) / rate.max(1);
            progress.next_at = progress.next_at.max(started) + share;
        }
        self.tell(progress);
        Ok(())
    }

    async fn manage(&self, ids: &[JobId]) -> Result<Vec<Result<State, Denied>>, DriverError> {
        let driver = &self.store.driver;
        let now = driver.now().await?;
        driver.manage(Manage::new(ids.to_vec(), self.wanted.action(), now)).await
    }

    fn tell(&self, progress: &mut Progress) {
        let is_due = progress.told_at.elapsed() >= TOLD_EVERY;
        if is_due {
            progress.told_at = Instant::now();
        }
        let (done, refused) = (progress.done, progress.refused);
        self.store.sweeps.change(&self.id, is_due, |sweep| sweep.progress(done, refused));
    }

    fn go_on(&self) -> Result<(), Early> {
        if *self.stop.borrow() { Err(Early::Stopped) } else { Ok(()) }
    }

    /// Waits until then, unless the sweep is stopped.
    async fn pause_until(&mut self, instant: Instant) -> Result<(), Early> {
        self.go_on()?;
        tokio::select! {
            () = sleep_until(instant) => Ok(()),
            // The sender is kept with the sweep, which runs.
            _ = self.stop.wait_for(|it| *it) => Err(Early::Stopped),
        }
    }

    /// Waits before another try, if one may succeed. No error is a call that took too long.
    async fn wait_out(
        &mut self,
        outage: &mut Outage,
        error: Option<&DriverError>,
    ) -> Result<(), Early> {
        if let Some(error) = error
            && !matches!(error, DriverError::Unavailable(_))
        {
            tracing::error!(%error, sweep = self.id, "the store failed during a sweep");
            return Err(Early::Failed(STORE_FAILED));
        }
        let Some(pause) = outage.pause() else { return Err(Early::Failed(GIVEN_UP)) };
        self.store.sweeps.change(&self.id, true, |sweep| sweep.waits(AWAY));
        self.pause_until(Instant::now() + pause).await
    }

    /// Says how it ended: to the pages, and to the action log.
    async fn end(self, progress: Progress, end: Result<(), Early>) {
        let (state, error, result) = match end {
            Ok(()) => (SweepState::Done, None, "ok"),
            Err(Early::Stopped) => (SweepState::Stopped, None, "stopped"),
            Err(Early::Failed(error)) => (SweepState::Failed, Some(error), "store_failed"),
        };
        let at = timeout(CALL_TIME, self.store.driver.now()).await.ok().and_then(Result::ok);
        let Progress { done, refused, ids, .. } = progress;
        if let Some(app) = self.app.upgrade() {
            app.answers.forget(&self.store.name);
            let mut details = self.details;
            details["refused"] = refused.into();
            app.actions
                .add(ActionRecord {
                    at,
                    who: self.access.name,
                    role: self.access.role,
                    store: self.store.name.clone(),
                    action: "sweep.end".to_owned(),
                    target: [("id".to_owned(), self.id.clone())].into(),
                    ids,
                    details: Some(details),
                    count: Some(done),
                    result: result.to_owned(),
                })
                .await;
        }
        self.store.sweeps.change(&self.id, true, |sweep| {
            sweep.progress(done, refused);
            sweep.end(state, error, at);
        });
    }
}

/// A store that does not answer.
#[derive(Default)]
struct Outage {
    since: Option<Instant>,
    pause: Duration,
}

impl Outage {
    /// Whether a call has failed.
    const fn has_been(&self) -> bool {
        self.since.is_some()
    }

    /// How long to wait before another try; `None` if it has lasted too long.
    fn pause(&mut self) -> Option<Duration> {
        let since = *self.since.get_or_insert_with(Instant::now);
        self.pause = (self.pause * 2).clamp(Duration::from_secs(1), LONGEST_PAUSE);
        (since.elapsed() < OUTAGE_TIME).then_some(self.pause)
    }
}
