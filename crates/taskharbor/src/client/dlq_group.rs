//! Dead-lettered jobs in groups of one cause.

use std::collections::{BTreeSet, HashMap};

use taskharbor_core::{
    DriverError, JobId, State, Timestamp,
    admin::{Filter, List},
    driver::Limits,
    job::JobSummary,
};

use super::manage::Dlq;
use crate::{Fingerprint, flow::graph::Records};

/// Calls to the store for one look at most. A filter that matches little would walk for long.
const CALLS: usize = 50;

/// The last dead-lettered jobs in groups of one cause: [`Dlq::groups`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DlqGroups {
    /// How many jobs were looked at.
    pub looked_at: usize,
    /// Whether all matching jobs were looked at.
    pub is_complete: bool,
    /// The groups, the largest first.
    pub groups: Vec<DlqGroup>,
}

/// Dead-lettered jobs with one [`Fingerprint`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DlqGroup {
    /// The common part of their errors.
    pub fingerprint: Fingerprint,
    /// The error of the job that was dead-lettered last.
    pub error: String,
    /// How many jobs there are.
    pub count: usize,
    /// Their types.
    pub types: BTreeSet<String>,
    /// Their queues.
    pub queues: BTreeSet<String>,
    /// When the first of them was dead-lettered.
    pub first_at: Timestamp,
    /// When the last of them was dead-lettered.
    pub last_at: Timestamp,
    /// The ids of a few of them, newest first.
    pub sample_ids: Vec<JobId>,
}

impl DlqGroups {
    /// How many jobs of a group are named.
    pub const SAMPLES: usize = 5;
    /// How many types and queues of a group are named.
    pub const NAMES: usize = 20;

    /// How much of an error is kept, in bytes.
    pub const ERROR_BYTES: usize = 1_024;

    /// Groups these jobs.
    #[must_use]
    pub fn of<'a>(jobs: impl IntoIterator<Item = &'a JobSummary>) -> Self {
        let mut grouping = Grouping::default();
        jobs.into_iter().for_each(|job| grouping.add(job));
        grouping.end(true)
    }
}

/// Groups while jobs are added to them, so that no more than a page of jobs is kept.
#[derive(Default)]
struct Grouping {
    looked_at: usize,
    groups: HashMap<Fingerprint, DlqGroup>,
}

impl Grouping {
    fn add(&mut self, job: &JobSummary) {
        self.looked_at += 1;
        let at = job.finished_at.unwrap_or(job.created_at);
        let group = self.groups.entry(Fingerprint::of_job(job));
        group.or_insert_with_key(|fingerprint| DlqGroup::new(fingerprint, at)).add(job, at);
    }

    fn end(self, is_complete: bool) -> DlqGroups {
        let mut groups: Vec<_> = self.groups.into_values().collect();
        groups.sort_by(|a, b| {
            let key = |it: &DlqGroup| (it.count, it.last_at);
            key(b).cmp(&key(a)).then_with(|| a.fingerprint.cmp(&b.fingerprint))
        });
        DlqGroups { looked_at: self.looked_at, is_complete, groups }
    }
}

impl DlqGroup {
    fn new(fingerprint: &Fingerprint, at: Timestamp) -> Self {
        Self {
            fingerprint: fingerprint.clone(),
            error: String::new(),
            count: 0,
            types: BTreeSet::new(),
            queues: BTreeSet::new(),
            first_at: at,
            last_at: at,
            sample_ids: Vec::new(),
        }
    }

    fn add(&mut self, job: &JobSummary, at: Timestamp) {
        if self.count == 0 || at > self.last_at {
            let cause = Fingerprint::cause(job);
            let end = cause.floor_char_boundary(DlqGroups::ERROR_BYTES);
            cause[..end].clone_into(&mut self.error);
        }
        self.count += 1;
        (self.first_at, self.last_at) = (self.first_at.min(at), self.last_at.max(at));
        for (names, name) in
            [(&mut self.types, job.job_type.as_str()), (&mut self.queues, job.queue.as_str())]
        {
            if names.len() < DlqGroups::NAMES && !names.contains(name) {
                names.insert(name.to_owned());
            }
        }
        if self.sample_ids.len() < DlqGroups::SAMPLES {
            self.sample_ids.push(job.id.clone());
        }
    }
}

impl Dlq<'_> {
    /// Groups the newest dead-lettered jobs that match, at most `look_at` of them, by cause. The
    /// newest jobs are those that were enqueued last.
    ///
    /// ```
    /// # use taskharbor::{Client, Filter};
    /// # async fn show(client: &Client) -> Result<(), taskharbor::DriverError> {
    /// for group in client.dlq().groups(Filter::all(), 5_000).await?.groups {
    ///     println!("{} jobs: {}", group.count, group.fingerprint.pattern());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`DriverError`], if a call to the store fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn groups(&self, filter: Filter, look_at: usize) -> Result<DlqGroups, DriverError> {
        let store = self.store();
        let now = store.now().await?;
        let mut grouping = Grouping::default();
        let mut request = List::new(filter.state(State::Dlq), Limits::MAX_PAGE, now).newest_first();
        for _ in 0..CALLS {
            request.limit = Limits::MAX_PAGE.min(look_at.saturating_sub(grouping.looked_at));
            if request.limit == 0 {
                break;
            }
            let page = store.list(request.clone()).await?;
            page.items.iter().for_each(|job| grouping.add(job));
            match page.next {
                Some(next) => request = request.after(next),
                None => return Ok(grouping.end(true)),
            }
        }
        Ok(grouping.end(false))
    }
}
