//! `taskharbor workers`: which workers there are, and evicting one.

use taskharbor::{Client, QueueInfo, Timestamp, WorkerPhase, WorkerStatus};

use crate::{
    clean,
    failure::Outcome,
    json_output,
    screen::{Screen, counted},
    stderr::tell,
    store::{Missing, Url},
    table::{Align, Cell},
    terminal::Tone,
};

/// Show the workers that have announced themselves, or evict one
///
/// By default a worker announces itself every ten seconds, and is overdue after thirty. An overdue worker
/// is shown for a day: it has died, or cannot reach the store.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  taskharbor workers
  taskharbor workers --json | jq -r 'select(.overdue) | .name'
  taskharbor workers evict web-7:4711:a0f3"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// End all leases of a worker now, so that other workers can have its jobs at once
    ///
    /// Use this for a worker that has died. If the worker is alive, the store refuses its outcomes
    /// of these jobs, and the jobs run a second time.
    #[command(after_help = "Example:
    taskharbor workers evict web-7:4711:a0f3   # a worker that died")]
    Evict {
        /// The name of the worker
        name: String,
    },
}

pub(crate) async fn run(args: Args, url: &Url, screen: &mut Screen) -> Outcome {
    let driver = url.open(Missing::Refuse).await?;
    let client = Client::new(&driver);
    match args.command {
        None => list(&client, driver.now().await?, screen).await,
        Some(Command::Evict { name }) => evict(&client, &name, screen).await,
    }
}

async fn list(client: &Client, now: Timestamp, screen: &mut Screen) -> Outcome {
    let workers = client.workers().await?;
    if screen.is_json {
        return workers.iter().try_for_each(|it| screen.document(&json_output::Worker::of(it)));
    }
    if workers.is_empty() {
        tell("no worker has announced itself");
        return Ok(());
    }
    let rows = workers.iter().map(|worker| row(worker, now, screen)).collect();
    let names = ["NAME", "PHASE", "VERSION", "QUEUES", "BUSY", "DONE", "FAILED", "DEAD", "SEEN"];
    let (left, right) = (Align::Left, Align::Right);
    screen.table(&names, &[left, left, left, left, right, right, right, right, left], rows)
}

fn row(worker: &WorkerStatus, now: Timestamp, screen: &Screen) -> Vec<Cell> {
    let info = worker.info.clone().unwrap_or_default();
    let sum = |of: fn(&QueueInfo) -> u64| info.queues.iter().map(of).sum::<u64>();
    let total = |of: fn(&QueueInfo) -> u64| usize::try_from(sum(of)).unwrap_or(usize::MAX);
    let busy: usize = info.queues.iter().map(|queue| queue.busy).sum();
    let slots: usize = info.queues.iter().map(|queue| queue.slots).sum();
    let phase = match () {
        () if worker.is_overdue => Cell::new(Tone::Bad, "overdue"),
        () if worker.info.is_none() => Cell::new(Tone::Faint, "unknown"),
        () if !info.problems.is_empty() => Cell::new(Tone::Bad, "stuck"),
        () if info.phase == WorkerPhase::Working => Cell::plain("working"),
        () => Cell::new(Tone::Warning, info.phase.as_str()),
    };
    let mut queues: Vec<_> = info.queues.iter().map(|queue| clean::line(&queue.name)).collect();
    if info.queues_left_out > 0 {
        queues.push(format!("+{}", info.queues_left_out));
    }
    let version = info.version.as_deref().map_or_else(|| "-".to_owned(), clean::line);
    vec![
        Cell::new(Tone::Strong, clean::line(&worker.name)),
        phase,
        Cell::plain(version),
        Cell::plain(clean::cut(&queues.join(","), 40)),
        Cell::plain(format!("{busy}/{slots}")),
        Cell::count(Tone::Plain, total(|it| it.done)),
        Cell::count(Tone::Warning, total(|it| it.failed)),
        Cell::count(Tone::Bad, total(|it| it.dead)),
        Cell::plain(screen.time(worker.seen_at, now)),
    ]
}

async fn evict(client: &Client, name: &str, screen: &mut Screen) -> Outcome {
    let is_alive = client.workers().await?.iter().any(|it| it.name == name && !it.is_overdue);
    let leases = client.evict(name).await?;
    let shown = clean::line(name);
    let mut text = match leases {
        0 => format!("worker {shown} held no leases"),
        _ => format!(
            "{} of worker {shown} ended: its jobs can start elsewhere",
            counted(leases, "lease")
        ),
    };
    if is_alive {
        text += "; its announcement is still valid: if it is alive, the store refuses what it records of these jobs";
    }
    if screen.is_json {
        return screen.document(&json_output::Evicted { name, leases, was_alive: is_alive });
    }
    screen.line(&text)
}
