//! `taskharbor move`: all jobs from one store to another.
//!
//! The queues of the source are paused first, so that no worker gets a job that is being copied, and
//! they stay paused: a copied job must not run in two places. A unit that has arrived is not stored
//! again, so an interrupted move can be repeated.

mod compare;
mod limits;
mod lock;
mod pause;
mod schedules;
mod side;

use std::time::Duration;

use serde::Serialize;
use taskharbor::Cursor;
use taskharbor_core::export::{ExportUnit, ExportedJob, ImportRefused, Imported};

use super::bulk::Ahead;
use crate::{
    clean,
    failure::{Exit, Failure, Outcome},
    interrupt::Hold,
    screen::{Screen, counted},
    stderr::tell,
    store::{Missing, Url},
};
use compare::compare;
use lock::Lock;
use pause::Paused;
use side::Side;

/// Units in one call, at most, and about how many bytes.
const PAGE: usize = 1_000;
const PAGE_BYTES: usize = 16 * 1024 * 1024;
/// After how many jobs to say how far it is.
const TOLD_EVERY: usize = 10_000;
/// Time between two looks at the jobs that workers hold.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Move all jobs, with their states, attempts, errors and edges, all schedules and all limits to another store
///
/// Stop producers first. The queues of the source are paused and stay paused, because the jobs run in
/// the destination from then on. The command refuses to start while workers hold jobs, unless --wait
/// is given. An interrupted move can be repeated: it continues where it stopped. At the end, both
/// stores are compared job by job. The source keeps its jobs, for you to delete, and loses its
/// schedules, so that they fire in one store, and its limits. Holds of queues and lanes are not moved.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  taskharbor migrate up --url postgres://db/jobs
  taskharbor move --from sqlite:taskharbor.db --to postgres://db/jobs --wait --yes")]
pub(crate) struct Args {
    /// The store that has the jobs
    #[arg(long, value_name = "URL")]
    from: String,
    /// The store that gets them
    #[arg(long, value_name = "URL")]
    to: String,
    /// Wait until no worker holds a job
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    ahead: Ahead,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    moved: usize,
    existed: usize,
    compared: usize,
    /// Idempotency keys that outlived their jobs, moved now or before.
    keys: usize,
    schedules: usize,
    /// Queues whose limits were moved.
    limits: usize,
    dry_run: bool,
    #[serde(skip)]
    reached: Reached,
}

/// How far a move has come: which store may run the jobs now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Reached {
    /// Nothing was given to the destination.
    #[default]
    Nothing,
    /// A part of the jobs may be in both stores.
    Copying,
    /// Everything is in the destination, whose queues are resumed.
    Arrived,
}

impl Report {
    const fn arrived(&self) -> usize {
        self.moved + self.existed
    }
}

pub(crate) async fn run(args: Args, screen: &mut Screen) -> Outcome {
    let (from, to) = (Url::find(Some(args.from))?, Url::find(Some(args.to))?);
    if from.as_str() == to.as_str() {
        return Err(Failure::usage("--from and --to name the same store"));
    }
    let source = Side::open(&from, Missing::Refuse, "source").await?;
    let jobs: usize = source.counts().await?.iter().map(|it| it.states.total()).sum();
    let many = counted(jobs, "job");
    let what = format!("move {many} from {} to {}", source.shown, clean::line(&to.shown()));
    if args.ahead.dry_run {
        let report = Report { moved: jobs, dry_run: true, ..Report::default() };
        return if screen.is_json {
            screen.document(&report)
        } else {
            screen.line(&format!("would {what}"))
        };
    }
    args.ahead.confirm(&what)?;
    let destination = Side::open(&to, Missing::Create, "destination").await?;
    // From here on, pauses have to be undone if the move fails.
    let hold = Hold::begin();
    let report = transfer(&source, &destination, args.wait, &hold).await;
    drop(hold);
    let report = report?;
    if screen.is_json {
        return screen.document(&report);
    }
    let Report { moved, existed, compared, keys, schedules, limits, .. } = report;
    screen.line(&format!(
        "moved {}, {existed} were there before; {compared} are the same in both stores",
        counted(moved, "job")
    ))?;
    if keys > 0 {
        let keys = counted(keys, "idempotency key");
        screen.line(&format!("also moved {keys} that outlived the jobs they were used for"))?;
    }
    if schedules > 0 {
        let schedules = counted(schedules, "schedule");
        screen.line(&format!("also moved {schedules}, which fire in the destination alone"))?;
    }
    if limits > 0 {
        screen.line(&format!("also moved the limits of {}", counted(limits, "queue")))?;
    }
    screen.line(&format!(
        "the queues in {} stay paused; delete that store when you no longer need it",
        source.shown
    ))
}

/// Moves everything, if no other move of the source runs.
async fn transfer(source: &Side, destination: &Side, wait: bool, hold: &Hold) -> Outcome<Report> {
    let lock = Lock::take(source).await?;
    let mut report = Report::default();
    let moved = locked(source, destination, &lock, wait, &mut report, hold).await;
    let released = lock.release(source).await;
    moved?;
    released?;
    Ok(report)
}

/// Moves everything. What was paused is resumed if nothing has arrived.
async fn locked(
    source: &Side,
    destination: &Side,
    lock: &Lock,
    wait: bool,
    report: &mut Report,
    hold: &Hold,
) -> Outcome {
    if lock.shows_in(destination).await? {
        return Err(Failure::usage("--from and --to lead to the same store"));
    }
    let mut paused = Paused::begin(source, destination).await?;
    let moved = async {
        paused.pause(source, destination).await?;
        schedules::pause(source, paused.since()).await?;
        limits::check(source, destination).await?;
        held(source, wait, hold).await?;
        copy(source, destination, &paused, report, hold).await?;
        report.compared = compare(source, destination, hold).await?;
        paused.check(source).await?;
        report.reached = Reached::Copying;
        report.limits = limits::copy(source, destination).await?;
        report.schedules = schedules::hand_over(source, destination, paused.since()).await?;
        report.reached = Reached::Arrived;
        paused.end(source, destination).await?;
        limits::remove(source).await
    };
    let moved = tokio::select! {
        biased;
        moved = moved => moved,
        lost = lock.keep(source) => Err(lost),
    };
    let Err(mut failure) = moved else { return Ok(()) };
    if !lock::is_taken_over(&failure) {
        failure.text += &left_behind(source, destination, paused, report).await;
    }
    Err(failure)
}

/// Undoes a move that has failed, if that can be done, and says what is left of it.
async fn left_behind(source: &Side, destination: &Side, paused: Paused, report: &Report) -> String {
    match report.reached {
        Reached::Nothing => {
            let schedules = schedules::undo(source, paused.since()).await;
            match paused.undo(source, destination).await.and(schedules) {
                Ok(()) => {
                    " (nothing was moved; the queues of both stores go on as before)".to_owned()
                }
                Err(other) => format!(
                    " (nothing was moved; some queues may stay paused, see `taskharbor queue list`: {})",
                    other.text
                ),
            }
        }
        // Jobs that have arrived, or may have, must not run in two places.
        Reached::Copying => {
            let queues = match paused.names(source).await {
                Ok(names) => clean::line(&names.join(", ")),
                Err(_) => "those of the source".to_owned(),
            };
            format!(
                " ({} arrived; these queues stay paused in both stores: {queues}; move again to go on, or give up and resume them in one store alone with `taskharbor queue resume`)",
                counted(report.arrived(), "job")
            )
        }
        Reached::Arrived => format!(
            " ({} arrived, and run in the destination, where some queues may stay paused; the queues of the source stay paused; move again to finish)",
            counted(report.arrived(), "job")
        ),
    }
}

/// Fails while a worker holds a job, or waits until none does.
async fn held(source: &Side, wait: bool, hold: &Hold) -> Outcome {
    let mut is_told = false;
    loop {
        let counts = source.counts().await?;
        let held: usize = counts.iter().map(|it| it.states.inflight).sum();
        let expired = if held > 0 { expired(source).await? } else { 0 };
        let held = held.saturating_sub(expired);
        if held == 0 {
            return Ok(());
        }
        if !wait {
            let text = format!(
                "workers hold {}: stop them, or pass --wait to wait until they have finished",
                counted(held, "job")
            );
            return Err(Failure::refused("held", text));
        }
        if !is_told {
            tell(&format!("waiting for {} that workers hold", counted(held, "job")));
            is_told = true;
        }
        tokio::select! {
            biased;
            exit = hold.asked() => return Err(interrupted(exit)),
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

/// The number of inflight jobs whose lease has ended.
async fn expired(source: &Side) -> Outcome<usize> {
    let now = source.now().await?;
    let filter = taskharbor::Filter::all().state(taskharbor::State::Inflight);
    let (mut count, mut cursor) = (0, None);
    loop {
        let mut request = taskharbor::List::new(filter.clone(), taskharbor::Limits::MAX_PAGE, now);
        request.after = cursor;
        let page = source.list(request).await?;
        let is_over = |job: &&taskharbor::JobSummary| {
            job.held.as_ref().is_some_and(|held| held.expires_at <= now)
        };
        count += page.items.iter().filter(is_over).count();
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(count),
        }
    }
}

fn interrupted(exit: Exit) -> Failure {
    Failure::new(exit, "interrupted", "the move was interrupted")
}

async fn copy(
    source: &Side,
    destination: &Side,
    paused: &Paused,
    report: &mut Report,
    hold: &Hold,
) -> Outcome {
    let mut pages = Pages::new(source);
    let mut next = pages.next(hold).await?;
    while let Some(units) = next {
        let sizes: Vec<_> =
            units.iter().map(|unit| (unit.jobs.len(), usize::from(unit.key.is_some()))).collect();
        if !sizes.is_empty() && report.reached == Reached::Nothing {
            // Before the first job is in both stores: a move to a third one is refused from here on.
            paused.remember_copied(source).await?;
            report.reached = Reached::Copying;
        }
        // The next page is read while this one is stored.
        let (answers, read) = tokio::join!(destination.import(units), pages.next(hold));
        let before = report.arrived();
        let mut refused = None;
        for (answer, (jobs, keys)) in answers?.into_iter().zip(sizes) {
            match answer {
                Ok(Imported::Stored) => report.moved += jobs,
                Ok(Imported::Existing) => report.existed += jobs,
                Err(why) => {
                    refused.get_or_insert(why);
                    continue;
                }
            }
            report.keys += keys;
        }
        if let Some(why) = refused {
            return Err(not_imported(&why));
        }
        if report.arrived() / TOLD_EVERY > before / TOLD_EVERY {
            tell(&format!("{} jobs", report.arrived()));
        }
        next = read?;
    }
    Ok(())
}

/// Why the destination refused a unit, and what to do.
fn not_imported(why: &ImportRefused) -> Failure {
    match why {
        ImportRefused::KeyHeld(job) => Failure::refused(
            "key_held",
            format!(
                "cannot import job {job}: another job in the destination holds its idempotency key; purge that one, or move into an empty store"
            ),
        ),
        ImportRefused::Overlap(job) => Failure::refused(
            "overlap",
            format!(
                "cannot import job {job}: it is stored in the destination already, but the rest of its flow is not; move into an empty store"
            ),
        ),
        ImportRefused::Damaged(damage) => Failure::error(
            "damaged",
            format!(
                "cannot import a job because its record contradicts itself: {damage}; run `taskharbor check` on the source"
            ),
        ),
        other => Failure::error("import", format!("cannot import a job: {other}")),
    }
}

/// The units of a store, a page at a time.
struct Pages<'a> {
    store: &'a Side,
    cursor: Option<Cursor>,
    limit: usize,
    is_over: bool,
}

impl<'a> Pages<'a> {
    const fn new(store: &'a Side) -> Self {
        Self { store, cursor: None, limit: PAGE / 10, is_over: false }
    }

    /// The next page. Between two of them a move can be interrupted.
    async fn next(&mut self, hold: &Hold) -> Outcome<Option<Vec<ExportUnit>>> {
        if let Some(exit) = hold.asked_for() {
            return Err(interrupted(exit));
        }
        if self.is_over {
            return Ok(None);
        }
        let page = self.store.export(self.cursor.take(), self.limit).await?;
        self.is_over = page.next.is_none();
        self.cursor = page.next;
        let bytes: usize = page.items.iter().flat_map(|unit| &unit.jobs).map(job_bytes).sum();
        self.limit = (page.items.len() * PAGE_BYTES / bytes.max(1)).clamp(10, PAGE);
        Ok(Some(page.items))
    }
}

/// About how much room a job takes.
fn job_bytes(job: &ExportedJob) -> usize {
    1_000 + job.new.payload.len() + job.life.output.as_ref().map_or(0, |output| output.len())
}

#[cfg(test)]
mod tests;
