//! Failed jobs, grouped by what went wrong.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;
use taskharbor::{DlqGroup, JobId, Timestamp};

use crate::{call::Call, endpoint::Endpoint, filter::JobFilter, problem::Problem};

/// How many jobs are looked at, the newest.
const LOOKED_AT: usize = 4_000;
/// The most groups of one answer, the largest.
const MAX_GROUPS: usize = 200;

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/v1/{store}/dlq/groups", groups)
            .summary("The newest dead-lettered jobs, grouped by what went wrong"),
    ]
}

/// The groups, and how far they reach.
#[derive(Serialize, JsonSchema)]
struct Groups {
    /// How many jobs were looked at: the newest 4,000 that match, or fewer.
    looked_at: usize,
    /// Whether these were all that match.
    is_complete: bool,
    /// The groups, the largest first, at most 200.
    groups: Vec<Group>,
    /// How many groups are not in the answer.
    left_out: usize,
}

/// Jobs whose errors differ only in numbers, ids, quoted parts, paths and addresses.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DlqGroup")]
struct Group {
    /// Tells groups apart; a sweep takes it.
    fingerprint: String,
    /// What the errors have in common.
    pattern: String,
    /// The error of the job that was dead-lettered last.
    error: String,
    /// How many jobs there are.
    count: usize,
    /// Their types, at most 20.
    types: BTreeSet<String>,
    /// Their queues, at most 20.
    queues: BTreeSet<String>,
    /// When the first of them was dead-lettered.
    first_at: Timestamp,
    /// When the last of them was dead-lettered.
    last_at: Timestamp,
    /// Some of them, at most five, the newest first.
    sample_ids: Vec<JobId>,
}

impl From<DlqGroup> for Group {
    fn from(group: DlqGroup) -> Self {
        Self {
            fingerprint: group.fingerprint.to_string(),
            pattern: group.fingerprint.pattern().to_owned(),
            error: group.error,
            count: group.count,
            types: group.types,
            queues: group.queues,
            first_at: group.first_at,
            last_at: group.last_at,
            sample_ids: group.sample_ids,
        }
    }
}

async fn groups(call: Call, filter: JobFilter) -> Result<Groups, Problem> {
    if filter.state.is_some_and(|state| state != taskharbor::State::Dlq) {
        return Err(Problem::invalid("groups are of jobs in state dlq: leave the state out"));
    }
    let found = call.store()?.client.dlq().groups(filter.to_filter()?, LOOKED_AT).await?;
    let left_out = found.groups.len().saturating_sub(MAX_GROUPS);
    let groups = found.groups.into_iter().take(MAX_GROUPS).map(Group::from).collect();
    Ok(Groups { looked_at: found.looked_at, is_complete: found.is_complete, groups, left_out })
}
