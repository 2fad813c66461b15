//! What can be asked of a [`Handle`] beside the output, and done to what it stands for.

use taskharbor_core::{
    DriverError, JobId, State,
    admin::{Action, Filter, List, Manage, Requeue, StateCounts},
    debug_as_display,
    driver::Limits,
    error::Denied,
    flow::FlowRecord,
    name::NameError,
};

use crate::{FlowTree, Handle, InvalidSchedule, WaitError, flow::graph::Records};

/// Why something was not done to a job or a flow.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ManageError {
    /// It cannot be done, as things stand.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// Invalid schedule.
    #[error(transparent)]
    Schedule(#[from] InvalidSchedule),
    /// Invalid name of a queue, a lane or a schedule.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The call failed. Asking again is safe.
    #[error(transparent)]
    Store(#[from] DriverError),
}

debug_as_display!(ManageError);

impl<O> Handle<O> {
    /// Where the flow stands, and how many of its members are in which state. A job that is no flow
    /// is answered as a flow of one member.
    ///
    /// # Errors
    ///
    /// [`WaitError::Gone`] if it is not stored, [`WaitError::Store`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn status(&self) -> Result<FlowRecord, WaitError> {
        let store = self.client().store();
        let now = store.now().await?;
        if let Some(flow) = store.flow(self.id().clone(), now).await? {
            return Ok(flow);
        }
        let record = store.inspect(self.id().clone(), now).await?.ok_or(WaitError::Gone)?;
        let mut members = StateCounts::default();
        *members.get_mut(record.state) += 1;
        let tail = (self.id().clone(), record.state);
        let (created_at, finished_at) = (record.job.created_at, record.finished_at);
        Ok(FlowRecord::new(self.id().clone(), created_at, tail, members, finished_at))
    }

    /// The flow with its members: what waits for what, and where each stands. At most so many of
    /// them are read; [`FlowTree::read`] says which.
    ///
    /// # Errors
    ///
    /// [`WaitError::Gone`] if it is no flow that is stored, [`WaitError::Store`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn tree(&self, limit: usize) -> Result<FlowTree, WaitError> {
        let store = self.client().store();
        let now = store.now().await?;
        let tree = FlowTree::read_from(store, self.id(), now, limit).await?;
        tree.ok_or(WaitError::Gone)
    }

    /// Cancels what has not run, and asks the workers of what is running to stop. What is over stays
    /// as it is. Answers the state of the job, or of the flow's last job, after that.
    ///
    /// # Errors
    ///
    /// [`ManageError::Denied`] if it is over or not stored, [`ManageError::Store`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves open whether it is cancelled: whole or not at all.
    pub async fn cancel(&self) -> Result<State, ManageError> {
        match self.manage(vec![self.id().clone()], Action::CancelFlow).await?.pop() {
            Some(Err(Denied::JobNotFound)) => {}
            Some(answer) => return Ok(answer?),
            None => return Err(unanswered()),
        }
        let denied = match self.manage(vec![self.id().clone()], Action::Cancel).await?.pop() {
            Some(Err(denied @ Denied::WrongState(State::Done))) => denied,
            Some(answer) => return Ok(answer?),
            None => return Err(unanswered()),
        };
        // Meanwhile its handler may have returned a flow, whose jobs have not run.
        match self.manage(vec![self.id().clone()], Action::CancelFlow).await?.pop() {
            Some(Err(Denied::JobNotFound)) => Err(denied.into()),
            Some(answer) => Ok(answer?),
            None => Err(unanswered()),
        }
    }

    /// Gives every dead-lettered member of the flow, or the job itself, another life. Answers how
    /// many there were; those that meanwhile are no longer dead-lettered do not count.
    ///
    /// # Errors
    ///
    /// [`ManageError::Denied`] if the flow is over and nobody would use what its members produce,
    /// [`ManageError::Store`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves open how many have been requeued.
    pub async fn requeue_failed(&self, requeue: Requeue) -> Result<usize, ManageError> {
        let store = self.client().store();
        let now = store.now().await?;
        let is_flow = store.flow(self.id().clone(), now).await?.is_some();
        let mut failed = Vec::new();
        if is_flow {
            let filter = Filter::all().flow(self.id().clone()).state(State::Dlq);
            let mut list = List::new(filter, Limits::MAX_PAGE, now);
            loop {
                let page = store.list(list.clone()).await?;
                failed.extend(page.items.into_iter().map(|job| job.id));
                match page.next {
                    Some(next) => list = list.after(next),
                    None => break,
                }
            }
        } else {
            failed.push(self.id().clone());
        }
        let mut requeued = 0;
        for some in failed.chunks(Limits::MAX_PAGE) {
            for answer in self.manage(some.to_vec(), Action::Requeue(requeue)).await? {
                match answer {
                    Ok(_) => requeued += 1,
                    Err(Denied::JobNotFound | Denied::WrongState(_)) if is_flow => {}
                    Err(denied) => return Err(denied.into()),
                }
            }
        }
        Ok(requeued)
    }

    async fn manage(
        &self,
        ids: Vec<JobId>,
        action: Action,
    ) -> Result<Vec<Result<State, Denied>>, DriverError> {
        let store = self.client().store();
        let now = store.now().await?;
        store.manage(Manage::new(ids, action, now)).await
    }
}

fn unanswered() -> ManageError {
    DriverError::ContractViolation("a job was managed and not answered".to_owned()).into()
}
