//! `taskharbor queue hold`: lets no job of a queue or lane start before an instant.

use std::time::Duration;

use taskharbor::{Admin, AnyDriver, QueueName, Timestamp};
use taskharbor_core::{
    admin::{Change, HeldBack, ListLanes},
    driver::Limits,
    name::LaneName,
};

use crate::{
    clean,
    failure::{Failure, Outcome},
    json_output,
    screen::{Screen, relative},
    stderr::tell,
    value,
};

/// Let no job of a queue or lane start before an instant; running jobs go on
///
/// A hold ends by itself. A second hold does not shorten the first one; to shorten it, end it first
/// (--end).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor queue hold mail --for 30s
  taskharbor queue hold mail --lane acme --until 2026-11-18T10:00:00Z
  taskharbor queue hold mail --lane acme --end")]
#[command(group(clap::ArgGroup::new("when").required(true)))]
pub(crate) struct Args {
    /// The name of the queue
    queue: QueueName,
    /// Hold only this lane of the queue
    #[arg(long, value_name = "LANE")]
    lane: Option<LaneName>,
    /// Hold for this time, as 30s or 1h30m
    #[arg(long, value_name = "DURATION", value_parser = value::duration, group = "when")]
    r#for: Option<Duration>,
    /// Hold until this time, as 2026-11-18T10:00:00Z
    #[arg(long, value_name = "TIME", group = "when")]
    until: Option<Timestamp>,
    /// End the hold
    #[arg(long, group = "when")]
    end: bool,
}

pub(super) async fn run(
    args: &Args,
    driver: &AnyDriver,
    now: Timestamp,
    screen: &mut Screen,
) -> Outcome {
    let until = args.instant(now)?;
    let (queue, lane) = (args.queue.clone(), args.lane.clone());
    super::configure(driver, Change::Hold { queue, lane, until }, now).await?;
    let until = match until {
        Some(until) => Some(args.stored(driver, now).await?.map_or(until, |it| it.max(until))),
        None => None,
    };
    if screen.is_json {
        let hold = json_output::Hold::of(&args.queue, args.lane.as_ref(), until);
        return screen.document(&hold);
    }
    let queue = clean::line(args.queue.as_str());
    let what = match &args.lane {
        Some(lane) => format!("lane {} of queue {queue}", clean::line(lane.as_str())),
        None => format!("queue {queue}"),
    };
    let Some(until) = until else { return screen.line(&format!("{what} is not on hold")) };
    screen.line(&format!("{what} is on hold until {until} ({})", relative(until, now)))?;
    if args.instant(now)?.is_some_and(|asked| asked < until) {
        screen.flush()?;
        tell("an earlier hold lasts longer and stays: end it first with --end to shorten it");
    }
    Ok(())
}

impl Args {
    /// When the hold is asked to end; `None` to end it now.
    fn instant(&self, now: Timestamp) -> Outcome<Option<Timestamp>> {
        if self.end {
            return Ok(None);
        }
        let until = match (self.r#for, self.until) {
            (Some(time), _) => now.checked_add(time),
            (None, until) => until,
        };
        let until = until.ok_or_else(|| Failure::usage("the hold ends after the year 9999"))?;
        if until <= now {
            return Err(Failure::usage(format!(
                "the hold would end at {until}, which has passed: choose a later time, or pass --end to end a hold"
            )));
        }
        Ok(Some(until))
    }

    /// When the hold ends that is stored, if it shows among the first lanes.
    async fn stored(&self, driver: &AnyDriver, now: Timestamp) -> Outcome<Option<Timestamp>> {
        let request = ListLanes::new(self.queue.clone(), Limits::MAX_PAGE, now);
        let statuses = driver.lanes(request).await?.items;
        let is_ours = |by_lane: bool| by_lane == self.lane.is_some();
        let status = statuses.into_iter().find(|it| it.lane == self.lane);
        Ok(status.and_then(|it| it.held_back).filter(|it| is_ours(it.by_lane)).and_then(|held| {
            match held.why {
                HeldBack::OnHold { until } => Some(until),
                _ => None,
            }
        }))
    }
}
