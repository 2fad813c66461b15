//! Calls for a single job or setting, on top of the batches that drivers answer.

use std::time::Duration;

use super::AnyDriver;
use crate::{
    Admin, Blob, Driver, DriverError, NewJob, QueueName, Text, Timestamp,
    admin::{Change, Configure},
    driver::{
        Demand, Enqueue, Enqueued, ExtendLeases, Extension, Lease, Leased, Reserve, Settle,
        Settled, Settlement, Transition,
    },
    error::CallError,
    job::FailedAttempt,
    name::Holder,
};

impl AnyDriver {
    /// Stores one job.
    ///
    /// # Errors
    ///
    /// [`CallError::Rejected`], [`CallError::Failed`].
    pub async fn enqueue_job(&self, job: NewJob, now: Timestamp) -> Result<Enqueued, CallError> {
        let answers = self.enqueue(Enqueue::new(vec![job.into()], now)).await?;
        only(only(answers)??)
    }

    /// Leases the first available job of a queue, or returns `None` if no job is available.
    ///
    /// # Errors
    ///
    /// [`CallError::Failed`].
    pub async fn reserve_job(
        &self,
        queue: QueueName,
        holder: Holder,
        now: Timestamp,
        lease_for: Duration,
    ) -> Result<Option<Leased>, CallError> {
        let demands = vec![Demand::new(queue, 1)];
        let reserved = self.reserve(Reserve::new(demands, holder, now, lease_for)).await?;
        Ok(reserved.jobs.into_iter().next())
    }

    /// Extends one lease; use the returned token from then on.
    ///
    /// # Errors
    ///
    /// [`CallError::Refused`], [`CallError::Failed`].
    pub async fn extend_lease(
        &self,
        leased: &Leased,
        now: Timestamp,
        lease_for: Duration,
    ) -> Result<Lease, CallError> {
        let items = vec![Extension::new(leased.job.id.clone(), leased.lease.token)];
        let answers = self.extend_leases(ExtendLeases::new(items, now, lease_for)).await?;
        Ok(only(answers)??.lease)
    }

    /// Settles one job.
    ///
    /// # Errors
    ///
    /// [`CallError::Refused`], [`CallError::Failed`].
    pub async fn settle_job(
        &self,
        leased: &Leased,
        transition: Transition,
        now: Timestamp,
    ) -> Result<Settled, CallError> {
        let item = Settlement::new(leased.job.id.clone(), leased.lease.token, transition);
        Ok(only(self.settle(Settle::new(vec![item], now)).await?)??)
    }

    /// Records success.
    ///
    /// # Errors
    ///
    /// As [`AnyDriver::settle_job`].
    pub async fn ack(
        &self,
        leased: &Leased,
        output: Option<Blob>,
        now: Timestamp,
    ) -> Result<Settled, CallError> {
        self.settle_job(leased, Transition::Ack { output }, now).await
    }

    /// Records a failure after which the job is retried.
    ///
    /// # Errors
    ///
    /// As [`AnyDriver::settle_job`].
    pub async fn retry(
        &self,
        leased: &Leased,
        failure: FailedAttempt,
        run_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Settled, CallError> {
        self.settle_job(leased, Transition::Retry { failure, run_at }, now).await
    }

    /// Records a failure after which the job is dead-lettered.
    ///
    /// # Errors
    ///
    /// As [`AnyDriver::settle_job`].
    pub async fn fail(
        &self,
        leased: &Leased,
        failure: FailedAttempt,
        reason: Text,
        now: Timestamp,
    ) -> Result<Settled, CallError> {
        self.settle_job(leased, Transition::Fail { failure, reason }, now).await
    }

    /// Releases a job that was not started, without charging an attempt.
    ///
    /// # Errors
    ///
    /// As [`AnyDriver::settle_job`].
    pub async fn release(
        &self,
        leased: &Leased,
        run_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Settled, CallError> {
        let transition = Transition::Release { run_at, started: false, note: None };
        self.settle_job(leased, transition, now).await
    }

    /// Pauses a queue: Reserve grants nothing from it until it is resumed.
    ///
    /// # Errors
    ///
    /// [`CallError::Denied`], [`CallError::Failed`].
    pub async fn pause(&self, queue: QueueName, now: Timestamp) -> Result<(), CallError> {
        self.change_setting(Change::PauseQueue(queue), now).await
    }

    /// Resumes a queue.
    ///
    /// # Errors
    ///
    /// [`CallError::Denied`], [`CallError::Failed`].
    pub async fn resume(&self, queue: QueueName, now: Timestamp) -> Result<(), CallError> {
        self.change_setting(Change::ResumeQueue(queue), now).await
    }

    async fn change_setting(&self, change: Change, now: Timestamp) -> Result<(), CallError> {
        Ok(only(self.configure(Configure::new(vec![change], now)).await?)??)
    }
}

/// The answer to the one item of a call.
fn only<T>(answers: Vec<T>) -> Result<T, CallError> {
    let mut answers = answers.into_iter();
    match (answers.next(), answers.next()) {
        (Some(answer), None) => Ok(answer),
        _ => Err(DriverError::ContractViolation("one item, but not one answer".to_owned()).into()),
    }
}
