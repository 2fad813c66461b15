//! Fetching what the step before a job has produced.

use std::sync::Arc;

use taskharbor_core::{Driver, DriverError, OutputEntry, OutputQuery, Outputs};

use super::{outage::Part, shared::Shared};
use crate::{JobError, context::Input, handler::Entry, inflight::Inflight};

/// How often a store may fail to read an input before the attempt has failed.
const TRIES: u32 = 5;

/// The input of a job whose handler takes one. A store in trouble is waited for: it is not the
/// job's fault, and the lease is kept meanwhile or the job stopped.
pub(super) async fn of(
    shared: &Arc<Shared>,
    inflight: &Inflight,
    entry: &Entry<()>,
) -> Result<Input, JobError> {
    if !entry.reads_input || inflight.job.parent_count == 0 {
        return Ok(Input::None);
    }
    // In a box, so that jobs without input, which are most, do not carry the room for this.
    Box::pin(async {
        for failures in 1.. {
            match fetch(shared, inflight).await {
                Ok(input) => return input,
                // A store that is away comes back; one that fails is tried a few times.
                Err(error @ DriverError::Backend(_)) if failures >= TRIES => {
                    return Err(JobError::from(error));
                }
                Err(_) => tokio::time::sleep(shared.backoff(failures)).await,
            }
        }
        Ok(Input::None)
    })
    .await
}

async fn fetch(
    shared: &Arc<Shared>,
    inflight: &Inflight,
) -> Result<Result<Input, JobError>, DriverError> {
    let query = OutputQuery::parents_of(inflight.job.id.clone());
    let call = shared.driver.outputs(Outputs::new(vec![query], 1));
    let answers = shared.call(Part::Input, "outputs", call).await?;
    let entry = match answers.into_iter().next() {
        Some(Ok(page)) => page.entries.into_iter().next(),
        Some(Err(refusal)) => return Ok(Err(JobError::from(refusal))),
        None => None,
    };
    Ok(match entry {
        Some(OutputEntry::Done(output)) => Ok(Input::Output(output)),
        Some(OutputEntry::Failed { state, reason }) => {
            let reason = reason.map(|it| format!(": {it}")).unwrap_or_default();
            Err(JobError::unrecoverable(format!("the step before it is {state}{reason}")))
        }
        _ => Err(JobError::unrecoverable("the step before it has no output")),
    })
}
