//! Operators' actions on workers: listing them, and evicting one.

use taskharbor_core::{
    Timestamp,
    admin::{Evict, Evicted, ListWorkers, WorkerRecord},
    driver::Limits,
    name::Holder,
};

use super::{Client, status::ManageError};
use crate::WorkerInfo;

/// A worker that has announced itself: [`Client::workers`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerStatus {
    /// The name under which it holds leases.
    pub name: String,
    /// Tells this start of the worker from others under the same name.
    pub incarnation: String,
    /// The content of its last announcement, if this version of the library can read it.
    pub info: Option<WorkerInfo>,
    /// When it announced itself first.
    pub started_at: Timestamp,
    /// When it announced itself last.
    pub seen_at: Timestamp,
    /// Whether its announcement is overdue: the worker has died, or cannot reach the store.
    pub is_overdue: bool,
}

impl WorkerStatus {
    fn new(record: &WorkerRecord, now: Timestamp) -> Self {
        Self {
            name: record.holder.as_str().to_owned(),
            incarnation: record.incarnation.to_string(),
            info: WorkerInfo::read(&record.info),
            started_at: record.started_at,
            seen_at: record.seen_at,
            is_overdue: !record.is_valid(now),
        }
    }
}

impl Client {
    /// Lists the workers that have announced themselves in the store, sorted by name. A worker that
    /// has died is listed for a day.
    ///
    /// ```
    /// # use taskharbor::{Client, ManageError};
    /// # async fn show(client: &Client) -> Result<(), ManageError> {
    /// for worker in client.workers().await? {
    ///     println!("{} overdue: {}", worker.name, worker.is_overdue);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ManageError::Store`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn workers(&self) -> Result<Vec<WorkerStatus>, ManageError> {
        let now = self.store().now().await?;
        let mut request = ListWorkers::new(Limits::MAX_PAGE, now).with_overdue();
        let mut all = Vec::new();
        loop {
            let page = self.store().workers(request.clone()).await?;
            all.extend(page.items.iter().map(|record| WorkerStatus::new(record, now)));
            match page.next {
                Some(next) => request = request.after(next),
                None => return Ok(all),
            }
        }
    }

    /// Ends all leases of a worker now, so that other workers can have its jobs at once: for a worker
    /// that has died. Returns how many leases have ended.
    ///
    /// If the worker is alive, the store refuses its outcomes of these jobs, and they run a second time.
    ///
    /// # Errors
    ///
    /// [`ManageError::Name`] for an invalid name, [`ManageError::Store`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves open whether the leases have ended.
    pub async fn evict(&self, worker: impl AsRef<str>) -> Result<usize, ManageError> {
        let holder = Holder::new(worker)?;
        let now = self.store().now().await?;
        match self.store().evict(Evict::new(holder, now)).await? {
            Evicted::Leases(leases) => Ok(leases),
            // Only a request that names an incarnation is answered so.
            Evicted::Replaced => Ok(0),
        }
    }
}
