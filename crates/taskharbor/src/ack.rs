//! [`Context::ack_in`]: completing a job in the handler's own transaction.
//!
//! The handler's writes and the completion of its job then happen together or not at all. Only the
//! store knows whether the transaction was committed, so the worker never acks such a job itself. It
//! records that the job is to be tried again. A store in which the job is done refuses that, and the
//! worker reads there that the job is done.

use taskharbor_core::{
    Blob, DriverError, debug_as_display,
    driver::{Driver, Limits, OpenTransaction, Settle, Settlement, Transaction, Transition},
    error::Refusal,
};

use crate::{CodecError, Context, Data, Operation, Outcome, handler, inflight::NoAck};

/// Why a job was not acknowledged in a transaction.
///
/// After [`AckError::Refused`] and [`AckError::Store`], roll the transaction back. After the other
/// errors nothing was done in it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum AckError {
    /// The job was acknowledged in this execution before, or that was attempted.
    #[error("the job was acknowledged in this execution before: acknowledge it once")]
    Again,
    /// The execution has ended, and its outcome is recorded without this acknowledgement.
    #[error("the execution has ended: acknowledge the job before its handler returns")]
    Over,
    /// The transaction belongs to another store than the worker's.
    #[error(
        "the transaction belongs to another store: make it with the driver that the worker was built with"
    )]
    OtherStore,
    /// The output cannot be written.
    #[error(transparent)]
    Encode(#[from] CodecError),
    /// The job was written with a codec that the worker does not know, so its output cannot be
    /// written.
    #[error("the job was written with codec {0:?}, which this worker does not know")]
    UnknownCodec(String),
    /// The output is larger than a store keeps.
    #[error(
        "the output is {bytes} bytes: store it elsewhere and output a reference ({max} or fewer)"
    )]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The store refused it: this worker has lost the job's lease.
    #[error("this worker does not hold the job any more: {0}")]
    Refused(Refusal),
    /// The call failed.
    #[error(transparent)]
    Store(#[from] DriverError),
}

debug_as_display!(AckError);

impl<S> Context<S> {
    /// Completes the job with this output in the handler's own open transaction on the store: the
    /// job is done if and only if the transaction commits. Return the [`Outcome`] that this gives
    /// from the handler. It takes the same transactions as
    /// [`EnqueueBuilder::within`](crate::EnqueueBuilder::within).
    ///
    /// ```
    /// # use taskharbor::{BoxError, Context, Job, JobResult, Outcome, Transaction};
    /// # trait Database { async fn begin(&self) -> Result<impl Open, BoxError>; }
    /// # trait Open: Transaction {
    /// #     async fn book(&mut self) -> Result<u64, BoxError>;
    /// #     async fn commit(self) -> Result<(), BoxError>;
    /// # }
    /// # #[derive(serde::Serialize, serde::Deserialize, Job)]
    /// # #[job(type = "book", output = u64)]
    /// # struct Book;
    /// # async fn book<D: Database>(_: Book, cx: Context<D>) -> JobResult<Outcome<u64>> {
    /// let mut tx = cx.state().begin().await?;
    /// let number = tx.book().await?; // the work of the job
    /// let done = cx.ack_in(&mut tx, number).await?;
    /// tx.commit().await?;
    /// Ok(done)
    /// # }
    /// ```
    ///
    /// After this call the worker does not ack the job by itself, whatever the handler returns. If
    /// the transaction was committed, the job is done, even if the handler fails after that. If it
    /// was not, the attempt has failed, with the handler's error or because the transaction was not
    /// committed.
    ///
    /// Commit soon and return. The transaction may lock the job in the store, so its lease is not
    /// extended any more, and the handler is stopped shortly before the lease ends.
    ///
    /// # Errors
    ///
    /// [`AckError`]. If the lease is lost, the store refuses, and the transaction has to be rolled
    /// back.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the completion may be in the transaction or not: roll the
    /// transaction back.
    pub async fn ack_in<O: Data, M>(
        &self,
        transaction: impl OpenTransaction<M>,
        output: O,
    ) -> Result<Outcome<O>, AckError> {
        let format = self.known_format().map_err(|name| AckError::UnknownCodec(name.to_owned()))?;
        let output = handler::encode(&output, format)?;
        self.settle_in(transaction, output).await?;
        Ok(Outcome::Acked)
    }

    /// As [`Context::ack_in`], for handlers that output bytes: those added with
    /// [`Handlers::on_raw`](crate::Handlers::on_raw).
    ///
    /// # Errors
    ///
    /// As [`Context::ack_in`].
    ///
    /// # Cancel safety
    ///
    /// As [`Context::ack_in`].
    pub async fn ack_raw_in<M>(
        &self,
        transaction: impl OpenTransaction<M>,
        output: Option<Blob>,
    ) -> Result<Outcome<Option<Blob>>, AckError> {
        self.settle_in(transaction, output).await?;
        Ok(Outcome::Acked)
    }

    async fn settle_in<M>(
        &self,
        transaction: impl OpenTransaction<M>,
        output: Option<Blob>,
    ) -> Result<(), AckError> {
        let transaction = match self.driver() {
            Some(driver) => {
                let transaction = transaction.on(driver).ok_or(AckError::OtherStore)?;
                if driver.driver_id() != Some(transaction.driver()) {
                    return Err(AckError::OtherStore);
                }
                Some(transaction)
            }
            None => None,
        };
        let (bytes, max) = (output.as_ref().map_or(0, |it| it.len()), Limits::MAX_OUTPUT_BYTES);
        if bytes > max {
            return Err(AckError::TooLarge { bytes, max });
        }
        let token = self.inflight().begin_ack().await.map_err(|why| match why {
            NoAck::Again => AckError::Again,
            NoAck::Over => AckError::Over,
        })?;
        let Some(mut transaction) = transaction else { return Ok(()) };
        let ack = Settlement::new(self.id().clone(), token, Transition::Ack { output });
        let call = transaction.settle(Settle::new(vec![ack], self.now()));
        let answers = self.observers().call(Operation::Settle, 1, call).await?;
        match <[_; 1]>::try_from(answers) {
            Ok([answer]) => {
                answer.map_err(AckError::Refused)?;
                Ok(())
            }
            Err(_) => {
                Err(DriverError::ContractViolation("one item, but not one answer".to_owned()))?
            }
        }
    }
}
