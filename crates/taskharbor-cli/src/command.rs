//! What each command does.

pub(crate) mod act;
pub(crate) mod backup;
pub(crate) mod bulk;
pub(crate) mod check;
pub(crate) mod conformance;
pub(crate) mod demo;
pub(crate) mod dlq;
pub(crate) mod doctor;
pub(crate) mod enqueue;
pub(crate) mod flow;
pub(crate) mod inspect;
pub(crate) mod list;
pub(crate) mod metrics;
pub(crate) mod migrate;
pub(crate) mod prune;
pub(crate) mod queue;
pub(crate) mod schedule;
pub(crate) mod serve;
pub(crate) mod stats;
pub(crate) mod token;
pub(crate) mod transfer;
pub(crate) mod usage;
pub(crate) mod why;
pub(crate) mod worker;
pub(crate) mod workers;
