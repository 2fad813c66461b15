//! `taskharbor stats`: how many jobs are in each state, and how fast they are done.

use std::{collections::HashMap, time::Duration};

use taskharbor::{Admin, AnyDriver, QueueCounts, QueueName, State, Timestamp};
use taskharbor_core::admin::Counts;
use tokio::time::{Instant, sleep};

use super::usage::{self, QueueUsage};
use crate::{
    clean,
    failure::Outcome,
    json_output,
    screen::{Screen, capped, span},
    store::{Missing, Url},
    table::{Align, Cell},
    terminal::Tone,
    value,
};

/// Show for each queue how many jobs are in each state, how fast they are done, and what limits
/// hold back
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor stats
  taskharbor stats --watch
  taskharbor stats --json --window 0s | jq .ready
  taskharbor stats --at-most 10000 --window 0s")]
pub(crate) struct Args {
    /// Repeat until interrupted
    #[arg(long)]
    watch: bool,
    /// Stop counting at this number, which is faster in a large store: 10000+ means 10000 or more
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    at_most: Option<u32>,
    /// How long to measure the rate of jobs that become done; 0s shows no rate
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = value::duration)]
    window: Duration,
}

pub(crate) async fn run(args: &Args, url: &Url, screen: &mut Screen) -> Outcome {
    let driver = url.open(Missing::Refuse).await?;
    let at_most = args.at_most.map(|it| usize::try_from(it).unwrap_or(usize::MAX));
    let mut before = Counted::now(&driver, at_most).await?;
    if args.window.is_zero() && !args.watch {
        return show(&before.with_usages(&driver).await?, None, screen);
    }
    let window = args.window.max(Duration::from_millis(100));
    loop {
        sleep(window).await;
        let after = Counted::now(&driver, at_most).await?.with_usages(&driver).await?;
        let seconds = after.counted_at.duration_since(before.counted_at).as_secs_f64();
        if args.watch && screen.terminal.size.is_some() && !screen.is_json {
            // Home, and nothing below.
            screen.line("\x1b[H\x1b[J")?;
        }
        let rates = Rates { before: &before.queues, at_most, seconds };
        show(&after, Some(&rates), screen)?;
        if !args.watch {
            return Ok(());
        }
        screen.flush()?;
        before = after;
    }
}

/// The jobs of all queues at one instant.
pub(crate) struct Counted {
    queues: Vec<QueueCounts>,
    usages: HashMap<QueueName, QueueUsage>,
    at_most: Option<usize>,
    now: Timestamp,
    counted_at: Instant,
}

impl Counted {
    pub(crate) async fn now(driver: &AnyDriver, at_most: Option<usize>) -> Outcome<Self> {
        let now = driver.now().await?;
        let mut request = Counts::new(now);
        request.at_most = at_most;
        let queues = driver.counts(request).await?;
        let counted_at = Instant::now();
        Ok(Self { queues, usages: HashMap::new(), at_most, now, counted_at })
    }

    /// With how much of their limits the queues use.
    pub(crate) async fn with_usages(mut self, driver: &AnyDriver) -> Outcome<Self> {
        self.usages = usage::of(driver, &self.queues, self.at_most, self.now).await?;
        Ok(self)
    }
}

/// The counts of the last time, and how long ago that was.
pub(crate) struct Rates<'a> {
    before: &'a [QueueCounts],
    at_most: Option<usize>,
    seconds: f64,
}

impl Rates<'_> {
    /// Jobs that became done per second; `None` if counting stopped before all were counted. Jobs
    /// whose records were removed meanwhile are not seen.
    fn of(&self, queue: &QueueCounts) -> Option<f64> {
        if self.at_most.is_some_and(|at_most| queue.states.done >= at_most) {
            return None;
        }
        let before = self.before.iter().find(|it| it.queue == queue.queue);
        let before = before.map_or(0, |it| it.states.done);
        let done = u32::try_from(queue.states.done.saturating_sub(before)).unwrap_or(u32::MAX);
        Some(f64::from(done) / self.seconds)
    }
}

pub(crate) fn show(counted: &Counted, rates: Option<&Rates<'_>>, screen: &mut Screen) -> Outcome {
    let Counted { queues, usages, at_most, now, .. } = counted;
    let (at_most, now) = (*at_most, *now);
    if screen.is_json {
        for queue in queues {
            let rate = rates.and_then(|rates| rates.of(queue));
            let rate = rate.map(|rate| (rate * 10.0).round() / 10.0);
            let usage = usages.get(&queue.queue);
            screen.document(&json_output::Queue::of(queue, usage, now, at_most, rate))?;
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
        row.extend(states.map(|(state, tone)| {
            let count = queue.states.get(state);
            let tone = if count == 0 { Tone::Faint } else { tone };
            Cell::new(tone, capped(count, at_most))
        }));
        let oldest = queue.oldest_ready.map(|at| span(now.since(at)));
        row.push(Cell::plain(oldest.unwrap_or_else(|| "-".to_owned())));
        let rate = rates.and_then(|rates| rates.of(queue));
        row.push(Cell::plain(rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"))));
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
    screen.table(&names, &columns, rows)?;
    usage::show(usages, queues, now, screen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_at_the_cap_says_so() {
        assert_eq!(capped(9_999, Some(10_000)), "9999");
        assert_eq!(capped(10_000, Some(10_000)), "10000+");
        assert_eq!(capped(10_000, None), "10000");
    }
}
