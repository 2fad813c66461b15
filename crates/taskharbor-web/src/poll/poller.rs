//! [`Poller`]: one task for each store that asks for counts, workers and limits while browsers look at it.
//!
//! All browsers share it. It makes one call at a time, at most one per second, and fewer if the store is
//! slow. It ends when there has been no stream of events and no request for the overview for 15 s.

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use taskharbor::{Admin, AnyDriver, Counts, Driver, DriverError, Page, QueueCounts, Timestamp};
use taskharbor_core::{
    admin::{ListSettings, ListWorkers, Setting, SettingKind, WorkerRecord},
    clock::Clock,
    driver::{DueSchedules, Limits},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

use super::{
    model::{AT_MOST, Model},
    overview::{Away, Overview},
    plan::{Ask, Plan},
};
use crate::event_stream;

/// How long a request for the overview keeps the poller going.
const LOOKED_AT_FOR: Duration = Duration::from_secs(15);
/// What is older is not shown to a new look without asking again.
const STALE_AFTER: Duration = Duration::from_secs(15);
/// How long a question may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The most streams of events of one store.
const MAX_VIEWERS: usize = 100;
/// A slot that is due for longer is late.
const LATE_AFTER: Duration = Duration::from_secs(30);
/// The most late schedules that are counted.
const MAX_LATE: usize = 100;

/// Asks one store for counts, workers and limits while browsers look at it. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Poller {
    shared: Arc<Shared>,
}

struct Shared {
    /// Unset until the store is open; it is away until then.
    driver: OnceLock<AnyDriver>,
    state: Mutex<State>,
    /// A number that grows with every answer.
    news: watch::Sender<u64>,
}

impl Default for Shared {
    fn default() -> Self {
        Self { driver: OnceLock::new(), state: Mutex::default(), news: watch::Sender::new(0) }
    }
}

#[derive(Default)]
struct State {
    model: Model,
    plan: Plan,
    looked_at: Option<Instant>,
    viewers: usize,
    is_running: bool,
    /// When the next question may be asked.
    next_at: Option<Instant>,
    answered_at: Option<Instant>,
    counted_at: Option<Instant>,
    took: Duration,
    away: Option<Away>,
    /// Questions in a row that were not answered.
    failures: u32,
    /// The overview as an event, made once for all streams.
    event: Option<Bytes>,
}

/// The code of a store that cannot be reached.
const STORE_UNAVAILABLE: &str = "store_unavailable";
/// The code of a store that answers with an error.
const STORE_FAILED: &str = "store_failed";

/// What the store answered.
enum Answer {
    Counts(Vec<QueueCounts>, Option<usize>),
    Workers(Page<WorkerRecord>),
    Limits(Page<Setting>),
    Late(usize),
    Time,
}

/// A stream of events that is open. The poller goes on until it is dropped.
pub(super) struct Viewer {
    shared: Arc<Shared>,
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.shared.state().viewers -= 1;
    }
}

impl Poller {
    /// The store is open.
    pub(crate) fn begin(&self, driver: &AnyDriver) {
        self.shared.driver.get_or_init(|| driver.clone());
    }

    /// Looks: the poller goes on for a while. Waits for an answer if there is none that is new, but no
    /// longer than `at_most`.
    pub(super) async fn look(&self, at_most: Duration) -> Overview {
        let mut news = self.shared.news.subscribe();
        self.shared.state().looked_at = Some(Instant::now());
        self.start();
        let _ = timeout(at_most, news.wait_for(|_| self.shared.state().is_fresh())).await;
        self.shared.state().overview(Instant::now())
    }

    /// Looks for as long as what is answered is kept; `None` if too many do.
    pub(super) fn view(&self) -> Option<Viewer> {
        {
            let mut state = self.shared.state();
            if state.viewers >= MAX_VIEWERS {
                return None;
            }
            state.viewers += 1;
        }
        let viewer = Viewer { shared: Arc::clone(&self.shared) };
        self.start();
        Some(viewer)
    }

    /// What is known, without asking the store for more; `None` if nothing is.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Model, Timestamp) -> T) -> Option<T> {
        let state = self.shared.state();
        let now = state.now(Instant::now())?;
        Some(read(&state.model, now))
    }

    /// Notices answers.
    pub(super) fn news(&self) -> watch::Receiver<u64> {
        self.shared.news.subscribe()
    }

    /// The overview as an event, if the store has answered lately, and whether the store is away.
    pub(super) fn event(&self) -> (Option<Bytes>, Option<Away>) {
        let mut state = self.shared.state();
        let away = state.away.clone();
        if state.event.is_none() && (state.is_fresh() || away.is_some()) {
            let overview = state.overview(Instant::now());
            state.event = event_stream::event("overview", &overview).ok();
        }
        (state.event.clone(), away)
    }

    fn start(&self) {
        let mut state = self.shared.state();
        if std::mem::replace(&mut state.is_running, true) {
            return;
        }
        let now = Instant::now();
        if state.answered_at.is_none_or(|at| now.duration_since(at) >= STALE_AFTER) {
            state.plan.begin();
            state.model.look_away();
            state.event = None;
        }
        drop(state);
        let shared = Arc::clone(&self.shared);
        tokio::spawn(run(Running { shared, has_ended: false }));
    }
}

impl std::fmt::Debug for Poller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poller").finish_non_exhaustive()
    }
}

/// The task, which may also end with its runtime.
struct Running {
    shared: Arc<Shared>,
    /// It has said itself that it does not run any more, and another task may run by now.
    has_ended: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended {
            self.shared.state().is_running = false;
        }
    }
}

async fn run(mut running: Running) {
    let shared = Arc::clone(&running.shared);
    loop {
        let next_at = shared.state().next_at;
        if let Some(next_at) = next_at {
            sleep_until(next_at).await;
        }
        let ask = {
            let mut state = shared.state();
            let now = Instant::now();
            if !state.is_looked_at(now) {
                // The next look starts another task.
                state.is_running = false;
                running.has_ended = true;
                return;
            }
            let is_capped = state.model.is_capped();
            state.plan.next(is_capped, now)
        };
        let began = Instant::now();
        let answer = timeout(CALL_TIMEOUT, shared.ask(&ask)).await;
        let answer = answer.unwrap_or(Err(Unanswered { code: "timeout" }));
        shared.state().take(&ask, answer, began);
        shared.news.send_modify(|number| *number += 1);
    }
}

/// The store did not answer.
struct Unanswered {
    code: &'static str,
}

impl From<DriverError> for Unanswered {
    fn from(error: DriverError) -> Self {
        let code = match error {
            DriverError::Unavailable(_) | DriverError::Closed => STORE_UNAVAILABLE,
            _ => STORE_FAILED,
        };
        tracing::debug!(%error, "the store did not answer the poller");
        Self { code }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self, ask: &Ask) -> Result<(Answer, Timestamp), Unanswered> {
        let Some(driver) = self.driver.get() else {
            return Err(Unanswered { code: STORE_UNAVAILABLE });
        };
        let clock: Arc<dyn Clock> = driver.clock().await?;
        let now = clock.now();
        let answer = match ask {
            Ask::Counts => {
                let counts = driver.counts(Counts::new(now).at_most(AT_MOST)).await?;
                Answer::Counts(counts, Some(AT_MOST))
            }
            Ask::ExactCounts => Answer::Counts(driver.counts(Counts::new(now)).await?, None),
            Ask::Workers(after) => {
                let mut request = ListWorkers::new(Limits::MAX_PAGE, now).with_overdue();
                request.after.clone_from(after);
                Answer::Workers(driver.workers(request).await?)
            }
            Ask::Limits(after) => {
                let mut request = ListSettings::new(Limits::MAX_PAGE).kind(SettingKind::Limits);
                request.after.clone_from(after);
                Answer::Limits(driver.settings(request).await?)
            }
            Ask::Late => {
                let then = now.saturating_sub(LATE_AFTER);
                let due = driver.due_schedules(DueSchedules::new(MAX_LATE, then)).await?;
                Answer::Late(due.schedules.len())
            }
            Ask::Time => {
                driver.sync_clock(Duration::ZERO).await?;
                Answer::Time
            }
        };
        Ok((answer, now))
    }
}

impl State {
    fn is_looked_at(&self, now: Instant) -> bool {
        self.viewers > 0 || self.looked_at.is_some_and(|at| now.duration_since(at) < LOOKED_AT_FOR)
    }

    /// Whether what is known is worth showing.
    fn is_fresh(&self) -> bool {
        let is_recent = |at: Instant| Instant::now().duration_since(at) < STALE_AFTER;
        self.away.is_some() && self.answered_at.is_some_and(is_recent)
            || self.counted_at.is_some_and(is_recent)
    }

    /// Takes over what the store answered to a question that was asked at `began`.
    fn take(&mut self, ask: &Ask, answer: Result<(Answer, Timestamp), Unanswered>, began: Instant) {
        let ended = Instant::now();
        let took = ended.duration_since(began);
        self.next_at = Some(ended + Plan::pause(took, answer.is_ok()));
        self.answered_at = Some(ended);
        self.event = None;
        if *ask == Ask::ExactCounts {
            self.plan.note_exact(ended, took);
        }
        match answer {
            Ok((answer, now)) => {
                (self.took, self.failures) = (took, 0);
                if self.away.take().is_some() {
                    tracing::info!("the store answers again");
                }
                self.read(answer, now, ended);
            }
            // It may be too much for a store that answers everything else.
            Err(Unanswered { code }) if *ask == Ask::ExactCounts => {
                tracing::debug!(code, "jobs were not counted without a bound");
            }
            Err(Unanswered { code }) => {
                self.failures += 1;
                // One list that cannot be read says little about the store.
                let is_away = code != STORE_FAILED || self.failures > 1;
                if is_away && self.away.is_none() {
                    tracing::warn!(code, "the store does not answer");
                    self.away = Some(Away { since: self.now(ended), code });
                }
                // The question comes first when the store is back.
                if code != STORE_FAILED {
                    self.plan.go_on(ask.clone());
                }
            }
        }
    }

    fn read(&mut self, answer: Answer, now: Timestamp, ended: Instant) {
        match answer {
            Answer::Counts(counts, at_most) => {
                self.model.count(counts, at_most, now);
                self.counted_at = Some(ended);
            }
            Answer::Workers(page) => {
                self.model.workers(page.items, page.next.is_none(), now);
                if page.next.is_some() {
                    self.plan.go_on(Ask::Workers(page.next));
                }
            }
            Answer::Limits(page) => {
                self.model.limits(page.items, page.next.is_none());
                if page.next.is_some() {
                    self.plan.go_on(Ask::Limits(page.next));
                }
            }
            Answer::Late(schedules) => self.model.late(schedules),
            Answer::Time => {}
        }
    }

    /// The store's time, as it goes on from the last count.
    fn now(&self, now: Instant) -> Option<Timestamp> {
        let age = now.duration_since(self.counted_at?);
        Some(self.model.counted_at()?.saturating_add(age))
    }

    fn overview(&self, now: Instant) -> Overview {
        let age = self.counted_at.map_or(Duration::ZERO, |at| now.duration_since(at));
        let at = self.now(now).unwrap_or(Timestamp::EPOCH);
        Overview {
            age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
            away: self.away.clone(),
            poll_ms: self.took.as_secs_f64() * 1e3,
            ..self.model.overview(at)
        }
    }
}
