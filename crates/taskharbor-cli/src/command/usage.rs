//! The usage of the limits of a queue, and the lanes that are held back.

use std::collections::HashMap;

use taskharbor::{
    Admin, AnyDriver, Filter, List, QueueCounts, QueueName, State, Timestamp, explain::held,
};
use taskharbor_core::{
    admin::{
        HeldBack, HeldJob, LaneStatus, LimitsRecord, ListLanes, ListSettings, Setting, SettingKind,
    },
    driver::Limits,
    name::LaneName,
};

use super::queue::limit;
use crate::{
    clean,
    failure::Outcome,
    screen::{Screen, counted, relative},
};

/// The most lanes of a queue that are looked at, and that are shown to people and to programs.
const LOOKED_AT: usize = 200;
const SHOWN: usize = 3;
const LISTED: usize = 20;
/// With this many ready jobs, the lanes of a queue are not read: they would all be counted.
const MANY: usize = 100_000;
/// How many records are looked at for one of those jobs.
const SCANNED: usize = 1_000;

/// How much of its limits a queue uses.
pub(crate) struct QueueUsage {
    pub(crate) limits: Option<LimitsRecord>,
    /// What holds every job of the queue back.
    pub(crate) held_back: Option<HeldJob>,
    /// The first lanes that hold ready jobs back by themselves, or are on hold.
    pub(crate) held_lanes: Vec<LaneStatus>,
    /// Whether more lanes may be held back than those.
    pub(crate) has_more: bool,
}

/// The stored limits of a queue, if it has some.
pub(crate) async fn limits_of(
    driver: &AnyDriver,
    queue: &QueueName,
) -> Outcome<Option<LimitsRecord>> {
    let request = ListSettings::new(1).kind(SettingKind::Limits).name(queue.as_str());
    Ok(driver.settings(request).await?.items.into_iter().find_map(record))
}

fn record(setting: Setting) -> Option<LimitsRecord> {
    match setting {
        Setting::Limits(record) => Some(*record),
        _ => None,
    }
}

async fn all_limits(driver: &AnyDriver) -> Outcome<HashMap<QueueName, LimitsRecord>> {
    let mut request = ListSettings::new(Limits::MAX_PAGE).kind(SettingKind::Limits);
    let mut all = HashMap::new();
    loop {
        let page = driver.settings(request.clone()).await?;
        all.extend(page.items.into_iter().filter_map(record).map(|it| (it.queue.clone(), it)));
        match page.next {
            Some(next) => request = request.after(next),
            None => return Ok(all),
        }
    }
}

/// The usage of those queues that have limits or hold jobs back. `at_most` is where counting their jobs
/// has stopped.
pub(crate) async fn of(
    driver: &AnyDriver,
    queues: &[QueueCounts],
    at_most: Option<usize>,
    now: Timestamp,
) -> Outcome<HashMap<QueueName, QueueUsage>> {
    let many = at_most.unwrap_or(MANY).min(MANY);
    let mut limits = all_limits(driver).await?;
    let mut usages = HashMap::new();
    for queue in queues {
        let name = &queue.queue;
        let limits = limits.remove(name);
        // Lanes of a queue without limits can only be on hold, which matters to jobs that wait.
        if limits.is_none() && queue.states.ready == 0 {
            continue;
        }
        let usage = if queue.states.ready >= many {
            QueueUsage::glance(driver, name, limits, now).await?
        } else {
            QueueUsage::look(driver, name, limits, now).await?
        };
        if usage.limits.is_some() || usage.held_back.is_some() || !usage.held_lanes.is_empty() {
            usages.insert(name.clone(), usage);
        }
    }
    Ok(usages)
}

impl QueueUsage {
    async fn look(
        driver: &AnyDriver,
        queue: &QueueName,
        limits: Option<LimitsRecord>,
        now: Timestamp,
    ) -> Outcome<Self> {
        let page = driver.lanes(ListLanes::new(queue.clone(), LOOKED_AT, now)).await?;
        let by_queue = |it: &LaneStatus| it.held_back.filter(|held| !held.by_lane);
        let held_back = page.items.iter().find_map(by_queue);
        let is_held = |it: &LaneStatus| match it.held_back {
            Some(HeldJob { by_lane: true, why: HeldBack::OnHold { .. }, .. }) => true,
            Some(HeldJob { by_lane, .. }) => by_lane && it.ready > 0,
            None => false,
        };
        let mut held_lanes = page.items;
        held_lanes.retain(is_held);
        let has_more = page.next.is_some() || held_lanes.len() > LISTED;
        held_lanes.truncate(LISTED);
        Ok(Self { limits, held_back, held_lanes, has_more })
    }

    /// What holds the newest ready job back: of a queue in which too many are ready to look at all lanes.
    async fn glance(
        driver: &AnyDriver,
        queue: &QueueName,
        limits: Option<LimitsRecord>,
        now: Timestamp,
    ) -> Outcome<Self> {
        let ready = Filter::all().queue(queue.clone()).state(State::Ready);
        let page = driver.list(List::new(ready, 1, now).newest_first().scan(SCANNED)).await?;
        let record = match page.items.into_iter().next() {
            Some(job) => driver.inspect(job.id, now).await?,
            None => None,
        };
        let held_back = record.and_then(|it| it.held_back).filter(|held| !held.by_lane);
        let has_more = limits.is_some();
        Ok(Self { limits, held_back, held_lanes: Vec::new(), has_more })
    }

    /// A line about the queue, and one for each of the first lanes that are held back.
    pub(crate) fn lines(&self, counts: &QueueCounts, now: Timestamp) -> Vec<String> {
        let queue = &counts.queue;
        let mut parts = Vec::new();
        if let Some(record) = &self.limits {
            let bound = record.limits.of_queue();
            if let Some(limit) = bound.inflight {
                parts.push(format!("{} of {limit} jobs inflight", counts.states.inflight));
            }
            if let Some(rate) = bound.rate {
                parts.push(format!("rate {}", limit::rate_text(rate)));
            }
            if let Some(per_lane) = record.limits.per_lane {
                parts.push(format!("{per_lane} per lane"));
            }
            if let Some(rate) = record.limits.lane_rate {
                parts.push(format!("rate per lane {}", limit::rate_text(rate)));
            }
            if parts.is_empty() {
                let lanes = counted(record.limits.lanes.len(), "lane");
                parts.push(format!("settings for {lanes}"));
            }
        }
        parts.extend(self.held_back.as_ref().and_then(|held| match held.why {
            HeldBack::OnHold { until } => {
                Some(format!("on hold until {until} ({})", relative(until, now)))
            }
            HeldBack::Rate { next } => Some(format!("next job {}", relative(next, now))),
            _ => None,
        }));
        let mut lines = Vec::new();
        if !parts.is_empty() {
            lines.push(format!("  {}: {}", clean::line(queue.as_str()), parts.join(", ")));
        }
        for status in self.held_lanes.iter().take(SHOWN) {
            let Some(held) = &status.held_back else { continue };
            let words = held::in_words(held, queue, status.lane.as_ref(), now);
            let words = clean::line(&words);
            lines.push(format!("    {words}, {} ready", status.ready));
        }
        let more = self.held_lanes.len().saturating_sub(SHOWN);
        if more > 0 || self.has_more {
            let more = if self.has_more { "more".to_owned() } else { format!("{more} more") };
            lines.push(format!(
                "    … and {more}: taskharbor queue lanes {}",
                clean::line(queue.as_str())
            ));
        }
        lines
    }
}

/// Shows what is held back in each queue.
pub(crate) fn show(
    usages: &HashMap<QueueName, QueueUsage>,
    queues: &[QueueCounts],
    now: Timestamp,
    screen: &mut Screen,
) -> Outcome {
    let of = |counts: &QueueCounts| usages.get(&counts.queue).map(|it| it.lines(counts, now));
    for line in queues.iter().filter_map(of).flatten() {
        screen.line(&line)?;
    }
    Ok(())
}

/// The name of a lane for people.
pub(crate) fn lane_text(lane: Option<&LaneName>) -> String {
    lane.map_or_else(|| "(no lane)".to_owned(), |lane| clean::line(lane.as_str()))
}
