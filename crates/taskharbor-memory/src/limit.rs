//! Limits of queues and holds: setting, declaring, showing.

use std::collections::{BTreeMap, BTreeSet};

use taskharbor_core::{
    QueueName, Timestamp,
    admin::{LaneStatus, LimitsDeclaration, LimitsRecord, ListLanes, Page, QueueLimits, Setting},
    error::{Denied, InvalidRequest},
    life::Stage,
    name::{LaneName, OwnerName},
};

use crate::{queue::Lane, store::Store};

impl Store {
    /// The limits of all queues that have some, by name.
    pub(crate) fn limit_records(&self) -> Vec<LimitsRecord> {
        let records = self.queues.iter().filter_map(|(_, queue)| {
            let (limits, owner) = queue.gate.set.clone()?;
            Some(LimitsRecord::new(queue.name.clone(), owner, limits))
        });
        let mut records: Vec<_> = records.collect();
        records.sort_by(|a, b| a.queue.cmp(&b.queue));
        records
    }

    pub(crate) fn limit_settings(&self) -> impl Iterator<Item = Setting> {
        self.limit_records().into_iter().map(|record| Setting::Limits(Box::new(record)))
    }

    fn limits_of(&self, queue: &QueueName) -> Option<LimitsRecord> {
        let at = *self.queue_ids.get(queue)?;
        let (limits, owner) = self.queues[at].gate.set.clone()?;
        Some(LimitsRecord::new(queue.clone(), owner, limits))
    }

    pub(crate) fn set_limits(
        &mut self,
        queue: QueueName,
        limits: Option<QueueLimits>,
    ) -> Result<(), Denied> {
        // LIM-8
        if let Some(stored) = self.limits_of(&queue) {
            stored.check_owner(None)?;
        }
        self.replace_limits(queue, limits.map(|limits| (limits, None)));
        Ok(())
    }

    fn replace_limits(
        &mut self,
        name: QueueName,
        limits: Option<(QueueLimits, Option<OwnerName>)>,
    ) {
        let at = self.queue(&name);
        let leases: Vec<_> = self
            .jobs
            .iter()
            .filter(|(_, entry)| entry.queue == at)
            .filter_map(|(slot, entry)| {
                let lease = entry.life.active_lease()?.lease;
                Some((entry.new.lane.clone(), lease.expires_at, slot))
            })
            .collect();
        // LIM-6
        self.queues[at].gate.set(limits, leases.into_iter());
        self.forget_if_idle(at);
        // WAK-3
        self.wakes.push(name);
    }

    pub(crate) fn declare_limits(&mut self, declaration: LimitsDeclaration) -> Result<(), Denied> {
        let owner = &declaration.owner;
        declaration.check_version(self.schedules.owners.get(owner).copied())?;
        for (queue, _) in &declaration.limits {
            if let Some(stored) = self.limits_of(queue) {
                stored.check_owner(Some(owner))?;
            }
        }
        let kept: BTreeSet<_> = declaration.limits.iter().map(|(queue, _)| queue.clone()).collect();
        for stored in self.limit_records() {
            if stored.owner.as_ref() == Some(owner) && !kept.contains(&stored.queue) {
                self.replace_limits(stored.queue, None);
            }
        }
        for (queue, limits) in declaration.limits {
            self.replace_limits(queue, Some((limits, Some(declaration.owner.clone()))));
        }
        self.set_owner_version(declaration.owner, declaration.version);
        Ok(())
    }

    pub(crate) fn import_limits(&mut self, record: LimitsRecord) -> Result<(), Denied> {
        match self.limits_of(&record.queue) {
            Some(stored) if stored == record => Ok(()),
            Some(_) => Err(Denied::LimitsExist(record.queue)),
            None => {
                self.replace_limits(record.queue, Some((record.limits, record.owner)));
                Ok(())
            }
        }
    }

    pub(crate) fn hold(
        &mut self,
        name: QueueName,
        lane: Option<LaneName>,
        until: Option<Timestamp>,
    ) {
        let at = self.queue(&name);
        self.queues[at].gate.hold(lane, until);
        self.forget_if_idle(at);
        if until.is_none() {
            // WAK-3
            self.wakes.push(name);
        }
    }

    /// Forgets charges and holds that ended long ago. RAT-5.
    pub(crate) fn forget_ended(&mut self, now: Timestamp) {
        for at in self.queues.iter().map(|(at, _)| at).collect::<Vec<_>>() {
            self.queues[at].gate.forget_ended(now);
            self.forget_if_idle(at);
        }
    }

    pub(crate) fn lanes(&self, request: &ListLanes) -> Result<Page<LaneStatus>, InvalidRequest> {
        let begin = request.begin()?;
        let Some(at) = self.queue_ids.get(&request.queue) else {
            return Ok(Page::new(Vec::new(), None));
        };
        let (queue, now) = (&self.queues[*at], request.now);
        // LAN-6
        let mut lanes: BTreeMap<Lane, (usize, usize)> = BTreeMap::new();
        for (_, lane, (at, _, slot)) in queue.places() {
            match self.jobs[*slot].life.stage {
                Stage::Inflight(_) => lanes.entry(lane.clone()).or_default().1 += 1,
                Stage::Waiting if *at <= now => lanes.entry(lane.clone()).or_default().0 += 1,
                _ => {}
            }
        }
        for lane in queue.gate.held_lanes(now) {
            lanes.entry(Some(lane.clone())).or_default();
        }
        if queue.gate.is_held(now) {
            lanes.entry(None).or_default();
        }
        let mut statuses = lanes
            .into_iter()
            .filter(|(lane, _)| begin.as_ref().is_none_or(|begin| lane > begin))
            .map(|(lane, (ready, inflight))| {
                let held_back = queue.gate.held_back(&lane, now);
                LaneStatus::new(lane, ready, inflight, held_back)
            });
        let page: Vec<_> = statuses.by_ref().take(request.limit).collect();
        let next = page.last().map(LaneStatus::cursor).filter(|_| statuses.next().is_some());
        Ok(Page::new(page, next))
    }
}
