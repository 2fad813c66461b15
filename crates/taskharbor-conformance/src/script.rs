//! Random scripts of operations, run on a driver and on the model beside it.
//!
//! A script is made from a seed alone and refers to what happened before it by position ("the
//! third grant so far"), so any part can be left out and the rest still means something. That is
//! what lets a failing script be shrunk to the few steps that matter.

mod compare;
mod finish;
mod follow;
mod generate;
mod lease;
mod limit;
mod plan;
mod replay;
mod schedule;
mod shrink;
mod worker;

use std::{
    env,
    fmt::{self, Write as _},
    time::Duration,
};

use taskharbor_core::{
    AnyDriver, Driver, State,
    admin::QueueLimits,
    driver::OutputOf,
    job::{FailurePolicy, JoinReading, KeyHold},
};

use crate::case::Opener;

/// How many steps a script has.
const STEPS: usize = 60;

/// One in this many scripts ends with an export, which is imported into another store.
const MOVED_EVERY: u64 = 100;

/// One thing to do at one time.
#[derive(Clone, Debug)]
struct Step {
    when: When,
    act: Act,
}

/// What `now` a step is given.
#[derive(Clone, Copy, Debug)]
enum When {
    /// The same as before.
    Same,
    /// Later than before, and so it stays.
    Later(Duration),
    /// Earlier than before, for this step alone: another machine's clock.
    Earlier(Duration),
    /// Around the end of a lease: this many microseconds after it.
    Lease {
        grant: usize,
        offset: i64,
    },
    /// Around the time for which a job was last scheduled.
    Due {
        offset: i64,
    },
    /// Around the next instant at which a hold ends or a rate allows a job.
    Limit {
        offset: i64,
    },
    /// The beginning or the end of time, for this step alone.
    Epoch,
    End,
}

#[derive(Clone, Debug)]
enum Act {
    Enqueue(Vec<SetPlan>),
    Reserve {
        demands: Vec<(u8, usize)>,
        holder: u8,
        lease_for: Duration,
    },
    Extend {
        picks: Vec<Pick>,
        lease_for: Duration,
    },
    Settle(Vec<(Pick, Turn)>),
    Manage {
        jobs: Vec<Whose>,
        deed: Deed,
    },
    Pause(u8),
    Resume(u8),
    Prune {
        done: Option<u64>,
        dlq: Option<u64>,
        cancelled: Option<u64>,
        limit: usize,
    },
    Read {
        jobs: Vec<Whose>,
        of: OutputOf,
        from: usize,
        limit: usize,
    },
    List(ListPlan),
    Schedule(Vec<SchedulePlan>),
    Fire(Vec<FirePlan>),
    Due(usize),
    Limit(Vec<LimitPlan>),
    /// Reads the lanes of a queue in pages of this size.
    Lanes(u8, usize),
    /// Who is a holder and an incarnation of it.
    Announce {
        who: (u8, u8),
        info: u8,
        valid_for: Duration,
    },
    /// Reads the workers in pages of this size.
    Workers {
        valid: bool,
        overdue: bool,
        limit: usize,
    },
    /// Holder and incarnation.
    Evict(u8, Option<u8>),
}

/// A change of limits. Queues, lanes and owners are numbers.
#[derive(Clone, Debug)]
enum LimitPlan {
    Set(u8, Option<QueueLimits>),
    /// Owner, version, and the limits of queues.
    Declare(u8, Option<u64>, Vec<(u8, QueueLimits)>),
    Import(u8, Option<u8>, QueueLimits),
    /// Queue, lane, and seconds from now.
    Hold(u8, Option<u8>, Option<i64>),
}

/// A change of schedules. Names, owners and definitions are numbers.
#[derive(Clone, Debug)]
enum SchedulePlan {
    /// Name, definition, and seconds from now to the next slot.
    Put(u8, u8, Option<i64>),
    /// Owner, version, and schedules as above.
    Declare(u8, Option<u64>, Vec<(u8, u8, Option<i64>)>),
    Pause(u8),
    /// With the stored revision, or another.
    Resume(u8, bool, Option<i64>),
    Remove(u8),
    SetVersion(u8, Option<u64>),
}

/// A firing of a schedule.
#[derive(Clone, Debug)]
struct FirePlan {
    name: u8,
    /// Whether the revision is the stored one.
    is_current: bool,
    slots: Vec<SetPlan>,
    next_slot: Option<i64>,
    missed: u64,
    failed: bool,
    waits_for_key: bool,
}

/// A list to be read to its end.
#[derive(Clone, Debug)]
struct ListPlan {
    newest_first: bool,
    queue: Option<u8>,
    state: Option<State>,
    key: Option<u8>,
    lane: Option<u8>,
    error: bool,
    flow: Option<Whose>,
    /// Seconds before now, and how many of them.
    created: Option<(u64, u64)>,
    finished: Option<(u64, u64)>,
    limit: usize,
    scan: usize,
}

#[derive(Clone, Debug)]
struct SetPlan {
    jobs: Vec<JobPlan>,
    flow: bool,
}

#[derive(Clone)]
struct JobPlan {
    id: u8,
    queue: u8,
    lane: Option<u8>,
    priority: i16,
    /// Seconds from now, before or after.
    run_at: Option<i64>,
    key: Option<(u8, KeyHold)>,
    join: Option<JoinReading>,
    /// Whether it runs only if its parents fail.
    on_failure: bool,
    /// Positions in the set.
    parents: Vec<usize>,
    policy: FailurePolicy,
}

/// Only what is out of the ordinary, so that a report can be read.
impl fmt::Debug for JobPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job-{} in queue-{}", self.id, self.queue)?;
        if let Some(lane) = self.lane {
            write!(f, " lane-{lane}")?;
        }
        if let Some(reading) = self.join {
            write!(f, " join {reading:?}")?;
        }
        if self.on_failure {
            write!(f, " on failure")?;
        }
        if !self.parents.is_empty() {
            write!(f, " after {:?}", self.parents)?;
        }
        if self.policy != FailurePolicy::Block {
            write!(f, " {:?}", self.policy)?;
        }
        if self.priority != 0 {
            write!(f, " priority {}", self.priority)?;
        }
        if let Some(offset) = self.run_at {
            write!(f, " in {offset} s")?;
        }
        if let Some((key, hold)) = self.key {
            write!(f, " key-{key} {hold:?}")?;
        }
        Ok(())
    }
}

/// A job by its number, or by what was granted so far.
#[derive(Clone, Copy, Debug)]
enum Whose {
    Number(u8),
    Grant(usize),
}

/// A job and a token, by what was granted so far.
#[derive(Clone, Copy, Debug)]
struct Pick {
    /// Whose job.
    grant: usize,
    /// Whose token; often the same.
    token_of: usize,
}

#[derive(Clone, Debug)]
enum Turn {
    Ack(Option<u8>),
    Expand(SetPlan),
    Retry(Option<i64>),
    Fail,
    Release(Option<i64>),
}

#[derive(Clone, Copy, Debug)]
enum Deed {
    Requeue { reset: bool, detach: bool, run_at: Option<i64> },
    Cancel,
    RunNow,
    SetPriority(i16),
    Purge,
    CancelFlow,
    PurgeFlow,
}

/// Runs `count` scripts, or the one that `TASKHARBOR_SEED` names.
pub(crate) async fn run(driver: &AnyDriver, open: &Opener, count: u64) {
    let seed = env::var("TASKHARBOR_SEED").ok();
    let count = env::var("TASKHARBOR_SCRIPTS").ok().map_or(count, |it| number(&it));
    let seeds = seed.map_or(0..count, |seed| number(&seed)..number(&seed) + 1);
    run_seeds(driver, open, seeds).await;
}

/// Runs the scripts of these seeds, and ignores the environment.
pub(crate) async fn run_seeds(
    driver: &AnyDriver,
    open: &Opener,
    seeds: impl IntoIterator<Item = u64>,
) {
    for seed in seeds {
        let steps = generate::steps(seed, STEPS);
        // Opening another store is slow on some drivers.
        let target = if seed % MOVED_EVERY == 0 { Some(open().await) } else { None };
        if let Err(difference) = replay::replay(driver, target.as_ref(), &steps).await {
            let (steps, difference) = shrink::shrink(open, steps, difference).await;
            panic!("{}", report(seed, &steps, &difference));
        }
        if let Some(target) = target {
            target.close().await.expect("a driver can be closed");
        }
    }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is not a number"))
}

fn report(seed: u64, steps: &[Step], difference: &str) -> String {
    let mut text = format!(
        "the driver and the model differ (replay with TASKHARBOR_SEED={seed})\n{difference}\n\
         after the steps:\n"
    );
    for (number, step) in steps.iter().enumerate() {
        let _ = writeln!(text, "  {number}. {:?} {:?}", step.when, step.act);
    }
    text
}
