//! [`LaneTurns`]: whose turn it is in the queues that a handle has reserved from, and where a walk through lanes goes on.
//!
//! A call looks at 1,000 lanes at most (LAN-4). While it grants nothing, the next calls go on behind the last lane, soon one
//! after another, until all lanes were looked at: that is a round. A round that has granted nothing is waited for as a single
//! call would be: until the first instant that any of its calls has named. A wake-up during the round may concern a lane that
//! the round has passed, so another round follows at once.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use taskharbor_core::{
    QueueName,
    driver::{Demand, Turn},
    name::LaneName,
};

/// How soon the next call of a round comes.
const SOON_US: i64 = 20_000;

/// Whose turn it is in each queue. LAN-5.
#[derive(Debug, Default)]
pub(crate) struct LaneTurns {
    queues: Mutex<HashMap<QueueName, Known>>,
}

/// What is known of a queue.
#[derive(Debug, Default)]
struct Known {
    turn: Turn,
    round: Option<Round>,
}

/// A walk through all lanes that has granted nothing yet.
#[derive(Debug)]
struct Round {
    stopped: Stopped,
    /// When the first of the lanes that were looked at may have more.
    due: Option<i64>,
    /// Whether a wake-up came, or another call has changed the round.
    is_disturbed: bool,
}

/// Where a call stopped: the priority, and the last lane that it looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stopped {
    pub(crate) priority: i64,
    pub(crate) lane: String,
}

/// Where a call begins in the queue of a demand.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) demand: usize,
    /// The lane that had the last turn, and how many jobs of it.
    pub(crate) lane: String,
    pub(crate) used: u32,
    pub(crate) stopped: Option<Stopped>,
}

/// What a call tells of a queue that is granted by turns.
#[derive(Debug)]
pub(crate) struct Turned {
    pub(crate) demand: usize,
    pub(crate) lane: String,
    pub(crate) used: u32,
    pub(crate) stopped: Option<Stopped>,
    /// When to ask again.
    pub(crate) next_due: Option<i64>,
    /// When to ask again for the lanes that this call has looked at.
    pub(crate) round_due: Option<i64>,
}

impl LaneTurns {
    /// Where to begin in these queues. A wake-up came for those of which `is_woken` says so.
    pub(crate) fn of(
        &self,
        demands: &[Demand],
        is_woken: impl Fn(&QueueName) -> bool,
    ) -> Vec<Start> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if queues.is_empty() {
            return Vec::new();
        }
        let start = |(demand, asked): (usize, &Demand)| {
            let known = queues.get_mut(&asked.queue)?;
            if let Some(round) = &mut known.round {
                round.is_disturbed |= is_woken(&asked.queue);
            }
            let (lane, used) = known.turn.last().unwrap_or((None, 0));
            let lane = lane.map_or_else(String::new, LaneName::to_string);
            let stopped = known.round.as_ref().map(|round| round.stopped.clone());
            Some(Start { demand, lane, used, stopped })
        };
        demands.iter().enumerate().filter_map(start).collect()
    }

    /// Keeps the turn that a call has left; jobs without a lane are the lane of no name.
    pub(crate) fn keep(&self, queue: &QueueName, lane: &str, used: u32) {
        let turn = Turn::of(LaneName::new(lane).ok(), used);
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        match queues.get_mut(queue) {
            Some(known) => *known = Known { turn, round: None },
            None => drop(queues.insert(queue.clone(), Known { turn, round: None })),
        }
    }

    /// Keeps what a call tells that began at `start` and has met its demand or not, and answers when to ask again. LAN-4, RES-10.
    pub(crate) fn learn(
        &self,
        queue: &QueueName,
        start: Option<&Start>,
        turned: Turned,
        is_met: bool,
        now: i64,
    ) -> Option<i64> {
        let began = start.and_then(|start| start.stopped.as_ref());
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let known = queues.entry(queue.clone()).or_default();
        known.turn = match (&turned.stopped, start) {
            // It granted nothing, and perhaps there has been no turn at all.
            (Some(_), None) => Turn::default(),
            _ => Turn::of(LaneName::new(&turned.lane).ok(), turned.used),
        };
        let before = known.round.take();
        let is_same = before.as_ref().map(|round| &round.stopped) == began;
        let is_disturbed = !is_same || before.as_ref().is_some_and(|round| round.is_disturbed);
        let due = earlier(before.and_then(|round| round.due), turned.round_due);
        if let Some(stopped) = turned.stopped {
            known.round = Some(Round { stopped, due, is_disturbed });
            return turned.next_due;
        }
        if began.is_none() || is_met {
            return turned.next_due;
        }
        let due = earlier(due, turned.next_due).map(|due| due.max(now + 1));
        if is_disturbed { earlier(due, Some(now + SOON_US)) } else { due }
    }
}

fn earlier(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    a.into_iter().chain(b).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000_000;
    const SOON: i64 = NOW + SOON_US;
    const LATER: i64 = NOW + 60_000_000;

    fn queue() -> QueueName {
        QueueName::new("q").unwrap()
    }

    /// A call that grants nothing; `stopped` is the lane behind which it stopped.
    fn call(
        turns: &LaneTurns,
        is_woken: bool,
        stopped: Option<&str>,
        round_due: i64,
    ) -> Option<i64> {
        let start = turns.of(&[Demand::new(queue(), 9)], |_| is_woken).pop();
        let due = if stopped.is_some() { SOON } else { round_due };
        let stopped = stopped.map(|lane| Stopped { priority: 0, lane: lane.to_owned() });
        let (lane, next_due) = (String::new(), Some(due));
        let turned =
            Turned { demand: 0, lane, used: 1, stopped, next_due, round_due: Some(round_due) };
        turns.learn(&queue(), start.as_ref(), turned, false, NOW)
    }

    #[test]
    fn a_round_that_grants_nothing_ends_in_a_pause_until_the_first_instant_that_was_named() {
        let turns = LaneTurns::default();
        assert_eq!(call(&turns, false, Some("a"), LATER), Some(SOON));
        assert_eq!(call(&turns, false, Some("b"), LATER - 7), Some(SOON));
        assert_eq!(call(&turns, false, None, LATER), Some(LATER - 7));
        // What was named in one round is forgotten in the next.
        assert_eq!(call(&turns, false, Some("a"), LATER), Some(SOON));
        assert_eq!(call(&turns, false, None, LATER), Some(LATER));
    }

    #[test]
    fn a_call_goes_on_where_the_last_one_stopped() {
        let turns = LaneTurns::default();
        call(&turns, false, Some("a"), LATER);
        let stopped = turns.of(&[Demand::new(queue(), 9)], |_| false).pop().unwrap().stopped;
        assert_eq!(stopped, Some(Stopped { priority: 0, lane: "a".to_owned() }));
        call(&turns, false, None, LATER);
        assert_eq!(turns.of(&[Demand::new(queue(), 9)], |_| false).pop().unwrap().stopped, None);
    }

    #[test]
    fn a_wake_up_during_a_round_makes_another_one_follow() {
        let turns = LaneTurns::default();
        call(&turns, true, Some("a"), LATER);
        assert_eq!(call(&turns, false, None, LATER), Some(LATER), "it came before the round");
        call(&turns, false, Some("a"), LATER);
        assert_eq!(call(&turns, true, None, LATER), Some(SOON));
        call(&turns, false, Some("a"), LATER);
        assert_eq!(call(&turns, false, None, LATER), Some(LATER));
    }

    #[test]
    fn an_instant_that_has_passed_during_the_round_is_not_waited_for() {
        let turns = LaneTurns::default();
        call(&turns, false, Some("a"), NOW - 5);
        assert_eq!(call(&turns, false, None, LATER), Some(NOW + 1));
    }

    #[test]
    fn a_round_that_another_call_has_changed_is_followed_by_another_one() {
        let turns = LaneTurns::default();
        call(&turns, false, Some("a"), LATER);
        let start = turns.of(&[Demand::new(queue(), 9)], |_| false).pop();
        call(&turns, false, Some("b"), LATER);
        let due = Some(LATER);
        let turned = Turned {
            demand: 0,
            lane: String::new(),
            used: 1,
            stopped: None,
            next_due: due,
            round_due: due,
        };
        assert_eq!(turns.learn(&queue(), start.as_ref(), turned, false, NOW), Some(SOON));
    }
}
