//! Reading the input of a job, for a handler in another program.

use std::sync::Arc;

use taskharbor_core::{Admin, AnyDriver, Blob, Driver, DriverError, JobId, job::Condition};

use crate::{
    Failure,
    codec::Format,
    flow::read::{self, ReadError, Source},
};

/// The input of a job: the outputs of the steps before it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RemoteInput {
    /// The output of its parent, or the list of outputs; `None` if there is nothing.
    pub value: Option<Blob>,
    /// Whether that is JSON.
    pub is_json: bool,
    /// Why a parent has no output, if the job runs after a failure.
    pub failure: Option<Failure>,
}

/// Why an input cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// No such job is stored.
    #[error("no such job is stored")]
    JobNotFound,
    /// The input cannot be read; a retry does not help.
    #[error("{0}")]
    Unreadable(String),
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] DriverError),
}

/// Reads the input of a job, as a worker of this library does.
///
/// # Errors
///
/// [`InputError`].
///
/// # Cancel safety
///
/// Dropping the future leaves nothing behind.
pub async fn input(driver: &AnyDriver, id: &JobId) -> Result<RemoteInput, InputError> {
    let now = driver.now().await?;
    let record = driver.inspect(id.clone(), now).await?.ok_or(InputError::JobNotFound)?;
    let (job, codec) = (&record.job, Format::named_in(&record.job.headers));
    if job.parent_count == 0 {
        return Ok(RemoteInput::default());
    }
    let known = Format::known();
    let Some(format) = known.iter().find(|format| format.name() == codec) else {
        let text = format!("its codec {codec:?} is not known here");
        return Err(InputError::Unreadable(text));
    };
    let is_json = codec == Format::UNNAMED;
    let source = source(driver);
    let read = async {
        let input = read::input(&source, id.clone()).await?;
        if job.condition == Condition::ParentsFailed {
            return Ok((None, Some(read::failure(input)?)));
        }
        read::value_or_nothing(&source, input, format).await
    };
    match read.await {
        Ok((value, failure)) => Ok(RemoteInput { value, is_json, failure }),
        Err(ReadError::Store(error)) => Err(InputError::Store(error)),
        Err(error) => Err(InputError::Unreadable(error.to_string())),
    }
}

fn source(driver: &AnyDriver) -> Source {
    let driver = driver.clone();
    Arc::new(move |request| {
        let driver = driver.clone();
        Box::pin(async move { driver.outputs(request).await })
    })
}
