//! [`Side`]: one of the two stores of a move. Its errors name the store.
//!
//! A store may fail for a moment. Calls that may be repeated are repeated then, so that the move goes on.

use std::{cell::Cell, collections::HashMap, time::Duration};

use taskharbor::{Admin, AnyDriver, Cursor, DriverError, JobId, List, QueueCounts, QueueName};
use taskharbor_core::{
    Timestamp,
    admin::{Change, Configure, Counts, ListSettings, Page, Setting, SettingKind},
    driver::Limits,
    error::{CallError, Denied},
    export::{ExportUnit, ImportRefused, Imported},
    job::JobSummary,
};

use tokio::time::{Instant, sleep};

use crate::{
    clean,
    failure::{Failure, Outcome},
    store::{Missing, Url},
};

/// How long a store may be unavailable before the move ends.
const OUTAGE_LIMIT: Duration = Duration::from_secs(10);
/// Time between two tries of a call.
const TRY_EVERY: Duration = Duration::from_millis(200);

/// The source or the destination.
pub(super) struct Side {
    driver: AnyDriver,
    role: &'static str,
    pub(super) shown: String,
    outage_limit: Duration,
    /// Whether the last call had to be given up. Then others are made once.
    is_given_up: Cell<bool>,
}

/// An error of a call, which may be worth trying again.
trait CallFailure: Into<Failure> {
    fn is_unavailable(&self) -> bool;
}

impl CallFailure for DriverError {
    fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

impl CallFailure for CallError {
    fn is_unavailable(&self) -> bool {
        matches!(self, Self::Failed(error) if error.is_unavailable())
    }
}

impl Side {
    pub(super) async fn open(url: &Url, missing: Missing, role: &'static str) -> Outcome<Self> {
        let shown = clean::line(&url.shown());
        let failed = |failure| named(role, &shown, failure);
        let driver = url.open(missing).await.map_err(failed)?;
        Ok(Self::new(driver, role, shown, OUTAGE_LIMIT))
    }

    pub(super) const fn new(
        driver: AnyDriver,
        role: &'static str,
        shown: String,
        outage_limit: Duration,
    ) -> Self {
        Self { driver, role, shown, outage_limit, is_given_up: Cell::new(false) }
    }

    /// Makes a call, and makes it again while the store is unavailable, for as long as that may take.
    async fn call<T, E: CallFailure>(
        &self,
        call: impl AsyncFn(&AnyDriver) -> Result<T, E>,
    ) -> Outcome<T> {
        let began = Instant::now();
        loop {
            let answer = call(&self.driver).await;
            let is_away = answer.as_ref().is_err_and(CallFailure::is_unavailable);
            if !is_away || self.is_given_up.get() || began.elapsed() >= self.outage_limit {
                self.is_given_up.set(is_away);
                return self.named(answer);
            }
            sleep(TRY_EVERY).await;
        }
    }

    fn named<T, E: Into<Failure>>(&self, answer: Result<T, E>) -> Outcome<T> {
        answer.map_err(|error| named(self.role, &self.shown, error.into()))
    }

    pub(super) async fn now(&self) -> Outcome<Timestamp> {
        self.call(async |driver| driver.now().await).await
    }

    pub(super) async fn counts(&self) -> Outcome<Vec<QueueCounts>> {
        let now = self.now().await?;
        self.call(async |driver| driver.counts(Counts::new(now)).await).await
    }

    pub(super) async fn pause(&self, queue: QueueName, since: Timestamp) -> Outcome {
        self.call::<_, CallError>(async |driver| driver.pause(queue.clone(), since).await).await
    }

    pub(super) async fn resume(&self, queue: QueueName) -> Outcome {
        let now = self.now().await?;
        self.call::<_, CallError>(async |driver| driver.resume(queue.clone(), now).await).await
    }

    /// The paused queues, and since when each has been paused.
    pub(super) async fn pauses(&self) -> Outcome<HashMap<QueueName, Timestamp>> {
        let pause = |setting| match setting {
            Setting::PausedQueue { queue, since } => Some((queue, since)),
            _ => None,
        };
        let settings = self.settings(SettingKind::PausedQueue).await?;
        Ok(settings.into_iter().filter_map(pause).collect())
    }

    /// All settings of one kind.
    pub(super) async fn settings(&self, kind: SettingKind) -> Outcome<Vec<Setting>> {
        let (mut settings, mut request) =
            (Vec::new(), ListSettings::new(Limits::MAX_PAGE).kind(kind));
        loop {
            let page = self.call(async |driver| driver.settings(request.clone()).await).await?;
            settings.extend(page.items);
            match page.next {
                Some(next) => request = request.after(next),
                None => return Ok(settings),
            }
        }
    }

    /// Made once: a change that was made already may be refused.
    pub(super) async fn configure(
        &self,
        change: Change,
        now: Timestamp,
    ) -> Outcome<Result<(), Denied>> {
        let request = Configure::new(vec![change], now);
        let answers = self.named(self.driver.configure(request).await)?;
        Ok(answers.into_iter().next().unwrap_or(Ok(())))
    }

    pub(super) async fn list(&self, request: List) -> Outcome<Page<JobSummary>> {
        self.call(async |driver| driver.list(request.clone()).await).await
    }

    pub(super) async fn has(&self, job: JobId) -> Outcome<bool> {
        let now = self.now().await?;
        let record = self.call(async |driver| driver.inspect(job.clone(), now).await).await?;
        Ok(record.is_some())
    }

    pub(super) async fn export(
        &self,
        after: Option<Cursor>,
        limit: usize,
    ) -> Outcome<Page<ExportUnit>> {
        self.call(async |driver| driver.export(after.clone(), limit).await).await
    }

    pub(super) async fn import(
        &self,
        units: Vec<ExportUnit>,
    ) -> Outcome<Vec<Result<Imported, ImportRefused>>> {
        self.call(async |driver| driver.import(units.clone()).await).await
    }
}

/// The failure with the store that it came from.
fn named(role: &str, shown: &str, mut failure: Failure) -> Failure {
    failure.text = format!("the {role}, {shown}: {}", failure.text);
    failure
}
