//! Operators' actions on one queue: pausing it, limiting it, and listing its lanes.

use std::time::Duration;

use taskharbor_core::{
    QueueName,
    admin::{
        Change, Configure, Counts, Cursor, LaneStatus, LimitsRecord, ListLanes, ListSettings, Page,
        QueueCounts, QueueLimits, Setting, SettingKind,
    },
    name::LaneName,
};

use super::{Client, status::ManageError, store::Store};

/// Acts on one queue: [`Client::queue`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use taskharbor::{Client, QueueLimits, Rate};
///
/// # let driver = taskharbor::connect("memory:").await?;
/// let client = Client::new(&driver);
/// let mail = client.queue("mail");
/// mail.limit(QueueLimits::new().per_lane(2).rate(Rate::per(100, Duration::from_secs(60)))).await?;
/// mail.hold_lane("acme", Duration::from_secs(300)).await?;
/// for lane in mail.lanes(None, 100).await?.items {
///     println!("{:?}: {} ready, {} inflight", lane.lane, lane.ready, lane.inflight);
/// }
/// # Ok(())
/// # }
/// ```
///
/// Every call fails with [`ManageError::Name`] for an invalid name of the queue or a lane, and with
/// [`ManageError::Store`].
#[derive(Debug)]
pub struct QueueAdmin<'a> {
    store: &'a Store,
    name: String,
}

impl Client {
    /// A queue.
    #[must_use]
    pub fn queue(&self, name: impl Into<String>) -> QueueAdmin<'_> {
        QueueAdmin { store: self.store(), name: name.into() }
    }
}

#[expect(clippy::missing_errors_doc, reason = "the type says it once for all")]
impl QueueAdmin<'_> {
    /// Pauses the queue: none of its jobs starts until it is resumed. Running jobs go on.
    pub async fn pause(&self) -> Result<(), ManageError> {
        let change = Change::PauseQueue(self.name()?);
        self.configure(change).await
    }

    /// Resumes it.
    pub async fn resume(&self) -> Result<(), ManageError> {
        let change = Change::ResumeQueue(self.name()?);
        self.configure(change).await
    }

    /// Returns the number of its jobs in each state, and since when it has been paused.
    pub async fn counts(&self) -> Result<QueueCounts, ManageError> {
        let name = self.name()?;
        let now = self.store.now().await?;
        let all = self.store.counts(Counts::new(now)).await?;
        let own = all.into_iter().find(|it| it.queue == name);
        Ok(own.unwrap_or_else(|| QueueCounts::new(name)))
    }

    /// Sets the limits of the queue, in place of those it had. Inflight jobs go on, and count.
    ///
    /// Fails with [`ManageError::Denied`] if its limits belong to a service that declares them
    /// ([`WorkerBuilder::limits`](crate::WorkerBuilder::limits)), and with
    /// [`DriverError::Invalid`](crate::DriverError::Invalid) if a limit is zero or a rate cannot be
    /// counted.
    pub async fn limit(&self, limits: QueueLimits) -> Result<(), ManageError> {
        self.set_limits(Some(limits)).await
    }

    /// Removes its limits. Holds stay.
    ///
    /// Fails with [`ManageError::Denied`] if they belong to a service that declares them.
    pub async fn unlimit(&self) -> Result<(), ManageError> {
        self.set_limits(None).await
    }

    /// Its limits and their owner; `None` if it has none.
    pub async fn limits(&self) -> Result<Option<LimitsRecord>, ManageError> {
        let request = ListSettings::new(1).kind(SettingKind::Limits).name(self.name()?.as_str());
        let page = self.store.settings(request).await?;
        Ok(page.items.into_iter().find_map(|setting| match setting {
            Setting::Limits(record) => Some(*record),
            _ => None,
        }))
    }

    /// Lists one page of the lanes that have ready or inflight jobs or are on hold, sorted by name,
    /// with the limit or hold that keeps their jobs from starting. `after` is the cursor that the
    /// page before returned. The jobs without a lane are one lane, the first.
    pub async fn lanes(
        &self,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<LaneStatus>, ManageError> {
        let name = self.name()?;
        let mut request = ListLanes::new(name, limit, self.store.now().await?);
        request.after = after;
        Ok(self.store.lanes(request).await?)
    }

    /// Holds the queue: none of its jobs starts for this time. Running jobs go on. A hold that ends
    /// later stays.
    pub async fn hold(&self, time: Duration) -> Result<(), ManageError> {
        self.set_hold(None, Some(time)).await
    }

    /// Holds one of its lanes: no job of the lane starts for this time. A hold that ends later
    /// stays.
    pub async fn hold_lane(
        &self,
        lane: impl AsRef<str>,
        time: Duration,
    ) -> Result<(), ManageError> {
        self.set_hold(Some(LaneName::new(lane.as_ref())?), Some(time)).await
    }

    /// Ends the hold of the queue. Holds of its lanes stay.
    pub async fn end_hold(&self) -> Result<(), ManageError> {
        self.set_hold(None, None).await
    }

    /// Ends the hold of one of its lanes.
    pub async fn end_hold_of(&self, lane: impl AsRef<str>) -> Result<(), ManageError> {
        self.set_hold(Some(LaneName::new(lane.as_ref())?), None).await
    }

    fn name(&self) -> Result<QueueName, ManageError> {
        Ok(QueueName::new(&self.name)?)
    }

    async fn set_limits(&self, limits: Option<QueueLimits>) -> Result<(), ManageError> {
        let change = Change::SetLimits { queue: self.name()?, limits };
        self.configure(change).await
    }

    async fn set_hold(
        &self,
        lane: Option<LaneName>,
        time: Option<Duration>,
    ) -> Result<(), ManageError> {
        let (queue, now) = (self.name()?, self.store.now().await?);
        let until = time.map(|time| now.saturating_add(time));
        self.configure(Change::Hold { queue, lane, until }).await
    }

    async fn configure(&self, change: Change) -> Result<(), ManageError> {
        let now = self.store.now().await?;
        let answers = self.store.configure(Configure::new(vec![change], now)).await?;
        for answer in answers {
            answer?;
        }
        Ok(())
    }
}
