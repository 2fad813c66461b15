//! `taskharbor queue limit`: shows, sets and removes the limits of a queue.

use taskharbor::{AnyDriver, QueueName, Timestamp};
use taskharbor_core::{
    DriverError,
    admin::{Change, LaneLimits, LimitsRecord, QueueLimits, Rate},
    name::LaneName,
};

use crate::{
    clean,
    command::usage,
    failure::{Failure, Outcome},
    json_output,
    screen::Screen,
    value::{self, OrNone, Weight},
};

/// Limit how many jobs of a queue are inflight and how fast they start; without options, show the limits
///
/// Limits that are not given stay as they are: --inflight 5 keeps a rate, and --rate keeps its
/// burst. The value `none` removes one limit, --remove removes all of them. Limits apply to all
/// machines together. Running jobs go on. Limits that a service declares belong to that service and
/// cannot be changed here.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor queue limit mail --inflight 50 --per-lane 2
  taskharbor queue limit mail --rate 90/10s --burst 10
  taskharbor queue limit mail --weight gold=3 --weight silver=2
  taskharbor queue limit mail --lane gold --inflight 10
  taskharbor queue limit mail --lane gold --remove
  taskharbor queue limit mail --rate none
  taskharbor queue limit mail")]
pub(crate) struct Args {
    /// The name of the queue
    queue: QueueName,
    /// Apply --inflight, --rate, --burst, --weight and --remove only to this lane
    #[arg(long, value_name = "LANE", conflicts_with_all = ["per_lane", "lane_rate", "lane_burst"])]
    lane: Option<LaneName>,
    /// How many jobs of the queue may be inflight at once, from 1 to 1000000
    #[arg(long, value_name = "N", value_parser = value::inflight)]
    inflight: Option<OrNone<u32>>,
    /// How many jobs of each lane may be inflight at once
    #[arg(long, value_name = "N", value_parser = value::inflight)]
    per_lane: Option<OrNone<u32>>,
    /// How fast jobs of the queue may start, as 90/10s, 5/s or 600/m
    #[arg(long, value_name = "RATE", value_parser = value::job_rate)]
    rate: Option<OrNone<Rate>>,
    /// How many jobs may start at once after an idle time [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    burst: Option<u32>,
    /// How fast jobs of each lane may start
    #[arg(long, value_name = "RATE", value_parser = value::job_rate)]
    lane_rate: Option<OrNone<Rate>>,
    /// How many jobs of each lane may start at once after an idle time [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    lane_burst: Option<u32>,
    /// The weight of a lane: how many jobs it gets in each turn, from 1 to 1000; may be given more
    /// than once, or as a number with --lane
    #[arg(long, value_name = "LANE=N", value_parser = value::weight)]
    weight: Vec<Weight>,
    /// Remove all limits of the queue, or all settings of the lane
    #[arg(long, conflicts_with_all = ["inflight", "per_lane", "rate", "burst", "lane_rate", "lane_burst", "weight"])]
    remove: bool,
}

pub(super) async fn run(
    args: &Args,
    driver: &AnyDriver,
    now: Timestamp,
    screen: &mut Screen,
) -> Outcome {
    let queue = &args.queue;
    let stored = usage::limits_of(driver, queue).await?;
    if args.is_question() {
        let none = || LimitsRecord::new(queue.clone(), None, QueueLimits::new());
        return show(&stored.unwrap_or_else(none), screen);
    }
    if args.remove && stored.is_none() {
        let name = clean::line(queue.as_str());
        return Err(Failure::not_found(format!("queue {name} has no limits to remove")));
    }
    let limits = args.changed(stored.map(|it| it.limits).unwrap_or_default())?;
    limits.check().map_err(DriverError::from)?;
    let record = LimitsRecord::new(queue.clone(), None, limits);
    let limits = Some(record.limits.clone()).filter(|limits| !limits.is_empty());
    super::configure(driver, Change::SetLimits { queue: queue.clone(), limits }, now).await?;
    show(&record, screen)?;
    if record.limits.is_empty() {
        return Ok(());
    }
    super::ask_about_empty(&super::counts_of(driver, queue, now).await?, screen)
}

impl Args {
    /// Refuses limits that are invalid in every store.
    pub(super) fn check(&self) -> Outcome {
        if self.lane.is_some() && self.is_question() {
            return Err(Failure::usage(
                "--lane names the lane to change: pass --inflight, --rate, --burst, --weight or --remove with it",
            ));
        }
        match (&self.lane, self.weight.iter().find(|it| it.lane.is_some() == self.lane.is_some())) {
            (_, None) => Ok(()),
            (None, Some(weight)) => Err(Failure::usage(format!(
                "the weight {} has no lane: write --weight LANE=N, as in --weight gold=3",
                weight.jobs
            ))),
            (Some(_), Some(weight)) => Err(Failure::usage(format!(
                "--lane and --weight both name a lane: write --weight {} with --lane",
                weight.jobs
            ))),
        }
    }

    /// Whether nothing is to be changed.
    fn is_question(&self) -> bool {
        !self.remove
            && self.inflight.is_none()
            && self.per_lane.is_none()
            && self.rate.is_none()
            && self.burst.is_none()
            && self.lane_rate.is_none()
            && self.lane_burst.is_none()
            && self.weight.is_empty()
    }

    /// The limits after the change. What is not given stays.
    fn changed(&self, mut limits: QueueLimits) -> Outcome<QueueLimits> {
        if let Some(lane) = &self.lane {
            let own = limits.lanes.remove(lane);
            if self.remove && own.is_none() {
                let (lane, queue) = (clean::line(lane.as_str()), clean::line(self.queue.as_str()));
                return Err(Failure::not_found(format!(
                    "unknown lane {lane}: queue {queue} has no settings for it (taskharbor queue limit {queue} shows all)"
                )));
            }
            let own = self.changed_lane(own.unwrap_or_default())?;
            if own != LaneLimits::default() {
                limits.lanes.insert(lane.clone(), own);
            }
            return Ok(limits);
        }
        if self.remove {
            return Ok(QueueLimits::new());
        }
        limits.inflight = self.inflight.map_or(limits.inflight, |it| it.0);
        limits.per_lane = self.per_lane.map_or(limits.per_lane, |it| it.0);
        limits.rate = changed_rate(limits.rate, self.rate, self.burst, "--rate")?;
        limits.lane_rate =
            changed_rate(limits.lane_rate, self.lane_rate, self.lane_burst, "--lane-rate")?;
        for Weight { lane, jobs } in &self.weight {
            if let Some(lane) = lane {
                limits.lanes.entry(lane.clone()).or_default().weight = Some(*jobs);
            }
        }
        Ok(limits)
    }

    fn changed_lane(&self, mut own: LaneLimits) -> Outcome<LaneLimits> {
        if self.remove {
            return Ok(LaneLimits::default());
        }
        own.inflight = self.inflight.map_or(own.inflight, |it| it.0);
        own.rate = changed_rate(own.rate, self.rate, self.burst, "--rate")?;
        own.weight = self.weight.last().map_or(own.weight, |it| Some(it.jobs));
        Ok(own)
    }
}

/// The rate after the change. A new one keeps the burst that was set.
fn changed_rate(
    stored: Option<Rate>,
    rate: Option<OrNone<Rate>>,
    burst: Option<u32>,
    option: &str,
) -> Outcome<Option<Rate>> {
    let kept = stored.map_or(1, |stored| stored.burst);
    let rate = rate.map_or(stored, |rate| rate.0.map(|rate| rate.burst(kept)));
    match (rate, burst) {
        (rate, None) => Ok(rate),
        (Some(rate), Some(burst)) => Ok(Some(rate.burst(burst))),
        (None, Some(_)) => {
            Err(Failure::usage(format!("a burst is part of a rate: pass {option} with it")))
        }
    }
}

/// A rate as it is written on the command line, with its burst if that is not one.
pub(crate) fn rate_text(rate: Rate) -> String {
    let text = format!("{}/{}", rate.jobs, value::duration_text(rate.per));
    if rate.burst == 1 { text } else { format!("{text} burst {}", rate.burst) }
}

fn show(record: &LimitsRecord, screen: &mut Screen) -> Outcome {
    if screen.is_json {
        return screen.document(&json_output::Limits::of(record));
    }
    let limits = &record.limits;
    if limits.is_empty() {
        return screen.line(&format!("queue {} has no limits", clean::line(record.queue.as_str())));
    }
    let mut line = |what: &str, text: Option<String>| match text {
        Some(text) => screen.line(&format!("{what:<11}{text}")),
        None => Ok(()),
    };
    line("queue", Some(clean::line(record.queue.as_str())))?;
    line("owner", record.owner.as_ref().map(|owner| clean::line(owner.as_str())))?;
    line("inflight", limits.inflight.map(|it| it.to_string()))?;
    line("rate", limits.rate.map(rate_text))?;
    line("per lane", limits.per_lane.map(|it| it.to_string()))?;
    line("lane rate", limits.lane_rate.map(rate_text))?;
    for (lane, own) in &limits.lanes {
        let parts = [
            own.inflight.map(|it| format!("inflight {it}")),
            own.rate.map(|it| format!("rate {}", rate_text(it))),
            own.weight.map(|it| format!("weight {it}")),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        line("lane", Some(format!("{}: {}", clean::line(lane.as_str()), parts.join(", "))))?;
    }
    Ok(())
}
