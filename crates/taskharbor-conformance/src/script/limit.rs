//! The steps of a script that are about limits, holds and lanes.

use taskharbor_core::{
    Admin, AnyDriver, DriverError, Timestamp,
    admin::{
        Change, Configure, LimitsDeclaration, LimitsRecord, ListLanes, ListSettings, Setting,
        SettingKind,
    },
};

use super::{
    LimitPlan,
    compare::same,
    plan::{lane_name, queue_name, seconds_from},
    replay::Replay,
    schedule::owner_name,
};

impl Replay<'_> {
    pub(super) async fn change_limits(
        &mut self,
        plans: &[LimitPlan],
        now: Timestamp,
    ) -> Result<(), String> {
        let changes: Vec<_> = plans.iter().map(|plan| change(plan, now)).collect();
        self.configure_as((changes.clone(), changes), now).await
    }

    /// Reads the lanes of a queue to their end, in pages of this size.
    pub(super) async fn lanes(
        &self,
        queue: u8,
        limit: usize,
        now: Timestamp,
    ) -> Result<(), String> {
        let mut request = ListLanes::new(queue_name(queue), limit, now);
        loop {
            let failed = |error: DriverError| error.to_string();
            let page = self.driver.lanes(request.clone()).await.map_err(failed)?;
            let expected = self.model.lanes(&request).map_err(failed)?;
            same(&format!("lanes {request:?}"), &page.items, &expected.items)?;
            same("lanes: another page", &page.next.is_some(), &expected.next.is_some())?;
            match page.next {
                Some(cursor) => request = request.after(cursor),
                None => return Ok(()),
            }
        }
    }

    /// Limits are moved to another store as settings are, and moving them again changes nothing.
    pub(super) async fn move_limits(&self, target: &AnyDriver) -> Result<(), String> {
        let failed = |error: DriverError| error.to_string();
        let limits = ListSettings::new(1_000).kind(SettingKind::Limits);
        let stored = self.driver.settings(limits.clone()).await.map_err(failed)?.items;
        for _ in 0..2 {
            let imports = stored.iter().filter_map(|setting| match setting {
                Setting::Limits(record) => Some(Change::ImportLimits(record.clone())),
                _ => None,
            });
            let request = Configure::new(imports.collect(), Timestamp::MAX);
            let answers = target.configure(request).await.map_err(failed)?;
            same("import of limits", &answers, &vec![Ok(()); stored.len()])?;
        }
        let moved = target.settings(limits).await.map_err(failed)?.items;
        same("limits that were imported", &moved, &stored)
    }

    /// Removes all limits and ends all holds.
    pub(super) async fn wipe_limits(&mut self) -> Result<(), String> {
        let records = self.model.queue_limits.iter();
        let removed = records.map(|record| match record.owner.clone() {
            Some(owner) => Change::DeclareLimits(LimitsDeclaration::new(owner, None, Vec::new())),
            None => Change::SetLimits { queue: record.queue.clone(), limits: None },
        });
        let ended = self.model.holds.keys().cloned();
        let ended = ended.map(|(queue, lane)| Change::Hold { queue, lane, until: None });
        let changes: Vec<_> = removed.chain(ended).collect();
        self.configure_as((changes.clone(), changes), Timestamp::MAX).await
    }
}

fn change(plan: &LimitPlan, now: Timestamp) -> Change {
    match plan {
        LimitPlan::Set(queue, limits) => {
            Change::SetLimits { queue: queue_name(*queue), limits: limits.clone() }
        }
        LimitPlan::Declare(owner, version, limits) => {
            let limits = limits.iter().map(|(queue, limits)| (queue_name(*queue), limits.clone()));
            let (owner, limits) = (owner_name(*owner), limits.collect());
            Change::DeclareLimits(LimitsDeclaration::new(owner, *version, limits))
        }
        LimitPlan::Import(queue, owner, limits) => {
            let (queue, owner) = (queue_name(*queue), owner.map(owner_name));
            Change::ImportLimits(Box::new(LimitsRecord::new(queue, owner, limits.clone())))
        }
        LimitPlan::Hold(queue, lane, until) => Change::Hold {
            queue: queue_name(*queue),
            lane: lane.map(lane_name),
            until: until.map(|offset| seconds_from(now, offset)),
        },
    }
}
