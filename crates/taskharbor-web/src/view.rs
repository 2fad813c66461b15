//! What people look at: jobs, flows, schedules, queues, workers.

use crate::endpoint::Endpoint;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    Vec::new()
}
