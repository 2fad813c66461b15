//! The queues, their lanes and their limits, and random ones of all of these.

use std::time::Duration;

use fastrand::Rng;
use taskharbor_core::{
    JobId, JobType, NewJob, QueueName, Timestamp,
    admin::{LaneLimits, QueueLimits, Rate},
    name::{LaneName, NameError},
};

use super::history::Lane;

/// A queue by what limits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The number of inflight jobs of the queue.
    Narrow,
    /// The number of inflight jobs of each lane, and of the queue.
    Lanes,
    /// Nothing, but lanes have weights.
    Weighted,
    /// Rates of the queue and of a lane.
    Rated,
    /// Nothing at all.
    Free,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] =
        [Self::Narrow, Self::Lanes, Self::Weighted, Self::Rated, Self::Free];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Narrow => "narrow",
            Self::Lanes => "lanes",
            Self::Weighted => "weighted",
            Self::Rated => "rated",
            Self::Free => "free",
        }
    }

    pub(crate) fn queue(self) -> Result<QueueName, NameError> {
        QueueName::new(self.name())
    }

    /// How many of a hundred jobs are in the queue. Those with few places are slow.
    const fn share(self) -> u8 {
        match self {
            Self::Narrow => 6,
            Self::Rated => 10,
            Self::Lanes => 20,
            Self::Weighted => 34,
            Self::Free => 30,
        }
    }

    fn random(random: &mut Rng) -> Self {
        let mut left = random.u8(..100);
        for kind in Self::ALL {
            match left.checked_sub(kind.share()) {
                Some(rest) => left = rest,
                None => return kind,
            }
        }
        Self::Free
    }

    /// Random limits; `None` for a queue without.
    pub(crate) fn limits(self, random: &mut Rng) -> Option<QueueLimits> {
        let mut few = || random.u32(1..=5);
        match self {
            Self::Narrow => Some(QueueLimits::new().inflight(few())),
            Self::Lanes => {
                let own = LaneLimits::new().inflight(few());
                Some(QueueLimits::new().per_lane(few()).inflight(2 + 2 * few()).lane(OWN, own))
            }
            Self::Weighted => {
                let mut limits = QueueLimits::new();
                for (lane, max) in HEAVY {
                    limits = limits.weight(lane, random.u32(1..=max));
                }
                Some(limits)
            }
            Self::Rated => {
                let per_second = 100 * random.u32(2..=8);
                let second = Duration::from_secs(1);
                let rate = Rate::per(per_second, second).burst(random.u32(1..=30));
                let own = Rate::per(100, second).burst(random.u32(1..=10));
                Some(QueueLimits::new().rate(rate).lane(OWN, LaneLimits::new().rate(own)))
            }
            Self::Free => None,
        }
    }

    /// The limits under which places are counted at the end.
    pub(crate) fn final_limits(self) -> Option<QueueLimits> {
        match self {
            Self::Narrow => Some(QueueLimits::new().inflight(3)),
            Self::Lanes => Some(QueueLimits::new().per_lane(2)),
            Self::Weighted | Self::Rated | Self::Free => None,
        }
    }

    /// The most jobs that a round of all turns can have. `None` where the lane may get nothing by right:
    /// it has a limit of its own, or the jobs of its queue have priorities.
    pub(crate) fn round(self, lane: &Lane) -> Option<usize> {
        let lanes = LANES.len() + 1;
        match self {
            Self::Rated if lane.as_ref().is_some_and(|lane| lane.as_str() == OWN) => None,
            Self::Narrow | Self::Rated | Self::Free => Some(lanes),
            Self::Weighted => {
                Some(HEAVY.into_iter().fold(lanes, |sum, (_, max)| sum + max as usize - 1))
            }
            Self::Lanes => None,
        }
    }
}

const LANES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// The lane with limits of its own.
const OWN: &str = "a";
/// Lanes with weights, and the greatest of each.
const HEAVY: [(&str, u32); 2] = [("b", 3), ("d", 2)];

/// A lane of any queue. Some jobs have none.
pub(crate) fn lane(random: &mut Rng) -> Result<Lane, NameError> {
    match random.usize(..=LANES.len()) {
        0 => Ok(None),
        at => LaneName::new(LANES[at - 1]).map(Some),
    }
}

/// Makes jobs with ids that no other maker has.
pub(crate) struct Maker {
    task: usize,
    made: usize,
}

impl Maker {
    pub(crate) const fn new(task: usize) -> Self {
        Self { task, made: 0 }
    }

    /// A job of a random queue and lane; every eighth has to wait for its time.
    pub(crate) fn job(&mut self, random: &mut Rng, now: Timestamp) -> Result<NewJob, NameError> {
        let kind = Kind::random(random);
        let job = self.job_of(kind, lane(random)?)?;
        let job = if kind == Kind::Lanes { job.priority(random.i16(0..3)) } else { job };
        Ok(match random.u8(..8) {
            0 => job.run_at(now.saturating_add(Duration::from_millis(random.u64(1..400)))),
            _ => job,
        })
    }

    /// A job of this queue and lane.
    pub(crate) fn job_of(&mut self, kind: Kind, lane: Lane) -> Result<NewJob, NameError> {
        self.made += 1;
        let id = JobId::new(format!("{}-{}", self.task, self.made))?;
        let payload = id.as_str().as_bytes().to_vec();
        let job = NewJob::new(id, kind.queue()?, JobType::new("chaos")?, payload);
        Ok(match lane {
            Some(lane) => job.lane(lane),
            None => job,
        })
    }
}
