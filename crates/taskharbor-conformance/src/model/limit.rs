//! Lanes, limits and rates: all of it is counted from the list of jobs, each time anew.

use std::collections::BTreeSet;

use taskharbor_core::{
    DriverError, QueueName, State, Timestamp,
    admin::{
        HeldBack, HeldJob, LaneStatus, LimitsDeclaration, LimitsRecord, ListLanes, Page,
        QueueLimits, Rate,
    },
    error::Denied,
    name::{LaneName, OwnerName},
};

use super::Model;

/// A lane of a queue; `None` for the jobs without one.
pub(crate) type Lane = Option<LaneName>;

/// The lane that had the last turn, and how many of its jobs were granted in it; `None` before the
/// first turn of all.
pub(crate) type Turn = Option<(Lane, u32)>;

/// What a limit, a rate or a hold is for: a lane of a queue, or the whole queue if `None`.
pub(crate) type Scope = (QueueName, Option<LaneName>);

impl Model {
    fn limits_of(&self, queue: &QueueName) -> Option<&LimitsRecord> {
        self.queue_limits.iter().find(|record| record.queue == *queue)
    }

    fn inflight_limit(&self, (queue, lane): &Scope) -> Option<u32> {
        let limits = &self.limits_of(queue)?.limits;
        let Some(lane) = lane else { return limits.inflight };
        match limits.lanes.get(lane).and_then(|own| own.inflight) {
            Some(own) => Some(own),
            None => limits.per_lane,
        }
    }

    fn rate(&self, (queue, lane): &Scope) -> Option<Rate> {
        let limits = &self.limits_of(queue)?.limits;
        let Some(lane) = lane else { return limits.rate };
        match limits.lanes.get(lane).and_then(|own| own.rate) {
            Some(own) => Some(own),
            None => limits.lane_rate,
        }
    }

    fn weight(&self, queue: &QueueName, lane: &Lane) -> u32 {
        let own = self.limits_of(queue).and_then(|it| it.limits.lanes.get(lane.as_ref()?));
        own.and_then(|own| own.weight).unwrap_or(1)
    }

    /// Forgets the charge and the hold of a queue or lane of which both ended an hour ago or earlier.
    pub(crate) fn forget_ended(&mut self, now: Timestamp) {
        let scopes: BTreeSet<Scope> =
            self.charged.keys().chain(self.holds.keys()).cloned().collect();
        for scope in scopes {
            let end = self.charged.get(&scope).max(self.holds.get(&scope)).copied();
            if end.is_some_and(|end| now.as_micros() - end.as_micros() >= 3_600_000_000) {
                self.charged.remove(&scope);
                self.holds.remove(&scope);
            }
        }
    }

    /// How many leases are valid in a queue or lane.
    pub(crate) fn valid_leases(&self, (queue, lane): &Scope, now: Timestamp) -> usize {
        let in_queue = self.jobs.iter().filter(|job| job.new.queue == *queue);
        let in_scope = in_queue.filter(|job| lane.is_none() || job.new.lane == *lane);
        let leases = in_scope.filter_map(|job| job.life.active_lease());
        leases.filter(|held| now < held.lease.expires_at).count()
    }

    /// The first instant at which the rate allows a job; a rate that is not charged allows one at
    /// any time.
    fn rate_allows_at(&self, scope: &Scope) -> Option<Timestamp> {
        let (rate, tat) = (self.rate(scope)?, *self.charged.get(scope)?);
        let early = interval(rate) * (i128::from(rate.burst) - 1);
        let at = (i128::from(tat.as_micros()) - early).max(0);
        Timestamp::from_micros(i64::try_from(at).ok()?).ok()
    }

    /// All that holds back jobs of a queue or lane.
    fn reasons(&self, scope: &Scope, now: Timestamp) -> Vec<HeldBack> {
        let mut reasons = Vec::new();
        if let Some(&until) = self.holds.get(scope)
            && now < until
        {
            reasons.push(HeldBack::OnHold { until });
        }
        if let Some(limit) = self.inflight_limit(scope) {
            let inflight = self.valid_leases(scope, now);
            if u32::try_from(inflight).is_ok_and(|inflight| inflight >= limit) {
                reasons.push(HeldBack::Full { inflight, limit });
            }
        }
        if let Some(next) = self.rate_allows_at(scope)
            && now < next
        {
            reasons.push(HeldBack::Rate { next });
        }
        reasons
    }

    /// All that holds back a job of this lane: what is of the queue, then what is of the lane.
    fn all_reasons(&self, queue: &QueueName, lane: &Lane, now: Timestamp) -> Vec<HeldJob> {
        let of_queue = self.reasons(&(queue.clone(), None), now);
        let of_lane =
            lane.iter().flat_map(|lane| self.reasons(&(queue.clone(), Some(lane.clone())), now));
        let of_queue = of_queue.into_iter().map(|why| HeldJob::new(false, why));
        of_queue.chain(of_lane.map(|why| HeldJob::new(true, why))).collect()
    }

    pub(crate) fn held_back(
        &self,
        queue: &QueueName,
        lane: &Lane,
        now: Timestamp,
    ) -> Option<HeldJob> {
        self.all_reasons(queue, lane, now).into_iter().next()
    }

    /// When time alone lets a job of a lane go that is held back now. If it is for want of a place,
    /// the end of a lease has to come first, and that is waited for anyway.
    pub(crate) fn freed_at(
        &self,
        queue: &QueueName,
        lane: &Lane,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let reasons = self.all_reasons(queue, lane, now);
        let instants: Option<Vec<_>> = reasons.iter().map(|held| held.why.until()).collect();
        instants?.into_iter().max()
    }

    /// Until when rates and holds of a queue let nothing go.
    pub(crate) fn closed_until(&self, queue: &QueueName, now: Timestamp) -> Option<Timestamp> {
        let of_queue = self.reasons(&(queue.clone(), None), now);
        of_queue.iter().filter_map(taskharbor_core::admin::HeldBack::until).max()
    }

    /// The lanes of these jobs from which a job may be granted.
    fn open_lanes(&self, queue: &QueueName, jobs: &[usize], now: Timestamp) -> BTreeSet<Lane> {
        let lanes: BTreeSet<Lane> = jobs.iter().map(|&at| self.jobs[at].new.lane.clone()).collect();
        lanes.into_iter().filter(|lane| self.held_back(queue, lane, now).is_none()).collect()
    }

    /// The lane from which the next of these available jobs comes, and its priority.
    pub(crate) fn next_lane(
        &self,
        queue: &QueueName,
        turn: &Turn,
        available: &[usize],
        now: Timestamp,
    ) -> Option<(i16, Lane)> {
        let open = self.open_lanes(queue, available, now);
        let jobs = available.iter().map(|&at| &self.jobs[at]);
        let jobs: Vec<_> = jobs.filter(|job| open.contains(&job.new.lane)).collect();
        let priority = jobs.iter().map(|job| job.life.priority).max()?;
        let jobs = jobs.iter().filter(|job| job.life.priority == priority);
        let mut lanes: Vec<&Lane> = jobs.map(|job| &job.new.lane).collect();
        lanes.sort();
        let first = match turn {
            None => lanes.first(),
            Some((last, used)) => {
                let goes_on = *used < self.weight(queue, last);
                let ahead = |lane: &&&Lane| **lane > last || goes_on && **lane == last;
                lanes.iter().find(ahead).or_else(|| lanes.first())
            }
        };
        first.map(|lane| (priority, (*lane).clone()))
    }

    /// Those of these jobs that have this priority and lane.
    pub(crate) fn of_lane(&self, jobs: &[usize], priority: i16, lane: &Lane) -> Vec<usize> {
        let is_there = |at: &usize| {
            let job = &self.jobs[*at];
            job.life.priority == priority && job.new.lane == *lane
        };
        jobs.iter().copied().filter(is_there).collect()
    }

    /// The turn after a job of this lane was granted.
    pub(crate) fn turn_after(&self, queue: &QueueName, turn: &Turn, lane: &Lane) -> Turn {
        match turn {
            Some((last, used)) if last == lane && *used < self.weight(queue, lane) => {
                Some((lane.clone(), used + 1))
            }
            _ => Some((lane.clone(), 1)),
        }
    }

    /// The turns that a queue may be at: one, unless a driver was free to forget it.
    pub(crate) fn turns_of(&self, queue: &QueueName) -> BTreeSet<Turn> {
        self.turns.get(queue).cloned().unwrap_or_else(|| BTreeSet::from([None]))
    }

    /// A driver may forget the turn of a queue that has no jobs.
    pub(crate) fn forget_turns(&mut self) {
        for (queue, turns) in &mut self.turns {
            if self.jobs.iter().all(|job| job.new.queue != *queue) {
                turns.insert(None);
            }
        }
    }

    /// Charges the grant of a job of this lane to the rates.
    pub(crate) fn charge(&mut self, queue: &QueueName, lane: &Lane, now: Timestamp) {
        let of_lane = lane.iter().map(|lane| (queue.clone(), Some(lane.clone())));
        for scope in std::iter::once((queue.clone(), None)).chain(of_lane) {
            let Some(rate) = self.rate(&scope) else { continue };
            let from = self.charged.get(&scope).copied().unwrap_or(now).max(now);
            let tat = i128::from(from.as_micros()) + interval(rate);
            let tat = i64::try_from(tat).ok().and_then(|tat| Timestamp::from_micros(tat).ok());
            self.charged.insert(scope, tat.unwrap_or(Timestamp::MAX));
        }
    }

    /// The instants at which holds end and rates allow the next job.
    pub(crate) fn limit_instants(&self) -> impl Iterator<Item = Timestamp> {
        let rates = self.charged.keys().filter_map(|scope| self.rate_allows_at(scope));
        rates.chain(self.holds.values().copied())
    }

    pub(crate) fn set_limits(
        &mut self,
        queue: QueueName,
        limits: Option<QueueLimits>,
        owner: Option<&OwnerName>,
    ) -> Result<(), Denied> {
        if let Some(stored) = self.limits_of(&queue)
            && stored.owner.as_ref() != owner
        {
            return Err(Denied::LimitsOwned { queue, owner: stored.owner.clone() });
        }
        self.queue_limits.retain(|record| record.queue != queue);
        match limits {
            Some(limits) => {
                self.queue_limits.push(LimitsRecord::new(queue, owner.cloned(), limits));
            }
            None => self.charged.retain(|scope, _| scope.0 != queue),
        }
        Ok(())
    }

    /// Declares on a copy, which takes the place of the model if nothing was denied.
    pub(crate) fn declare_limits(&mut self, declaration: LimitsDeclaration) -> Result<(), Denied> {
        let LimitsDeclaration { owner, version, limits, .. } = declaration;
        self.check_version(&owner, version)?;
        let mut after = self.clone();
        let declared = |queue: &_| limits.iter().any(|(name, _)| name == queue);
        let owned = self.queue_limits.iter().filter(|it| it.owner.as_ref() == Some(&owner));
        for record in owned.filter(|it| !declared(&it.queue)) {
            after.set_limits(record.queue.clone(), None, Some(&owner))?;
        }
        for (queue, limits) in limits {
            after.set_limits(queue, Some(limits), Some(&owner))?;
        }
        after.set_version(owner, version);
        *self = after;
        Ok(())
    }

    pub(crate) fn import_limits(&mut self, record: LimitsRecord) -> Result<(), Denied> {
        match self.limits_of(&record.queue) {
            Some(stored) if *stored == record => Ok(()),
            Some(_) => Err(Denied::LimitsExist(record.queue)),
            None => {
                self.queue_limits.push(record);
                Ok(())
            }
        }
    }

    pub(crate) fn hold(&mut self, scope: Scope, until: Option<Timestamp>) {
        match until {
            Some(until) => {
                let held = self.holds.entry(scope).or_insert(until);
                *held = (*held).max(until);
            }
            None => {
                self.holds.remove(&scope);
            }
        }
    }

    pub(crate) fn lanes(&self, request: &ListLanes) -> Result<Page<LaneStatus>, DriverError> {
        request.check()?;
        let (begin, queue, now) = (request.begin()?, &request.queue, request.now);
        let count = |lane: &Lane, state: State| {
            let in_lane =
                self.jobs.iter().filter(|job| job.new.queue == *queue && job.new.lane == *lane);
            in_lane.filter(|job| job.life.state(now) == state).count()
        };
        let of_jobs = self.jobs.iter().filter(|job| job.new.queue == *queue);
        let of_jobs = of_jobs.map(|job| job.new.lane.clone());
        let held = self.holds.iter().filter(|((name, _), until)| name == queue && now < **until);
        let held: BTreeSet<Lane> = held.map(|((_, lane), _)| lane.clone()).collect();
        let lanes: BTreeSet<Lane> = of_jobs.chain(held.iter().cloned()).collect();
        let shown = lanes.into_iter().filter_map(|lane| {
            let (ready, inflight) = (count(&lane, State::Ready), count(&lane, State::Inflight));
            let is_shown = ready + inflight > 0 || held.contains(&lane);
            let held_back = self.held_back(queue, &lane, now);
            is_shown.then(|| LaneStatus::new(lane, ready, inflight, held_back))
        });
        let mut left: Vec<LaneStatus> = shown.collect();
        left.retain(|status| begin.as_ref().is_none_or(|begin| status.lane > *begin));
        let is_last = left.len() <= request.limit;
        left.truncate(request.limit);
        let next = left.last().map(LaneStatus::cursor).filter(|_| !is_last);
        Ok(Page::new(left, next))
    }
}

/// The time from one job to the next, in microseconds, rounded up.
fn interval(rate: Rate) -> i128 {
    let per = i128::try_from(rate.per.as_micros()).unwrap_or(i128::MAX);
    let jobs = i128::from(rate.jobs);
    per / jobs + i128::from(per % jobs > 0)
}
