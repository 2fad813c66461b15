//! [`Health`]: whether a worker runs jobs when there are any.
//!
//! Each part of a worker records the start of its oldest unanswered call, or of the first in a row of
//! failed calls. How long a handler runs says nothing: a worker whose slots are taken by long
//! jobs is healthy, and so is one without jobs.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    outage::Part,
    shared::{Phase, Shared},
};
use crate::WorkerPhase;

/// How long a part may be without an answer from the store, or a runtime without a turn for its tasks.
const STALL_LIMIT: Duration = Duration::from_secs(20);
/// How long a store may say that a job is due and not give it.
const IN_VAIN_LIMIT: Duration = Duration::from_secs(30);
/// A part that failed and still needs an answer asks again within this time. Later silence means that it has
/// nothing left to ask: for example, the leases that it could not extend are lost.
const TRIES_AGAIN_WITHIN: Duration = Duration::from_secs(15);
/// How much longer than its time limit a call of a loop may take before the loop counts as stopped: the limit
/// ends every call whose driver lets the loop go on.
const OVERRUN: Duration = Duration::from_secs(30);
/// How long the runtime that keeps leases may not run before its loops count as stopped.
const LEASES_STALL_LIMIT: Duration = Duration::from_secs(60);
/// The time between two signs of life of a runtime.
pub(super) const PULSE: Duration = Duration::from_secs(5);

/// The health of a worker: [`Running::health`](crate::Running::health).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Its phase between start and end.
    pub phase: WorkerPhase,
    /// The reasons why it runs no jobs although it should; empty if it is healthy.
    pub problems: Vec<HealthProblem>,
    /// How many jobs it may run at once.
    pub slots: usize,
    /// How many slots are taken.
    pub busy: usize,
}

impl Health {
    /// Whether the worker is running: `false` once it has ended, or once one of its loops is stuck.
    /// Restart a process whose worker is not live. A store that is away and handlers that block their
    /// runtime leave the worker live, because a restart would not help.
    #[must_use]
    pub fn is_live(&self) -> bool {
        let has_stopped = |it: &HealthProblem| matches!(it, HealthProblem::LoopStopped(_));
        self.phase != WorkerPhase::Ended && !self.problems.iter().any(has_stopped)
    }

    /// Whether the worker is in phase [`WorkerPhase::Working`] and has no problems: it runs jobs,
    /// or there are none.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.phase == WorkerPhase::Working && self.problems.is_empty()
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} of {} slots taken", self.phase.as_str(), self.busy, self.slots)?;
        self.problems.iter().try_for_each(|problem| write!(f, "; {problem}"))
    }
}

/// A reason why a worker runs no jobs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HealthProblem {
    /// Jobs cannot be reserved.
    #[error("no reserve has succeeded for {} s: check the store", .0.as_secs())]
    Reserving(Duration),
    /// Leases cannot be extended.
    #[error("no lease could be extended for {} s: check the store", .0.as_secs())]
    ExtendingLeases(Duration),
    /// Outcomes cannot be recorded.
    #[error("no outcome could be recorded for {} s: check the store", .0.as_secs())]
    Settling(Duration),
    /// The inputs of jobs cannot be read. Such a job has a slot, but its handler does not run.
    #[error("no input of a job could be read for {} s: check the store", .0.as_secs())]
    ReadingInputs(Duration),
    /// The limits of the worker cannot be declared. It reserves no job before.
    #[error("the limits could not be declared for {} s, and no job is reserved before: check the store", .0.as_secs())]
    DeclaringLimits(Duration),
    /// The store says that a job is due, and slots are free, but reserving grants no job.
    #[error("a job has been due for {} s, but reserving grants none: check the store", .0.as_secs())]
    GivenNothing(Duration),
    /// Handlers block every thread of their runtime.
    #[error(
        "the runtime of the handlers has not run for {} s: do blocking work in taskharbor::blocking",
        .0.as_secs()
    )]
    RuntimeBlocked(Duration),
    /// A loop of the worker is stuck: a driver blocks its thread. Only a restart helps.
    #[error("a loop of the worker has been stuck for {} s: restart the process", .0.as_secs())]
    LoopStopped(Duration),
}

/// What the parts of a worker note about their calls.
#[derive(Debug, Default)]
pub(super) struct HealthNotes(Mutex<Notes>);

#[derive(Debug, Default)]
struct Notes {
    reserving: PartNotes,
    extending: PartNotes,
    settling: PartNotes,
    inputs: PartNotes,
    /// Since when the limits are being declared, before the first reserve.
    declaring: Option<Instant>,
    in_vain: Option<Instant>,
    /// When the runtime of the handlers ran last.
    pulse: Option<Instant>,
    /// When the runtime that keeps leases ran last.
    leases_pulse: Option<Instant>,
}

/// What one part notes.
#[derive(Debug, Default)]
struct PartNotes {
    /// When the first call began after which there was no answer.
    since: Option<Instant>,
    /// When each call began that has not ended.
    in_flight: Vec<Instant>,
    failed_at: Option<Instant>,
}

impl PartNotes {
    /// For how long there has been no answer to what the part still wants.
    fn unanswered(&self, now: Instant) -> Option<Duration> {
        let tries_again =
            self.failed_at.is_some_and(|at| now.saturating_duration_since(at) < TRIES_AGAIN_WITHIN);
        let since = self.since.filter(|_| !self.in_flight.is_empty() || tries_again)?;
        Some(now.saturating_duration_since(since)).filter(|it| *it >= STALL_LIMIT)
    }
}

impl Notes {
    const fn part(&mut self, part: Part) -> Option<&mut PartNotes> {
        match part {
            Part::Reserver => Some(&mut self.reserving),
            Part::Keeper => Some(&mut self.extending),
            Part::Settler => Some(&mut self.settling),
            Part::Input => Some(&mut self.inputs),
            Part::Pruner
            | Part::Scheduler
            | Part::Announcer
            | Part::Watch
            | Part::Hold
            | Part::Probe => None,
        }
    }
}

/// A call of a part, until it ends.
pub(super) struct CallNote<'a> {
    notes: &'a HealthNotes,
    part: Part,
    began: Instant,
}

impl CallNote<'_> {
    /// It was answered.
    pub(super) fn answered(self) {
        self.notes.part(self.part, |part| (part.since, part.failed_at) = (None, None));
    }

    /// It got no answer.
    pub(super) fn failed(self, now: Instant) {
        self.notes.part(self.part, |part| part.failed_at = Some(now));
    }
}

impl Drop for CallNote<'_> {
    fn drop(&mut self) {
        self.notes.part(self.part, |part| {
            if let Some(at) = part.in_flight.iter().position(|began| *began == self.began) {
                part.in_flight.swap_remove(at);
            }
            if part.in_flight.is_empty() && part.failed_at.is_none() {
                part.since = None;
            }
        });
    }
}

/// The time in which the limits are declared.
pub(super) struct DeclaringNote<'a>(&'a HealthNotes);

impl Drop for DeclaringNote<'_> {
    fn drop(&mut self) {
        self.0.change(|notes| notes.declaring = None);
    }
}

impl HealthNotes {
    fn change(&self, change: impl FnOnce(&mut Notes)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn part(&self, part: Part, change: impl FnOnce(&mut PartNotes)) {
        self.change(|notes| {
            if let Some(part) = notes.part(part) {
                change(part);
            }
        });
    }

    /// A call begins.
    pub(super) fn call(&self, part: Part, now: Instant) -> CallNote<'_> {
        self.part(part, |part| {
            part.in_flight.push(now);
            part.since.get_or_insert(now);
        });
        CallNote { notes: self, part, began: now }
    }

    /// The limits are being declared until the note is dropped, and nothing is reserved.
    pub(super) fn declaring(&self, now: Instant) -> DeclaringNote<'_> {
        self.change(|notes| notes.declaring = Some(now));
        DeclaringNote(self)
    }

    /// Whether the last reserve brought nothing although the store said that a job was due.
    pub(super) fn reserved(&self, in_vain: bool, now: Instant) {
        self.change(|notes| {
            notes.in_vain = in_vain.then(|| notes.in_vain.unwrap_or(now));
        });
    }

    /// The runtime of the handlers runs.
    pub(super) fn pulse(&self, now: Instant) {
        self.change(|notes| notes.pulse = Some(now));
    }

    /// The runtime that keeps leases runs.
    pub(super) fn leases_pulse(&self, now: Instant) {
        self.change(|notes| notes.leases_pulse = Some(now));
    }

    /// `call_timeout` is how long a call may take.
    fn problems(&self, now: Instant, call_timeout: Duration) -> Vec<HealthProblem> {
        let notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let longer = |since: Option<Instant>, limit: Duration| {
            since.map(|since| now.saturating_duration_since(since)).filter(|it| *it >= limit)
        };
        let loops = [&notes.reserving, &notes.extending, &notes.settling];
        let oldest_call = loops.into_iter().flat_map(|part| &part.in_flight).min().copied();
        let stopped = longer(oldest_call, call_timeout + OVERRUN)
            .or_else(|| longer(notes.leases_pulse, LEASES_STALL_LIMIT));
        [
            notes.reserving.unanswered(now).map(HealthProblem::Reserving),
            notes.extending.unanswered(now).map(HealthProblem::ExtendingLeases),
            notes.settling.unanswered(now).map(HealthProblem::Settling),
            notes.inputs.unanswered(now).map(HealthProblem::ReadingInputs),
            longer(notes.declaring, STALL_LIMIT).map(HealthProblem::DeclaringLimits),
            longer(notes.in_vain, IN_VAIN_LIMIT).map(HealthProblem::GivenNothing),
            longer(notes.pulse, PULSE + STALL_LIMIT).map(HealthProblem::RuntimeBlocked),
            stopped.map(HealthProblem::LoopStopped),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// How the worker is now.
pub(super) fn of(shared: &Shared) -> Health {
    let phase = match shared.phase() {
        Phase::Working if shared.clock.get().is_none() => WorkerPhase::Starting,
        Phase::Working => WorkerPhase::Working,
        Phase::Quiet => WorkerPhase::Quiet,
        Phase::Draining | Phase::Cancelling => WorkerPhase::Stopping,
        Phase::Ended => WorkerPhase::Ended,
    };
    let mut problems = shared.health.problems(Instant::now(), shared.config.call_timeout);
    // A worker that reserves nothing more is given nothing.
    problems.retain(|problem| {
        phase == WorkerPhase::Working || !matches!(problem, HealthProblem::GivenNothing(_))
    });
    let slots = shared.pools.iter().map(|pool| pool.concurrency).sum();
    let busy = shared.pools.iter().map(super::pool::SlotPool::busy).sum();
    Health { phase, problems, slots, busy }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn problems(notes: &HealthNotes, now: Instant) -> Vec<HealthProblem> {
        notes.problems(now, 30 * SECOND)
    }

    #[test]
    fn a_part_is_a_problem_once_it_has_been_without_an_answer_for_too_long() {
        let (notes, start) = (HealthNotes::default(), Instant::now());
        notes.call(Part::Reserver, start).failed(start + 10 * SECOND);
        let call = notes.call(Part::Reserver, start + 11 * SECOND);
        assert_eq!(problems(&notes, start + 19 * SECOND), []);
        assert_eq!(problems(&notes, start + STALL_LIMIT), [HealthProblem::Reserving(STALL_LIMIT)]);
        call.answered();
        assert_eq!(problems(&notes, start + STALL_LIMIT), []);
    }

    #[test]
    fn a_part_that_has_nothing_more_to_ask_is_healthy() {
        let (notes, start) = (HealthNotes::default(), Instant::now());
        drop(notes.call(Part::Settler, start));
        notes.call(Part::Keeper, start).failed(start + 30 * SECOND);
        let _other = notes.call(Part::Pruner, start);
        assert_eq!(problems(&notes, start + 44 * SECOND).len(), 1);
        assert_eq!(problems(&notes, start + 45 * SECOND), []);
    }

    #[test]
    fn a_job_that_is_due_and_never_given_is_a_problem() {
        let (notes, start) = (HealthNotes::default(), Instant::now());
        notes.reserved(true, start);
        notes.reserved(true, start + IN_VAIN_LIMIT / 2);
        let problem = HealthProblem::GivenNothing(IN_VAIN_LIMIT);
        assert_eq!(problems(&notes, start + IN_VAIN_LIMIT), [problem]);
        notes.reserved(false, start + IN_VAIN_LIMIT);
        assert_eq!(problems(&notes, start + IN_VAIN_LIMIT), []);
    }

    #[test]
    fn a_runtime_that_does_not_run_is_a_problem_and_the_worker_lives() {
        let (notes, start) = (HealthNotes::default(), Instant::now());
        notes.pulse(start);
        assert_eq!(problems(&notes, start + 24 * SECOND), []);
        let blocked = HealthProblem::RuntimeBlocked(25 * SECOND);
        assert_eq!(problems(&notes, start + 25 * SECOND), [blocked]);
        let health = |problems| Health { phase: WorkerPhase::Working, problems, slots: 1, busy: 1 };
        let blocked = health(problems(&notes, start + 600 * SECOND));
        assert_eq!((blocked.is_ready(), blocked.is_live()), (false, true), "{blocked}");
        notes.pulse(start + 600 * SECOND);
        assert_eq!(problems(&notes, start + 601 * SECOND), []);
    }

    #[test]
    fn a_loop_that_does_not_go_on_ends_the_life_of_the_worker() {
        let health = |problems| Health { phase: WorkerPhase::Working, problems, slots: 1, busy: 1 };
        let (notes, start) = (HealthNotes::default(), Instant::now());
        // The time limit of a call has passed long ago.
        let call = notes.call(Part::Settler, start);
        notes.call(Part::Settler, start + SECOND).answered();
        assert!(health(problems(&notes, start + 59 * SECOND)).is_live());
        let stopped = health(problems(&notes, start + 60 * SECOND));
        assert_eq!(stopped.problems, [HealthProblem::LoopStopped(60 * SECOND)]);
        assert_eq!((stopped.is_ready(), stopped.is_live()), (false, false), "{stopped}");
        drop(call);
        assert!(health(problems(&notes, start + 61 * SECOND)).is_ready());
        // Inputs are read by handlers, of which each may wait.
        let _input = notes.call(Part::Input, start);
        assert!(health(problems(&notes, start + 300 * SECOND)).is_live());
        notes.leases_pulse(start);
        assert!(!health(problems(&notes, start + LEASES_STALL_LIMIT)).is_live());
    }
}
