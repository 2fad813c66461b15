//! The parts of a worker, checked one by one when it is built.

use std::collections::{HashMap, HashSet};

use taskharbor_core::{
    JobType, QueueName,
    admin::{Declaration, LimitsDeclaration},
    name::{Holder, NameError},
};

use super::{build_error::BuildError, builder::MAX_CONCURRENCY, pool::SlotPool};
use crate::handler::Entry;

/// Schedules and limits of one owner share its version: with two, the store would deny the lower one, or
/// forget the only one.
pub(super) fn check_owner_versions(
    schedules: Option<&Declaration>,
    limits: Option<&LimitsDeclaration>,
) -> Result<(), BuildError> {
    match schedules.zip(limits) {
        Some((schedules, limits))
            if schedules.owner == limits.owner && schedules.version != limits.version =>
        {
            Err(BuildError::OwnerVersions(limits.owner.as_str().to_owned()))
        }
        _ => Ok(()),
    }
}

/// The name of this machine.
pub(super) fn host() -> Option<String> {
    let host =
        std::env::var("HOSTNAME").or_else(|_| std::fs::read_to_string("/proc/sys/kernel/hostname"));
    host.ok().map(|host| host.trim().to_owned()).filter(|host| Holder::new(host).is_ok())
}

pub(super) fn default_name() -> Result<Holder, NameError> {
    let host = host();
    let (host, pid) = (host.unwrap_or_else(|| "worker".to_owned()), std::process::id());
    Holder::new(format!("{host}:{pid}:{:04x}", fastrand::u16(..)))
        .or_else(|_| Holder::new(format!("worker:{pid}")))
}

pub(super) fn pools(named: &[(String, usize)]) -> Result<Vec<SlotPool>, BuildError> {
    if named.is_empty() {
        return Err(BuildError::NoQueues);
    }
    let mut seen = HashSet::new();
    let mut pools = Vec::new();
    for (name, concurrency) in named {
        let queue = || name.clone();
        let valid = QueueName::new(name)
            .map_err(|cause| BuildError::InvalidQueue { queue: queue(), cause })?;
        if !seen.insert(name) {
            return Err(BuildError::DuplicateQueue(queue()));
        }
        if !(1..=MAX_CONCURRENCY).contains(concurrency) {
            return Err(BuildError::Concurrency { queue: queue(), concurrency: *concurrency });
        }
        pools.push(SlotPool::new(valid, *concurrency));
    }
    Ok(pools)
}

pub(super) fn handlers(
    entries: Vec<Entry<()>>,
    is_served: impl Fn(&str) -> bool,
) -> Result<HashMap<JobType, Entry<()>>, BuildError> {
    if entries.is_empty() {
        return Err(BuildError::NoHandlers);
    }
    let mut handlers = HashMap::new();
    for entry in entries {
        let job_type = entry.job_type.clone();
        let valid = JobType::new(&job_type)
            .map_err(|cause| BuildError::InvalidType { job_type: job_type.clone(), cause })?;
        if let Some(queue) = entry.queue.clone().filter(|queue| !is_served(queue)) {
            return Err(BuildError::UnservedQueue { job_type, queue });
        }
        if let Some(policy) = &entry.defaults.retry {
            policy
                .check()
                .map_err(|problem| BuildError::RetryOf { job_type: job_type.clone(), problem })?;
        }
        if handlers.insert(valid, entry).is_some() {
            return Err(BuildError::DuplicateHandler(job_type));
        }
    }
    Ok(handlers)
}
