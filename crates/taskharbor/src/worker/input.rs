//! Fetching what the step before a job has produced.

use std::sync::Arc;

use taskharbor_core::{
    Driver, DriverError, JobId,
    driver::{OutputEntry, OutputQuery},
};

use super::{executor::format_of, outage::Part, shared::Shared};
use crate::{
    JobError,
    codec::Format,
    context::Input,
    flow::{
        AFTER_FAILURE_OF, Failure, INPUT,
        read::{self, Source},
    },
    handler::{Entry, Reads},
    inflight::Inflight,
};

/// How often a store may fail to read an input before the attempt has failed.
const TRIES: u32 = 5;

/// Asks the worker's store. A store in trouble is waited for: it is not the job's fault, and the
/// lease is kept meanwhile or the job stopped.
fn source(shared: &Arc<Shared>) -> Source {
    let shared = Arc::clone(shared);
    Arc::new(move |request| {
        let shared = Arc::clone(&shared);
        Box::pin(async move {
            let mut failures = 0;
            loop {
                let call = shared.driver.outputs(request.clone());
                match shared.call(Part::Input, "outputs", call).await {
                    Ok(answers) => return Ok(answers),
                    // A store that is away comes back; one that fails is tried a few times.
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
    let gate = job.headers.get(AFTER_FAILURE_OF);
    if job.parent_count == 0 || entry.reads == Reads::Nothing && gate.is_none() {
        return Ok(Input::None);
    }
    let source = source(shared);
    if entry.reads == Reads::Each && gate.is_none() {
        return Ok(Input::Each(source));
    }
    // What a format that is unknown here has written is not read; the handler says which it lacks.
    let Some(format) = format_of(shared, inflight) else { return Ok(Input::None) };
    // In a box, so that jobs without input, which are most, do not carry the room for this.
    let input = Box::pin(async {
        // A job behind a group knows the group's join, and so need not ask for it first.
        let join = job.headers.get(INPUT).and_then(|join| JobId::new(join).ok());
        let (parent, page) = match join {
            Some(join) => read::ahead(&source, job.id.clone(), join).await?,
            None => {
                let query = OutputQuery::parents_of(job.id.clone());
                (read::only(read::page(&source, query).await?)?, None)
            }
        };
        match gate {
            Some(gate) => after_failure(&source, gate, parent, format).await,
            None if entry.reads == Reads::Raw => {
                let read = read::value_or_nothing(&source, parent, page, format).await?;
                Ok(match read {
                    (output, None) => Input::Output(output),
                    (output, Some(failure)) => Input::Released(output, Arc::new(failure)),
                })
            }
            None => Ok(Input::Output(read::value(&source, parent, page, format).await?)),
        }
    });
    input.await.map_err(read::ReadError::into_job_error)
}

/// What a job takes that runs only if the step before its gate has failed.
async fn after_failure(
    source: &Source,
    gate: &str,
    parent: OutputEntry,
    format: &Format,
) -> Result<Input, read::ReadError> {
    if !matches!(parent, OutputEntry::Failed { .. }) {
        return Ok(Input::NotNeeded);
    }
    // The gate was cancelled because of the step before it, which knows more.
    let failed = match JobId::new(gate) {
        Ok(gate) => read::only(read::page(source, OutputQuery::parents_of(gate)).await?)?,
        Err(_) => parent,
    };
    let failure = match &failed {
        OutputEntry::Failed { state, reason } => Failure::new(*state, reason.as_ref()),
        _ => return Ok(Input::NotNeeded),
    };
    Ok(Input::Output(Some(format.encode(&failure)?)))
}
