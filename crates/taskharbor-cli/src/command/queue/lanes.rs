//! `taskharbor queue lanes`: the lanes of a queue, and what holds their jobs back.

use taskharbor::explain::held;
use taskharbor::{Admin, AnyDriver, Cursor, QueueName, Timestamp};
use taskharbor_core::{
    admin::{HeldBack, LaneStatus, ListLanes, QueueLimits},
    driver::Limits,
};

use crate::{
    clean,
    command::{list, usage},
    failure::Outcome,
    json_output,
    screen::Screen,
    stderr::tell,
    table::{Align, Cell},
    terminal::Tone,
};

/// Show the lanes of a queue that have ready or inflight jobs, or are on hold
///
/// The first line is for the jobs without a lane.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor queue lanes mail
  taskharbor queue lanes mail --json --limit 1000 | jq -r 'select(.held_back != null) | .lane'")]
pub(crate) struct Args {
    /// The name of the queue
    queue: QueueName,
    /// Show at most this many lanes
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Continue after the page that gave this cursor
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

pub(super) async fn run(
    args: Args,
    driver: &AnyDriver,
    now: Timestamp,
    screen: &mut Screen,
) -> Outcome {
    let limits = usage::limits_of(driver, &args.queue).await?;
    let limits = limits.map_or_else(QueueLimits::new, |record| record.limits);
    let mut left = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let mut cursor = args.cursor.map(Cursor::new);
    let mut rows = Vec::new();
    while left > 0 {
        let mut request = ListLanes::new(args.queue.clone(), left.min(Limits::MAX_PAGE), now);
        request.after = cursor.take();
        let page = driver.lanes(request).await?;
        left = left.saturating_sub(page.items.len());
        for status in &page.items {
            if screen.is_json {
                screen.document(&json_output::Lane::of(status, &limits))?;
            } else {
                rows.push(row(status, &limits, now, screen));
            }
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    if !screen.is_json {
        if rows.is_empty() {
            let queue = clean::line(args.queue.as_str());
            tell(&format!("queue {queue} has no ready or inflight jobs, and no lane is on hold"));
        } else {
            let names = ["LANE", "READY", "INFLIGHT", "LIMIT", "HELD BACK", "NEXT"];
            let (left, right) = (Align::Left, Align::Right);
            screen.table(&names, &[left, right, right, right, left, left], rows)?;
        }
    }
    if let Some(next) = cursor {
        screen.flush()?;
        list::more(&next, None);
    }
    Ok(())
}

fn row(status: &LaneStatus, limits: &QueueLimits, now: Timestamp, screen: &Screen) -> Vec<Cell> {
    let lane = status.lane.as_ref();
    let limit = limits.of_lane(lane).inflight;
    let held = status.held_back.as_ref();
    let next = match held.map(|held| held.why) {
        None => String::new(),
        Some(HeldBack::Full { .. }) => "when a job ends".to_owned(),
        Some(why) => why.until().map_or_else(String::new, |at| screen.time(at, now)),
    };
    vec![
        Cell::new(
            if lane.is_some() { Tone::Plain } else { Tone::Faint },
            clean::cut(&usage::lane_text(lane), 40),
        ),
        Cell::count(Tone::Plain, status.ready),
        Cell::count(Tone::Strong, status.inflight),
        Cell::plain(limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string())),
        Cell::new(Tone::Warning, held.map_or_else(String::new, held::in_short)),
        Cell::plain(next),
    ]
}
