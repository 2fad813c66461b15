//! Calls of a [`Handle`] beside waiting for the output: status, cancelling and requeueing.

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
    /// The store denied the action, because of the state of the job or flow.
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
    /// Returns the state of the flow, and the number of its members in each state. A job outside a
    /// flow is returned as a flow of one member.
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

    /// Returns the flow with its members, their edges and their states. At most `limit` members are
    /// read; [`FlowTree::read`] says which.
    ///
    /// # Errors
    ///
    /// [`WaitError::Gone`] if no such flow is stored, [`WaitError::Store`].
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

    /// Cancels the jobs that have not started, and asks the workers of running jobs to stop them.
    /// Terminal jobs stay as they are. Returns the state of the job, or of the flow's last job,
    /// after that.
    ///
    /// # Errors
    ///
    /// [`ManageError::Denied`] if it is terminal or not stored, [`ManageError::Store`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the flow may be cancelled or not, but never in part.
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

    /// Requeues every dead-lettered member of the flow, or the job itself. Returns how many were
    /// requeued. A member that meanwhile is no longer dead-lettered does not count.
    ///
    /// # Errors
    ///
    /// [`ManageError::Denied`] if the flow is terminal, so that the outputs of its members would
    /// not be used, [`ManageError::Store`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, any number of them may have been requeued.
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
