//! [`Side`]: one of the two stores of a move, whose errors say which of them it is.

use std::collections::HashMap;

use taskharbor::{Admin, AnyDriver, Cursor, DriverError, JobId, List, QueueCounts, QueueName};
use taskharbor_core::{
    Timestamp,
    admin::{Change, Configure, Counts, ListSettings, Page, Setting, SettingKind},
    driver::Limits,
    error::{CallError, Denied},
    export::{ExportUnit, ImportRefused, Imported},
    job::JobSummary,
};

use crate::{
    clean,
    failure::{Failure, Outcome},
    store::{Missing, Url},
};

/// The source or the destination.
pub(super) struct Side {
    driver: AnyDriver,
    role: &'static str,
    pub(super) shown: String,
}

impl Side {
    pub(super) async fn open(url: &Url, missing: Missing, role: &'static str) -> Outcome<Self> {
        let shown = clean::line(&url.shown());
        let failed = |failure| named(role, &shown, failure);
        let driver = url.open(missing).await.map_err(failed)?;
        Ok(Self { driver, role, shown })
    }

    fn named<T, E: Into<Failure>>(&self, answer: Result<T, E>) -> Outcome<T> {
        answer.map_err(|error| named(self.role, &self.shown, error.into()))
    }

    pub(super) async fn now(&self) -> Outcome<Timestamp> {
        self.named(self.driver.now().await)
    }

    pub(super) async fn counts(&self) -> Outcome<Vec<QueueCounts>> {
        let now = self.now().await?;
        self.named(self.driver.counts(Counts::new(now)).await)
    }

    pub(super) async fn pause(&self, queue: QueueName, since: Timestamp) -> Outcome {
        self.named::<_, CallError>(self.driver.pause(queue, since).await)
    }

    pub(super) async fn resume(&self, queue: QueueName) -> Outcome {
        let now = self.now().await?;
        self.named::<_, CallError>(self.driver.resume(queue, now).await)
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
            let page = self.named(self.driver.settings(request.clone()).await)?;
            settings.extend(page.items);
            match page.next {
                Some(next) => request = request.after(next),
                None => return Ok(settings),
            }
        }
    }

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
        self.named(self.driver.list(request).await)
    }

    pub(super) async fn has(&self, job: JobId) -> Outcome<bool> {
        let now = self.now().await?;
        Ok(self.named(self.driver.inspect(job, now).await)?.is_some())
    }

    pub(super) async fn export(
        &self,
        after: Option<Cursor>,
        limit: usize,
    ) -> Outcome<Page<ExportUnit>> {
        self.named(self.driver.export(after, limit).await)
    }

    pub(super) async fn import(
        &self,
        units: Vec<ExportUnit>,
    ) -> Outcome<Vec<Result<Imported, ImportRefused>>> {
        self.named::<_, DriverError>(self.driver.import(units).await)
    }
}

/// The failure with the store that it came from.
fn named(role: &str, shown: &str, mut failure: Failure) -> Failure {
    failure.text = format!("the {role}, {shown}: {}", failure.text);
    failure
}
