//! The jobs of the demo and their expected ends: one table, with which the run is compared.
//!
//! The expected numbers are worked out from it; none is written down a second time.

use std::time::Duration;

/// One kind of job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// The name of its type.
    pub(crate) job_type: &'static str,
    /// Where its jobs wait.
    pub(crate) queue: &'static str,
    /// How many of them there are.
    pub(crate) jobs: usize,
    /// The expected end of each job.
    pub(crate) ending: Ending,
    /// The same in a few words.
    pub(crate) words: &'static str,
}

/// The expected end of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    /// It succeeds after this many failures.
    Succeeds {
        /// How many.
        failures: usize,
    },
    /// It is dead-lettered.
    Dies {
        /// After this many attempts.
        attempts: usize,
        /// For a reason that contains this.
        reason: &'static str,
    },
}

/// How far ahead the one job is scheduled that is not to run at once.
pub(crate) const AHEAD: Duration = Duration::from_secs(3);

const SUCCEEDS: Ending = Ending::Succeeds { failures: 0 };

/// All kinds, in the order in which they are shown.
pub(crate) const KINDS: [Kind; 10] = [
    kind("email:send", "mail", 240, SUCCEEDS, "succeeds"),
    kind("image:resize", "media", 60, SUCCEEDS, "succeeds"),
    kind("report:build", "reports", 16, SUCCEEDS, "returns a report"),
    kind("reminder:send", "default", 1, SUCCEEDS, "is scheduled"),
    kind("sms:send", "sms", 40, Ending::Succeeds { failures: 1 }, "fails once"),
    kind("webhook:call", "default", 1, dies(4, "connection refused"), "always fails"),
    kind("invoice:split", "default", 1, dies(3, "panicked: "), "panics each time"),
    kind("feed:import", "default", 1, dies(3, "timed out after "), "times out each time"),
    kind("user:import", "default", 1, dies(1, "no address"), "is unrecoverable"),
    kind("legacy:sync", "default", 1, dies(1, "no handler for job type"), "has no handler"),
];

const fn kind(
    job_type: &'static str,
    queue: &'static str,
    jobs: usize,
    ending: Ending,
    words: &'static str,
) -> Kind {
    Kind { job_type, queue, jobs, ending, words }
}

const fn dies(attempts: usize, reason: &'static str) -> Ending {
    Ending::Dies { attempts, reason }
}

impl Kind {
    /// The kind of this type.
    pub(crate) fn of(job_type: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.job_type == job_type)
    }

    /// How many of its jobs succeed in the end.
    pub(crate) const fn done(&self) -> usize {
        match self.ending {
            Ending::Succeeds { .. } => self.jobs,
            Ending::Dies { .. } => 0,
        }
    }

    /// How many of its jobs are dead-lettered.
    pub(crate) const fn dead(&self) -> usize {
        self.jobs - self.done()
    }

    /// How often its jobs are tried again, all together.
    pub(crate) const fn retries(&self) -> usize {
        match self.ending {
            Ending::Succeeds { failures } => self.jobs * failures,
            Ending::Dies { attempts, .. } => self.jobs * (attempts - 1),
        }
    }
}

/// How many jobs there are in all.
pub(crate) fn jobs() -> usize {
    KINDS.iter().map(|kind| kind.jobs).sum()
}

/// The queues, each once, by name.
pub(crate) fn queues() -> Vec<&'static str> {
    let mut queues: Vec<_> = KINDS.iter().map(|kind| kind.queue).collect();
    queues.sort_unstable();
    queues.dedup();
    queues
}
