//! For every promise that is checked, a history that breaks it, which must be reported.

use std::time::Duration;

use taskharbor_core::{
    JobId, QueueName, State, Timestamp,
    admin::{LaneLimits, QueueLimits, Rate},
    driver::LeaseToken,
    name::LaneName,
};

use super::{
    super::history::{Closing, Closure, Grant, History, Lane, LimitChange, Moment, Places, Stored},
    Verdict,
};

fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

fn lane(name: &str) -> Lane {
    LaneName::new(name).ok()
}

fn at(millis: u64) -> Timestamp {
    Timestamp::EPOCH.saturating_add(Duration::from_millis(millis))
}

/// Calls, one after another. The place of a call in the order is ten times its time, and its answer comes
/// with the next place.
#[derive(Default)]
struct Story {
    history: History,
    queue: &'static str,
    tokens: u64,
}

impl Story {
    fn of(queue: &'static str) -> Self {
        Self { queue, ..Self::default() }
    }

    fn limits(mut self, millis: u64, limits: QueueLimits) -> Self {
        let (sent, answered) = (millis * 10, millis * 10 + 1);
        let queue = queue(self.queue);
        self.history.changes.push(LimitChange { queue, limits, sent, answered });
        self
    }

    /// A job that was stored at this time.
    fn put(mut self, millis: u64, job: &str, lane: Lane) -> Self {
        let acknowledged = Moment { order: millis * 10 + 1, at: at(millis) };
        let queue = queue(self.queue);
        let stored = Stored { queue, lane, acknowledged, is_due: true };
        let id = JobId::new(job).unwrap();
        self.history.states.insert(id.clone(), State::Done);
        self.history.jobs.insert(id, stored);
        self
    }

    /// A lease of 100 ms.
    fn grant(mut self, millis: u64, job: &str) -> Self {
        let id = JobId::new(job).unwrap();
        let stored = &self.history.jobs[&id];
        let moment = |order| Moment { order, at: at(millis) };
        let grant = Grant {
            queue: stored.queue.clone(),
            lane: stored.lane.clone(),
            delivery: 1,
            sent: moment(millis * 10),
            answered: moment(millis * 10 + 1),
            expires_at: at(millis + 100),
            ended: None,
            job: id,
        };
        self.tokens += 1;
        self.history.add_grant(grant, LeaseToken::from_bits(self.tokens.into()));
        self
    }

    /// Stores and grants jobs at these times.
    fn grants(self, times: &[u64], lane: &Lane) -> Self {
        let first = self.history.jobs.len();
        times.iter().enumerate().fold(self, |story, (at, millis)| {
            let job = format!("job-{}", first + at);
            story.put(0, &job, lane.clone()).grant(*millis, &job)
        })
    }

    /// The lease of this number is ended.
    fn end(mut self, millis: u64, number: u64) -> Self {
        self.history.end(LeaseToken::from_bits(number.into()), millis * 10);
        self
    }

    fn close(mut self, millis: u64, lane: Lane, how: Closing) -> Self {
        let (sent, answered) = (millis * 10, millis * 10 + 1);
        let queue = queue(self.queue);
        self.history.closures.push(Closure { queue, lane, how, sent, answered, reopened: None });
        self
    }

    fn reopen(mut self, millis: u64, lane: &Lane) -> Self {
        let queue = queue(self.queue);
        self.history.reopen((&queue, lane), |_| true, (millis * 10, millis * 10 + 1));
        self
    }

    fn places(mut self, limit: usize, granted: usize) -> Self {
        let queue = queue(self.queue);
        self.history.places.push(Places { queue, lane: None, limit, granted });
        self
    }

    fn problems(&self) -> Vec<String> {
        Verdict::of(&self.history, 1).problems
    }

    #[track_caller]
    fn is_fine(&self) {
        assert_eq!(self.problems(), [""; 0]);
    }

    #[track_caller]
    fn is_reported(&self, words: &str) {
        let problems = self.problems();
        assert!(problems.iter().any(|problem| problem.contains(words)), "{problems:?}");
    }
}

fn narrow(limit: u32) -> Story {
    Story::of("narrow").limits(1, QueueLimits::new().inflight(limit))
}

#[test]
fn a_queue_has_no_more_leases_than_its_limit() {
    narrow(2).grants(&[10, 20], &None).is_fine();
    narrow(2).grants(&[10, 20, 30], &None).is_reported("3 leases are surely held");
    narrow(2).grants(&[10, 20], &None).end(25, 1).grants(&[30], &None).is_fine();
    narrow(2).grants(&[10, 20, 110], &None).is_fine();
    narrow(2).grants(&[10, 20, 109], &None).is_reported("and the limit is 2");
}

#[test]
fn a_lane_has_no_more_leases_than_its_limit() {
    let limits = QueueLimits::new().per_lane(1).lane("a", LaneLimits::new().inflight(2));
    let story = || Story::of("lanes").limits(1, limits.clone());
    story().grants(&[10, 20], &lane("a")).grants(&[30], &lane("b")).is_fine();
    story().grants(&[10, 20], &None).is_fine();
    story().grants(&[10, 20, 30], &lane("a")).is_reported("lane a of queue lanes: 3 leases");
    story().grants(&[10, 20], &lane("b")).is_reported("lane b of queue lanes: 2 leases");
}

#[test]
fn a_lowered_limit_holds_for_leases_that_are_granted_later() {
    let lowered = || {
        let story = narrow(3).grants(&[10, 20, 30], &None);
        story.limits(40, QueueLimits::new().inflight(1))
    };
    lowered().is_fine();
    lowered().end(45, 1).end(45, 2).end(45, 3).grants(&[50], &None).is_fine();
    // One that was granted before counts.
    lowered().end(45, 1).end(45, 2).grants(&[50], &None).is_reported("2 leases are surely held");
    lowered().limits(45, QueueLimits::new().inflight(5)).grants(&[50, 60], &None).is_fine();
}

#[test]
fn a_job_has_one_lease_at_a_time() {
    let story = || narrow(5).put(0, "a", None).grant(10, "a");
    story().grant(110, "a").is_fine();
    story().grant(109, "a").is_reported("granted again before its lease ended");
    story().end(20, 1).grant(30, "a").is_fine();
    // A lease from 10 to 110 whose answer comes after that of the next one.
    let mut late = narrow(5).put(0, "a", None).grant(110, "a").grant(10, "a");
    late.history.grants[1].answered = Moment { order: 1_105, at: at(111) };
    late.is_fine();
}

#[test]
fn a_rate_allows_a_burst_and_then_one_job_for_each_interval() {
    let rate = Rate::per(100, Duration::from_secs(1)).burst(3);
    let story = || Story::of("rated").limits(1, QueueLimits::new().rate(rate));
    story().grants(&[10, 10, 10, 20, 30, 41], &None).is_fine();
    story().grants(&[10, 10, 10, 10], &None).is_reported("4 grants within 0 µs");
    story().grants(&[10, 10, 10, 20, 29], &None).is_reported("5 grants within 19000 µs");
    // Idle time gives no more than a burst.
    story().grants(&[10, 500, 500, 500, 501], &None).is_reported("4 grants within 1000 µs");
    let changed = story().grants(&[10, 10, 10], &None).limits(11, QueueLimits::new().rate(rate));
    changed.grants(&[12, 12, 12], &None).is_fine();
}

#[test]
fn a_lane_has_a_rate_of_its_own() {
    let rate = |jobs| Rate::per(jobs, Duration::from_secs(1));
    let limits =
        QueueLimits::new().lane_rate(rate(10)).lane("a", LaneLimits::new().rate(rate(100)));
    let story = || Story::of("rated").limits(1, limits.clone());
    story().grants(&[10, 20], &lane("a")).grants(&[30, 130], &lane("b")).is_fine();
    story().grants(&[10, 19], &lane("a")).is_reported("lane a of queue rated: 2 grants");
    story().grants(&[10, 109], &lane("b")).is_reported("lane b of queue rated: 2 grants");
}

#[test]
fn a_closed_queue_or_lane_grants_nothing() {
    let free = || Story::of("free");
    let paused = || free().close(10, None, Closing::Pause);
    paused().grants(&[20], &None).is_reported("granted while queue free is paused");
    paused().reopen(15, &None).grants(&[20], &None).is_fine();
    let held = || free().close(10, lane("a"), Closing::Hold(at(50)));
    held().grants(&[20], &lane("a")).is_reported("while lane a of queue free is on hold");
    held().grants(&[50], &lane("a")).is_fine();
    held().grants(&[20], &lane("b")).is_fine();
    held().reopen(15, &lane("a")).grants(&[20], &lane("a")).is_fine();
    free()
        .close(10, None, Closing::Hold(at(50)))
        .grants(&[20], &lane("b"))
        .is_reported("is on hold");
}

#[test]
fn no_lane_starves() {
    // A queue with seven lanes: four rounds are 28 jobs.
    let times = |count: u64| (0..count).map(|it| 20 + it).collect::<Vec<_>>();
    let story = |count| {
        let story = Story::of("free").put(10, "small", lane("b"));
        story.grants(&times(count), &lane("a")).grant(900, "small")
    };
    story(28).is_fine();
    story(29).is_reported("lane b of queue free: 29 jobs of other lanes");
    // A lane on hold has to wait.
    let until = Closing::Hold(at(100));
    let held = Story::of("free").put(10, "small", lane("b")).close(11, lane("b"), until);
    held.grants(&times(29), &lane("a")).grant(900, "small").is_fine();
    let over = Story::of("free").close(1, lane("b"), Closing::Hold(at(5)));
    let over = over.put(10, "small", lane("b")).grants(&times(29), &lane("a"));
    over.grant(900, "small").is_reported("29 jobs of other lanes");
    // Another job of the lane had its turn.
    let turn = Story::of("free").put(10, "small", lane("b")).put(10, "other", lane("b"));
    let turn = turn.grants(&times(15), &lane("a")).grant(40, "other");
    turn.grants(&(50..65).collect::<Vec<_>>(), &lane("a")).grant(900, "small").is_fine();
}

#[test]
fn a_job_has_to_end_in_its_lane() {
    let story = || Story::of("free").put(0, "a", lane("x"));
    let id = JobId::new("a").unwrap();
    let mut ready = story();
    ready.history.states.insert(id.clone(), State::Ready);
    ready.is_reported("a: ready after everything was drained");
    let mut gone = story();
    gone.history.states.clear();
    gone.is_reported("a: acknowledged, and is not stored");
    let mut unknown = story().grant(10, "a");
    unknown.history.jobs.clear();
    unknown.is_reported("a: granted, and was not enqueued");
    unknown.is_reported("a: stored, and was not enqueued");
    let mut moved = story().grant(10, "a");
    moved.history.grants[0].lane = lane("y");
    moved.is_reported("a: granted in another queue or lane");
}

#[test]
fn a_place_is_not_lost() {
    narrow(3).places(3, 3).is_fine();
    narrow(3).places(3, 2).is_reported("queue narrow: 2 of 3 places are free at the end");
    narrow(3).places(3, 4).is_reported("4 of 3 places");
}
