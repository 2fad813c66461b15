//! Groups of dead-lettered jobs.

use std::collections::BTreeSet;

use serde::Serialize;
use taskharbor::JobId;

/// A group as one line of a list.
#[derive(Debug, Serialize)]
pub(crate) struct DlqGroup<'a> {
    fingerprint: String,
    pattern: &'a str,
    error: &'a str,
    count: usize,
    types: &'a BTreeSet<String>,
    queues: &'a BTreeSet<String>,
    first_at: String,
    last_at: String,
    sample_ids: Vec<&'a str>,
}

impl<'a> DlqGroup<'a> {
    pub(crate) fn of(group: &'a taskharbor::DlqGroup) -> Self {
        Self {
            fingerprint: group.fingerprint.to_string(),
            pattern: group.fingerprint.pattern(),
            error: &group.error,
            count: group.count,
            types: &group.types,
            queues: &group.queues,
            first_at: super::time(group.first_at),
            last_at: super::time(group.last_at),
            sample_ids: group.sample_ids.iter().map(JobId::as_str).collect(),
        }
    }
}

/// Written to standard error if not all jobs were looked at.
#[derive(Debug, Serialize)]
pub(crate) struct LookedAt {
    pub(crate) looked_at_jobs: usize,
}
