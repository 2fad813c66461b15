//! [`Plan`]: what the poller asks next, one question a turn.

use std::time::Duration;

use taskharbor_core::admin::Cursor;
use tokio::time::Instant;

/// One question to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// Counts up to a bound.
    Counts,
    /// Counts without a bound.
    ExactCounts,
    /// A page of the workers.
    Workers(Option<Cursor>),
    /// A page of the limits of queues.
    Limits(Option<Cursor>),
    /// How many schedules are late.
    Late,
    /// The store's time.
    Time,
}

/// The questions of ten turns.
#[derive(Clone, Copy)]
enum Turn {
    Counts,
    Workers,
    Other,
}

const TURNS: [Turn; 10] = [
    Turn::Counts,
    Turn::Workers,
    Turn::Other,
    Turn::Counts,
    Turn::Counts,
    Turn::Counts,
    Turn::Workers,
    Turn::Counts,
    Turn::Counts,
    Turn::Counts,
];

/// The least time between two exact counts.
const EXACT_EVERY: Duration = Duration::from_secs(60);
/// Exact counts take one part in this many of the time.
const EXACT_IDLE_RATIO: u32 = 200;
/// The shortest time between two questions.
const SHORTEST: Duration = Duration::from_secs(1);
/// The longest time between two questions to a store that answers.
const LONGEST: Duration = Duration::from_secs(300);
/// Questions take one part in this many of the time.
const IDLE_RATIO: u32 = 20;
/// How long to wait after a question without an answer.
const RETRY: Duration = Duration::from_secs(2);

/// What is asked next, and when.
#[derive(Debug, Default)]
pub(super) struct Plan {
    turn: usize,
    others: usize,
    /// The rest of a list, which is asked for first.
    rest: Option<Ask>,
    exact: Option<(Instant, Duration)>,
}

impl Plan {
    /// Begins with what the first look needs.
    pub(super) fn begin(&mut self) {
        (self.turn, self.others, self.rest) = (0, 0, None);
    }

    /// What to ask now; `is_capped` says whether an exact count would say more than the last one.
    pub(super) fn next(&mut self, is_capped: bool, now: Instant) -> Ask {
        if let Some(rest) = self.rest.take() {
            return rest;
        }
        let turn = TURNS[self.turn % TURNS.len()];
        self.turn += 1;
        match turn {
            Turn::Counts if is_capped && self.is_exact_due(now) => Ask::ExactCounts,
            Turn::Counts => Ask::Counts,
            Turn::Workers => Ask::Workers(None),
            Turn::Other => {
                self.others += 1;
                match self.others % 3 {
                    1 => Ask::Limits(None),
                    2 => Ask::Late,
                    _ => Ask::Time,
                }
            }
        }
    }

    fn is_exact_due(&self, now: Instant) -> bool {
        self.exact.is_none_or(|(at, took)| {
            now.duration_since(at) >= EXACT_EVERY.max(took.saturating_mul(EXACT_IDLE_RATIO))
        })
    }

    /// The list goes on with this question.
    pub(super) fn go_on(&mut self, rest: Ask) {
        self.rest = Some(rest);
    }

    /// Notes an exact count, answered or not.
    pub(super) fn note_exact(&mut self, at: Instant, took: Duration) {
        self.exact = Some((at, took));
    }

    /// How long to wait after a question.
    pub(super) fn pause(took: Duration, is_answered: bool) -> Duration {
        if is_answered { took.saturating_mul(IDLE_RATIO).clamp(SHORTEST, LONGEST) } else { RETRY }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn counts_are_asked_most_and_everything_within_half_a_minute() {
        let mut plan = Plan::default();
        let asked: Vec<_> = (0..30).map(|_| plan.next(false, Instant::now())).collect();
        let count = |ask: &Ask| asked.iter().filter(|it| *it == ask).count();
        assert_eq!((count(&Ask::Counts), count(&Ask::Workers(None))), (21, 6));
        assert_eq!((count(&Ask::Limits(None)), count(&Ask::Late), count(&Ask::Time)), (1, 1, 1));
        assert_eq!(asked[..3], [Ask::Counts, Ask::Workers(None), Ask::Limits(None)]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_exact_count_is_asked_for_once_in_a_while() {
        let mut plan = Plan::default();
        let mut exact = 0;
        for _ in 0..600 {
            if plan.next(true, Instant::now()) == Ask::ExactCounts {
                exact += 1;
                plan.note_exact(Instant::now(), Duration::from_millis(900));
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(exact, 4, "every 180 s, because it takes 0.9 s");
    }

    #[test]
    fn a_slow_store_is_asked_less_often() {
        let millis = Duration::from_millis;
        assert_eq!(Plan::pause(millis(3), true), SHORTEST);
        assert_eq!(Plan::pause(millis(400), true), Duration::from_secs(8));
        assert_eq!(Plan::pause(Duration::from_secs(60), true), LONGEST);
        assert_eq!(Plan::pause(Duration::from_secs(10), false), RETRY);
    }

    #[test]
    fn a_list_goes_on_before_anything_else_is_asked() {
        let mut plan = Plan::default();
        let rest = Ask::Workers(Some(Cursor::new("worker-1")));
        plan.go_on(rest.clone());
        plan.begin();
        assert_ne!(plan.rest, Some(rest.clone()), "a new look begins anew");
        plan.go_on(rest.clone());
        let now = Instant::now();
        assert_eq!(plan.next(false, now), rest);
    }
}
