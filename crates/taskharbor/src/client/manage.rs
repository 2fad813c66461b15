//! Operators' actions on stored jobs: on one job, or on all jobs that a filter matches.

use std::time::Duration;

use taskharbor_core::{
    DriverError, JobId, State,
    admin::{Action, Counts, Filter, List, Manage, QueueCounts, Requeue},
    driver::Limits,
    error::Denied,
    job::{JobRecord, JobSummary},
};

use super::{Client, status::ManageError, store::Store};
use crate::flow::graph::Records;

/// Jobs in one call.
const BATCH: usize = 500;
/// The time that one call of a paced action stands for.
const PACED_CALL: Duration = Duration::from_millis(100);

/// Calls for operators: they look at jobs and queues, and act on them.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use taskharbor::{Client, Filter, Requeue};
/// # let driver = taskharbor::connect("memory:").await?;
/// let client = Client::new(&driver);
/// let id = client.enqueue_raw("report", b"{}").await?.id().clone();
/// client.job(&id).cancel().await?;
/// client.queue("mail").pause().await?;
/// let timed_out = Filter::all().error("timed out");
/// let requeued = client.dlq().requeue(timed_out, Requeue::new()).await?;
/// println!("{} of {} requeued", requeued.done, requeued.matched());
/// # Ok(())
/// # }
/// ```
impl Client {
    /// One job.
    #[must_use]
    pub fn job(&self, id: &JobId) -> JobAdmin<'_> {
        JobAdmin { store: self.store(), id: id.clone() }
    }

    /// All jobs that match a filter.
    #[must_use]
    pub fn jobs(&self, filter: Filter) -> JobsAdmin<'_> {
        JobsAdmin { store: self.store(), filter, pace: None }
    }

    /// The dead-lettered jobs.
    #[must_use]
    pub fn dlq(&self) -> Dlq<'_> {
        Dlq { client: self, pace: None }
    }

    /// Lists all queues that have jobs or are paused, with the number of jobs in each state.
    ///
    /// # Errors
    ///
    /// [`DriverError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn queues(&self) -> Result<Vec<QueueCounts>, DriverError> {
        let now = self.store().now().await?;
        self.store().counts(Counts::new(now)).await
    }
}

/// Acts on one job: [`Client::job`].
///
/// Every action fails with [`ManageError::Denied`] if the job is not stored or its state does not
/// allow it, and with [`ManageError::Store`]. If a future is dropped, the action may have happened
/// or not; repeating it is safe.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use taskharbor::{Client, State};
/// # let driver = taskharbor::connect("memory:").await?;
/// # let client = Client::new(&driver);
/// let id = client.enqueue_raw("report", b"{}").await?.id().clone();
/// client.job(&id).set_priority(10).await?;
/// assert_eq!(client.job(&id).cancel().await?, State::Cancelled);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct JobAdmin<'a> {
    store: &'a Store,
    id: JobId,
}

#[expect(clippy::missing_errors_doc, reason = "the type says it once for all")]
impl JobAdmin<'_> {
    /// Returns the job's record, or `None` if the job is not stored.
    pub async fn inspect(&self) -> Result<Option<JobRecord>, DriverError> {
        let now = self.store.now().await?;
        self.store.inspect(self.id.clone(), now).await
    }

    /// Cancels the job, or asks its worker to stop it. Returns its state after that.
    pub async fn cancel(&self) -> Result<State, ManageError> {
        self.act(Action::Cancel).await
    }

    /// Requeues the job: if it is dead-lettered or cancelled, it runs again.
    pub async fn requeue(&self, how: Requeue) -> Result<State, ManageError> {
        self.act(Action::Requeue(how)).await
    }

    /// Makes the job due now if it is scheduled.
    pub async fn run_now(&self) -> Result<State, ManageError> {
        self.act(Action::RunNow).await
    }

    /// Sets the job's priority.
    pub async fn set_priority(&self, priority: i16) -> Result<State, ManageError> {
        self.act(Action::SetPriority(priority)).await
    }

    /// Removes the job's record if it is terminal and in no flow. Returns the state it was in.
    pub async fn purge(&self) -> Result<State, ManageError> {
        self.act(Action::Purge).await
    }

    async fn act(&self, action: Action) -> Result<State, ManageError> {
        let now = self.store.now().await?;
        let answers = self.store.manage(Manage::new(vec![self.id.clone()], action, now)).await?;
        let missing = || DriverError::ContractViolation("a job was not answered".to_owned());
        Ok(answers.into_iter().next().ok_or_else(missing)??)
    }
}

/// The dead-lettered jobs: [`Client::dlq`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// # use taskharbor::{Client, Filter, Requeue};
/// # let driver = taskharbor::connect("memory:").await?;
/// # let client = Client::new(&driver);
/// let refused = Filter::all().error("connection refused");
/// let again = Requeue::new().reset_attempts();
/// // At most 20 jobs in a second, so that the server is not overloaded again.
/// let acted = client.dlq().rate(20, Duration::from_secs(1)).requeue(refused, again).await?;
/// println!("{} of {} requeued", acted.done, acted.matched());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Dlq<'a> {
    client: &'a Client,
    pace: Option<Duration>,
}

#[expect(clippy::missing_errors_doc, reason = "only the store can fail")]
impl<'a> Dlq<'a> {
    /// Acts on no more than this many jobs in this time. Defaults to no limit.
    #[must_use]
    pub fn rate(self, jobs: u32, per: Duration) -> Self {
        Self { pace: Some(per / jobs.max(1)), ..self }
    }

    /// Those that match, oldest first and at most this many.
    pub async fn list(&self, filter: Filter, limit: usize) -> Result<Vec<JobSummary>, DriverError> {
        self.jobs(filter).list(limit).await
    }

    /// Gives those that match another life.
    pub async fn requeue(&self, filter: Filter, how: Requeue) -> Result<Acted, DriverError> {
        self.jobs(filter).requeue(how).await
    }

    /// Removes those that match.
    pub async fn purge(&self, filter: Filter) -> Result<Acted, DriverError> {
        self.jobs(filter).purge().await
    }

    pub(super) fn store(&self) -> &'a Store {
        self.client.store()
    }

    fn jobs(&self, filter: Filter) -> JobsAdmin<'a> {
        JobsAdmin { pace: self.pace, ..self.client.jobs(filter.state(State::Dlq)) }
    }
}

/// All jobs that match a filter: [`Client::jobs`].
///
/// An action is for the jobs that match when it begins and whose state allows it. It goes on in
/// batches, so a future that is dropped, or an error of the store, may leave some of them done.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use taskharbor::{Client, Filter, QueueName};
/// # let driver = taskharbor::connect("memory:").await?;
/// # let client = Client::new(&driver);
/// let old = Filter::all().queue(QueueName::new("newsletters")?);
/// for job in client.jobs(old.clone()).list(10).await? {
///     println!("{} would be cancelled", job.id);
/// }
/// client.jobs(old).cancel().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct JobsAdmin<'a> {
    store: &'a Store,
    filter: Filter,
    pace: Option<Duration>,
}

/// The result of an action on many jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Acted {
    /// How many jobs it was done to.
    pub done: usize,
    /// The jobs for which it was refused, and why.
    pub refused: Vec<(JobId, Denied)>,
}

impl Acted {
    /// How many jobs matched.
    #[must_use]
    pub fn matched(&self) -> usize {
        self.done + self.refused.len()
    }
}

#[expect(clippy::missing_errors_doc, reason = "only the store can fail")]
impl JobsAdmin<'_> {
    /// Acts on no more than this many jobs in this time. Defaults to no limit.
    #[must_use]
    pub fn rate(self, jobs: u32, per: Duration) -> Self {
        Self { pace: Some(per / jobs.max(1)), ..self }
    }

    /// Those that match, oldest first and at most this many.
    pub async fn list(&self, limit: usize) -> Result<Vec<JobSummary>, DriverError> {
        self.listed(&[self.filter.state], limit).await
    }

    /// Cancels those that are not terminal, or asks their workers to stop them.
    pub async fn cancel(&self) -> Result<Acted, DriverError> {
        self.act(Action::Cancel).await
    }

    /// Requeues those that are dead-lettered. To requeue cancelled jobs, filter by that state.
    pub async fn requeue(&self, how: Requeue) -> Result<Acted, DriverError> {
        self.act(Action::Requeue(how)).await
    }

    /// Makes those that are scheduled due now.
    pub async fn run_now(&self) -> Result<Acted, DriverError> {
        self.act(Action::RunNow).await
    }

    /// Removes the records of those that are terminal and in no flow.
    pub async fn purge(&self) -> Result<Acted, DriverError> {
        self.act(Action::Purge).await
    }

    /// Lists the jobs that an action would change: all that match and whose state allows it.
    pub async fn preview(&self, action: &Action) -> Result<Vec<JobSummary>, DriverError> {
        match self.filter.state {
            Some(state) => self.listed(&[Some(state)], usize::MAX).await,
            None => {
                let states: Vec<_> = states_for(action).iter().copied().map(Some).collect();
                self.listed(&states, usize::MAX).await
            }
        }
    }

    /// Applies an action to all jobs that match, as [`JobsAdmin::preview`] lists them.
    pub async fn act(&self, action: Action) -> Result<Acted, DriverError> {
        let ids = self.preview(&action).await?.into_iter().map(|job| job.id).collect();
        self.act_on(ids, &action).await
    }

    /// Applies an action to these jobs, which a preview has listed, at the rate that was set.
    pub async fn act_on(&self, ids: Vec<JobId>, action: &Action) -> Result<Acted, DriverError> {
        let batch = self.pace.map_or(BATCH, batch);
        let mut acted = Acted::default();
        for (at, ids) in ids.chunks(batch).enumerate() {
            if let Some(pace) = self.pace.filter(|_| at > 0) {
                let pause = pace * u32::try_from(batch).unwrap_or(u32::MAX);
                tokio::time::sleep(pause).await;
            }
            let now = self.store.now().await?;
            let answers = self.store.manage(Manage::new(ids.to_vec(), action.clone(), now)).await?;
            for (id, answer) in ids.iter().zip(answers) {
                match answer {
                    Ok(_) => acted.done += 1,
                    Err(denied) => acted.refused.push((id.clone(), denied)),
                }
            }
        }
        Ok(acted)
    }

    async fn listed(
        &self,
        states: &[Option<State>],
        limit: usize,
    ) -> Result<Vec<JobSummary>, DriverError> {
        let now = self.store.now().await?;
        let mut jobs = Vec::new();
        for &state in states {
            let mut filter = self.filter.clone();
            filter.state = state;
            let mut request = List::new(filter, Limits::MAX_PAGE, now);
            loop {
                request.limit = Limits::MAX_PAGE.min(limit - jobs.len());
                if request.limit == 0 {
                    break;
                }
                let page = self.store.list(request.clone()).await?;
                jobs.extend(page.items);
                match page.next {
                    Some(next) => request = request.after(next),
                    None => break,
                }
            }
        }
        Ok(jobs)
    }
}

/// How many jobs a call takes so that it stands for [`PACED_CALL`].
fn batch(pace: Duration) -> usize {
    let fit = PACED_CALL.as_nanos() / pace.as_nanos().max(1);
    usize::try_from(fit).unwrap_or(BATCH).clamp(1, BATCH)
}

/// The states that an action without a state in its filter is for.
fn states_for(action: &Action) -> &'static [State] {
    match action {
        Action::Cancel | Action::CancelFlow | Action::SetPriority(_) => {
            &[State::Ready, State::Scheduled, State::Blocked, State::Inflight]
        }
        Action::RunNow => &[State::Scheduled],
        Action::Requeue(_) => &[State::Dlq],
        Action::Purge | Action::PurgeFlow => &[State::Done, State::Dlq, State::Cancelled],
    }
}
