//! Leaving out what does not matter to a difference.

use super::{Act, SetPlan, Step, replay::replay};
use crate::case::Opener;

/// How often a script is replayed to make it smaller.
const ATTEMPTS: usize = 2_000;

/// A smaller script after which the driver and the model still differ, and how.
pub(super) async fn shrink(
    open: &Opener,
    steps: Vec<Step>,
    difference: String,
) -> (Vec<Step>, String) {
    let mut shrinker = Shrinker { open, steps, difference, attempts: 0 };
    loop {
        let before = shrinker.attempts;
        let fewer = shrinker.leave_out_steps().await;
        let smaller = shrinker.make_steps_smaller().await;
        if !fewer && !smaller || before == shrinker.attempts {
            return (shrinker.steps, shrinker.difference);
        }
    }
}

struct Shrinker<'a> {
    open: &'a Opener,
    steps: Vec<Step>,
    difference: String,
    attempts: usize,
}

impl Shrinker<'_> {
    /// Takes the script if the difference is still there.
    async fn try_this(&mut self, steps: Vec<Step>) -> bool {
        if self.attempts == ATTEMPTS {
            return false;
        }
        self.attempts += 1;
        let driver = (self.open)().await;
        let target = (self.open)().await;
        let outcome = replay(&driver, Some(&target), &steps).await;
        let _ = taskharbor_core::Driver::close(&target).await;
        // It was opened for this attempt alone, and what it says on leaving is of no use.
        let _ = taskharbor_core::Driver::close(&driver).await;
        match outcome {
            Err(difference) => {
                (self.steps, self.difference) = (steps, difference);
                true
            }
            Ok(()) => false,
        }
    }

    async fn leave_out_steps(&mut self) -> bool {
        let mut any = false;
        let mut chunk = self.steps.len().div_ceil(2);
        loop {
            let mut start = 0;
            while start < self.steps.len() {
                let mut fewer = self.steps.clone();
                fewer.drain(start..(start + chunk).min(fewer.len()));
                if self.try_this(fewer).await {
                    any = true;
                } else {
                    start += chunk;
                }
            }
            if chunk <= 1 {
                return any;
            }
            chunk = chunk.div_ceil(2);
        }
    }

    async fn make_steps_smaller(&mut self) -> bool {
        let mut any = false;
        for at in 0..self.steps.len() {
            let mut part = 0;
            while let Some(act) = without(&self.steps[at].act, part) {
                let mut smaller = self.steps.clone();
                smaller[at].act = act;
                if self.try_this(smaller).await {
                    any = true;
                } else {
                    part += 1;
                }
            }
        }
        any
    }
}

/// The same act without one of its parts: an item of a batch, a job of a set.
fn without(act: &Act, part: usize) -> Option<Act> {
    let mut act = act.clone();
    let found = match &mut act {
        Act::Enqueue(sets) => {
            let count = sets.len();
            let jobs: usize = sets.iter().map(|set| set.jobs.len()).sum();
            if part < count {
                remove(sets, part)
            } else {
                part < count + jobs && remove_job(sets, part - count)
            }
        }
        Act::Reserve { demands, .. } => remove(demands, part),
        Act::Extend { picks, .. } => remove(picks, part),
        Act::Settle(items) => remove(items, part),
        Act::Manage { jobs, .. } | Act::Read { jobs, .. } => remove(jobs, part),
        Act::Schedule(changes) => remove(changes, part),
        Act::Limit(changes) => remove(changes, part),
        Act::Fire(items) => {
            let count = items.len();
            if part < count {
                remove(items, part)
            } else {
                let mut slots = items.iter_mut().map(|item| &mut item.slots);
                slots.nth(part - count).is_some_and(|slots| slots.pop().is_some())
            }
        }
        Act::Pause(_)
        | Act::Resume(_)
        | Act::Prune { .. }
        | Act::List(_)
        | Act::Due(_)
        | Act::Lanes(..)
        | Act::Announce { .. }
        | Act::Workers { .. }
        | Act::Evict(..) => false,
    };
    found.then_some(act)
}

/// Removes an item, but not the last.
fn remove<T>(items: &mut Vec<T>, at: usize) -> bool {
    let found = at < items.len() && items.len() > 1;
    if found {
        items.remove(at);
    }
    found
}

/// Removes a job, counted over all sets, and what refers to it.
fn remove_job(sets: &mut [SetPlan], mut at: usize) -> bool {
    for set in sets {
        if at < set.jobs.len() {
            set.jobs.remove(at);
            for job in &mut set.jobs {
                job.parents.retain(|parent| *parent != at);
                for parent in &mut job.parents {
                    *parent -= usize::from(*parent > at);
                }
            }
            return true;
        }
        at -= set.jobs.len();
    }
    false
}
