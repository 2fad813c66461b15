//! Reading the input of a job.

use std::sync::Arc;

use taskharbor_core::{Driver, DriverError, job::Condition};

use super::{executor::format_of, outage::Part, shared::Shared};
use crate::{
    JobError, Operation,
    context::Input,
    flow::read::{self, Source},
    handler::{Entry, Reads},
    inflight::Inflight,
};

/// How often a store may fail to read an input before the attempt has failed.
const TRIES: u32 = 5;

/// Asks the worker's store. An unavailable store is waited for, since the job is not at fault. Its
/// lease is extended meanwhile, or its handler stopped.
fn source(shared: &Arc<Shared>) -> Source {
    let shared = Arc::clone(shared);
    Arc::new(move |request| {
        let shared = Arc::clone(&shared);
        Box::pin(async move {
            let mut failures = 0;
            loop {
                let (call, queries) = (shared.driver.outputs(request.clone()), request.items.len());
                match shared.call(Part::Input, Operation::Outputs, queries, call).await {
                    Ok(answers) => return Ok(answers),
                    // An unavailable store is waited for; a failing one is tried a few times.
                    Err(error @ (DriverError::Backend(_) | DriverError::Invalid(_)))
                        if failures + 1 >= TRIES =>
                    {
                        return Err(error);
                    }
                    Err(_) => failures += 1,
                }
                tokio::time::sleep(shared.backoff(failures)).await;
            }
        })
    })
}

/// The input of a job whose handler takes one.
pub(super) async fn of(
    shared: &Arc<Shared>,
    inflight: &Inflight,
    entry: &Entry<()>,
) -> Result<Input, JobError> {
    let job = &inflight.job;
    if job.parent_count == 0 || entry.reads == Reads::Nothing {
        return Ok(Input::None);
    }
    let source = source(shared);
    let is_failure_job = job.condition == Condition::ParentsFailed;
    if entry.reads == Reads::Each && !is_failure_job {
        return Ok(Input::Each(source));
    }
    // An input in an unknown format is not read; the handler's error names the codec.
    let Some(format) = format_of(shared, inflight) else { return Ok(Input::None) };
    // In a box, so that jobs without input, which are most, do not carry the room for this.
    let input = Box::pin(async {
        let input = read::input(&source, job.id.clone()).await?;
        if is_failure_job {
            let failure = read::failure(input)?;
            return Ok(Input::Failed(Some(format.encode(&failure)?), Arc::new(failure)));
        }
        if entry.reads == Reads::Raw {
            return Ok(match read::value_or_nothing(&source, input, format).await? {
                (output, None) => Input::Output(output),
                (output, Some(failure)) => Input::Failed(output, Arc::new(failure)),
            });
        }
        Ok(Input::Output(read::value(&source, input, format).await?))
    });
    input.await.map_err(read::ReadError::into_job_error)
}
