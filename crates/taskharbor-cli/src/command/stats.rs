//! `taskharbor stats`: how many jobs are where, and how fast they go.

use std::time::Duration;

use taskharbor::{Admin, AnyDriver, QueueCounts, State, Timestamp};
use tokio::time::{Instant, sleep};

use crate::{
    clean,
    failure::Outcome,
    screen::{Screen, span},
    shape,
    store::{Missing, Url},
    table::{Align, Cell},
    terminal::Tone,
    value,
};

/// Show how many jobs of each queue are in each state, and how fast they are done
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor stats
  taskharbor stats --watch
  taskharbor stats --json --window 0s | jq .ready")]
pub(crate) struct Args {
    /// Show it again and again
    #[arg(long)]
    watch: bool,
    /// How long to count jobs that become done, for the rate; 0s leaves it out
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = value::duration)]
    window: Duration,
}

pub(crate) async fn run(args: &Args, url: &Url, screen: &mut Screen) -> Outcome {
    let driver = url.open(Missing::Refuse).await?;
    let mut before = counts(&driver).await?;
    if args.window.is_zero() && !args.watch {
        return show(&before.0, None, before.1, screen);
    }
    let window = args.window.max(Duration::from_millis(100));
    loop {
        let started = Instant::now();
        sleep(window).await;
        let after = counts(&driver).await?;
        let seconds = started.elapsed().as_secs_f64();
        if args.watch && screen.terminal.size.is_some() && !screen.is_json {
            // Home, and nothing below.
            screen.line("\x1b[H\x1b[J")?;
        }
        let rates = Rates { before: &before.0, seconds };
        show(&after.0, Some(&rates), after.1, screen)?;
        if !args.watch {
            return Ok(());
        }
        screen.flush()?;
        before = after;
    }
}

async fn counts(driver: &AnyDriver) -> Outcome<(Vec<QueueCounts>, Timestamp)> {
    let now = driver.now().await?;
    Ok((driver.counts(now).await?, now))
}

/// What there was before, and how long ago that was.
pub(crate) struct Rates<'a> {
    before: &'a [QueueCounts],
    seconds: f64,
}

impl Rates<'_> {
    /// Jobs that became done, in a second. What was removed meanwhile cannot be told.
    fn of(&self, queue: &QueueCounts) -> f64 {
        let before = self.before.iter().find(|it| it.queue == queue.queue);
        let before = before.map_or(0, |it| it.states.done);
        let done = u32::try_from(queue.states.done.saturating_sub(before)).unwrap_or(u32::MAX);
        f64::from(done) / self.seconds
    }
}

pub(crate) fn show(
    queues: &[QueueCounts],
    rates: Option<&Rates<'_>>,
    now: Timestamp,
    screen: &mut Screen,
) -> Outcome {
    if screen.is_json {
        for queue in queues {
            let rate = rates.map(|rates| (rates.of(queue) * 10.0).round() / 10.0);
            screen.document(&shape::Queue::of(queue, now, rate))?;
        }
        return Ok(());
    }
    let states = [
        (State::Ready, Tone::Plain),
        (State::Scheduled, Tone::Plain),
        (State::Blocked, Tone::Plain),
        (State::Inflight, Tone::Strong),
        (State::Done, Tone::Good),
        (State::Dlq, Tone::Bad),
        (State::Cancelled, Tone::Warning),
    ];
    let rows = queues.iter().map(|queue| {
        let mut row = vec![Cell::plain(clean::cut(&clean::line(queue.queue.as_str()), 40))];
        row.extend(states.map(|(state, tone)| Cell::count(tone, queue.states.get(state))));
        let oldest = queue.oldest_ready.map(|at| span(now.since(at)));
        row.push(Cell::plain(oldest.unwrap_or_else(|| "-".to_owned())));
        row.push(Cell::plain(
            rates.map_or_else(|| "-".to_owned(), |rates| format!("{:.1}", rates.of(queue))),
        ));
        if let Some(since) = queue.paused_since {
            row.push(Cell::new(Tone::Warning, format!("paused {}", screen.time(since, now))));
        }
        row
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return screen.line("no jobs");
    }
    let names = [
        "QUEUE",
        "READY",
        "SCHEDULED",
        "BLOCKED",
        "INFLIGHT",
        "DONE",
        "DLQ",
        "CANCELLED",
        "OLDEST",
        "DONE/S",
        "",
    ];
    let mut columns = [Align::Right; 11];
    columns[0] = Align::Left;
    columns[10] = Align::Left;
    screen.table(&names, &columns, rows)
}
