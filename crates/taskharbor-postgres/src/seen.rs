//! Jobs as a transaction of the application sees them, in the four columns that every client reads.

use taskharbor_core::{Blob, DriverError, QueueName, driver::SeenJob};

use crate::answer::{self, AnswerRow};

/// All jobs of a type. No index serves it: it is for tests of applications.
pub(crate) const STATEMENT: &str = "SELECT seq AS ord, headers::text AS verdict, \
    encode(payload, 'hex') AS detail, ARRAY[id, queue]::text[] AS wakes FROM {schema}.th_job \
    WHERE type = $1 ORDER BY seq";

pub(crate) fn read(row: &AnswerRow) -> Result<SeenJob, DriverError> {
    let Some([id, queue]) = row.wakes.as_deref() else {
        return Err(answer::unknown("job", "without an id"));
    };
    let payload = bytes(row.detail.as_deref().unwrap_or_default());
    let payload = payload.ok_or_else(|| answer::unknown("payload", "that is not hexadecimal"))?;
    let queue = answer::name(QueueName::new(queue))?;
    let headers = answer::headers(row.verdict.as_deref())?;
    Ok(SeenJob::new(answer::id(id)?, queue, headers, Blob::from(payload)))
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let pair = |at| hex.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (0..hex.len()).step_by(2).map(pair).collect()
}
