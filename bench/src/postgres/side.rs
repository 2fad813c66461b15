//! One side of a comparison: what its rounds gave, and what they cost.

use std::time::Duration;

use super::usage::Usage;
use crate::finding::{Bound, Rounds, finding, per_second, rate};

/// The rates of all rounds, and the processor time for each job.
#[derive(Debug, Default)]
pub(crate) struct Side {
    pub(crate) rate: Rounds,
    server: Rounds,
    client: Rounds,
}

impl Side {
    /// A round.
    #[expect(clippy::cast_precision_loss, reason = "an average needs no more than 52 bits")]
    pub(crate) fn push(&mut self, jobs: usize, took: Duration, spent: Usage) {
        self.rate.push(per_second(jobs, took));
        self.server.push(spent.server * 1e6 / jobs as f64);
        self.client.push(spent.client * 1e6 / jobs as f64);
    }

    pub(crate) fn print(&self, name: &str) {
        rate(name, &self.rate);
        let what = "  processor time per job, server";
        finding(what, &self.server, " µs", 1, Bound::None);
        let what = "  processor time per job, client";
        finding(what, &self.client, " µs", 1, Bound::None);
    }
}
