//! `taskharbor move`: all jobs from one store to another.
//!
//! The queues of the source are paused first, so that nothing is given to a worker while it is on
//! its way, and stay so: what was copied must not run in two places. What has arrived is not sent
//! again, so that a move which was interrupted goes on where it was.

mod pause;

use std::{collections::HashMap, time::Duration};

use serde::Serialize;
use taskharbor::{Admin, AnyDriver, Cursor, JobId, QueueName};
use taskharbor_core::{
    export::{ExportUnit, Imported},
    life::Stage,
};

use super::bulk::Ahead;
use crate::{
    clean,
    failure::{Failure, Outcome, chain},
    interrupt::{self, Hold},
    screen::{Screen, counted},
    store::{Missing, Url},
    voice::tell,
};
use pause::Paused;

/// Parcels in one call.
const PAGE: usize = 50;
/// How often to look whether workers have let go.
const LOOK: Duration = Duration::from_millis(500);

/// Move all jobs, with their states, attempts, errors and edges, to another store
///
/// Stop producers first. The queues of the source are paused, and stay so: the copy is what runs
/// from then on. Refuses while workers hold jobs, unless told to wait. Started again after it was
/// interrupted, it goes on where it was. At the end, both stores are compared job by job. The source
/// is left as it is, for you to delete.
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
    dry_run: bool,
    /// Whether something was given to the destination.
    #[serde(skip)]
    is_begun: bool,
}

pub(crate) async fn run(args: Args, screen: &mut Screen) -> Outcome {
    let (from, to) = (Url::find(Some(args.from))?, Url::find(Some(args.to))?);
    if from.as_str() == to.as_str() {
        return Err(Failure::usage("--from and --to name the same store"));
    }
    let source = from.open(Missing::Refuse).await?;
    let now = source.now().await?;
    let jobs: usize = source.counts(now).await?.iter().map(|it| it.states.total()).sum();
    let many = counted(jobs, "job");
    let (shown_from, shown_to) = (clean::line(&from.shown()), clean::line(&to.shown()));
    let what = format!("move {many} from {shown_from} to {shown_to}");
    if args.ahead.dry_run {
        let report = Report { moved: jobs, dry_run: true, ..Report::default() };
        return if screen.is_json {
            screen.document(&report)
        } else {
            screen.line(&format!("would {what}"))
        };
    }
    args.ahead.confirm(&what)?;
    let destination = to.open(Missing::Create).await?;
    // From here on something is to be put back if it does not come to an end.
    let hold = Hold::begin();
    if is_same(&source, &destination).await? {
        return Err(Failure::usage("--from and --to lead to the same store"));
    }
    let mut paused = Paused::begin(&source, &destination).await?;
    let mut report = Report::default();
    let moved = async {
        paused.pause(&source, &destination).await?;
        held(&source, args.wait, &hold).await?;
        copy(&source, &destination, &mut report, &hold).await?;
        compare(&source, &destination, &hold).await
    };
    match moved.await {
        Ok(compared) => report.compared = compared,
        Err(mut failure) if !report.is_begun => {
            failure.text += &match paused.undo(&source, &destination).await {
                Ok(()) => {
                    " (nothing was moved; the queues of both stores go on as before)".to_owned()
                }
                Err(other) => format!(
                    " (nothing was moved; some queues may stay paused, see `taskharbor queue list`: {})",
                    other.text
                ),
            };
            return Err(failure);
        }
        // What is there, or is on its way, must not run in two places.
        Err(mut failure) => {
            let queues = match paused.names(&source).await {
                Ok(names) => clean::line(&names.join(", ")),
                Err(_) => "those of the source".to_owned(),
            };
            failure.text += &format!(
                " ({} arrived; these queues stay paused in both stores: {queues}; move again to go on, or give up and resume them in one store alone with `taskharbor queue resume`)",
                counted(report.moved + report.existed, "job")
            );
            return Err(failure);
        }
    }
    paused.end(&source, &destination).await?;
    drop(hold);
    if screen.is_json {
        return screen.document(&report);
    }
    let Report { moved, existed, compared, .. } = report;
    screen.line(&format!(
        "moved {}, {existed} were there before; {compared} are the same in both stores",
        counted(moved, "job")
    ))?;
    screen.line(&format!(
        "the queues in {shown_from} stay paused; delete it when you no longer need it"
    ))
}

/// Whether two addresses lead to one store: what is done in one shows in the other.
async fn is_same(source: &AnyDriver, destination: &AnyDriver) -> Outcome<bool> {
    let now = source.now().await?;
    let id = JobId::generate(now).map_err(|error| Failure::error("random", chain(&error)))?;
    let probe = QueueName::new(format!("{}-{id}", pause::MARK))
        .map_err(|error| Failure::error("name", error.to_string()))?;
    source.pause(probe.clone(), now).await?;
    let shows = destination.counts(now).await;
    source.resume(probe.clone()).await?;
    Ok(shows?.iter().any(|it| it.queue == probe))
}

/// Fails while a worker holds a job, or waits until none does.
async fn held(source: &AnyDriver, wait: bool, hold: &Hold) -> Outcome {
    let mut is_told = false;
    loop {
        let now = source.now().await?;
        let held: usize = source.counts(now).await?.iter().map(|it| it.states.inflight).sum();
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
            () = hold.asked() => return Err(interrupted()),
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// Jobs whose lease is over: nobody holds them any more.
async fn expired(source: &AnyDriver) -> Outcome<usize> {
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

fn interrupted() -> Failure {
    interrupt::interrupted("the move was interrupted")
}

async fn copy(
    source: &AnyDriver,
    destination: &AnyDriver,
    report: &mut Report,
    hold: &Hold,
) -> Outcome {
    let mut pages = Pages::new(source);
    while let Some(parcels) = pages.next(hold).await? {
        let sizes: Vec<usize> = parcels.iter().map(|parcel| parcel.jobs.len()).collect();
        let is_more = !sizes.is_empty();
        report.is_begun |= is_more;
        let mut failed = None;
        for (answer, size) in destination.import(parcels).await?.into_iter().zip(sizes) {
            match answer {
                Imported::Stored => report.moved += size,
                Imported::Existing => report.existed += size,
                other => failed = failed.or(Some(other)),
            }
        }
        match failed {
            None => {}
            Some(Imported::KeyHeld(job)) => {
                let text = format!(
                    "the idempotency key of job {job} is held by another job in the destination: cancel or purge that one, or move into an empty store"
                );
                return Err(Failure::refused("key_held", text));
            }
            Some(Imported::Overlap(job)) => {
                let text = format!(
                    "job {job} is in the destination already, but not the rest of its flow: move into an empty store"
                );
                return Err(Failure::refused("overlap", text));
            }
            Some(other) => {
                return Err(Failure::error(
                    "import",
                    format!("the destination answered {other:?}"),
                ));
            }
        }
        let arrived = report.moved + report.existed;
        if is_more && arrived.is_multiple_of(10_000) {
            tell(&format!("{arrived} jobs"));
        }
    }
    Ok(())
}

/// Compares everything that is in the source with the same in the destination; how many jobs.
async fn compare(source: &AnyDriver, destination: &AnyDriver, hold: &Hold) -> Outcome<usize> {
    let mut arrived = HashMap::new();
    let mut pages = Pages::new(destination);
    while let Some(parcels) = pages.next(hold).await? {
        for parcel in parcels {
            if let Some(first) = parcel.jobs.first() {
                arrived.insert(first.new.id.clone(), fingerprint(&parcel));
            }
        }
    }
    let mut jobs = 0;
    let mut pages = Pages::new(source);
    while let Some(parcels) = pages.next(hold).await? {
        for parcel in parcels {
            let Some(first) = parcel.jobs.first() else { continue };
            let id = first.new.id.clone();
            if arrived.get(&id) != Some(&fingerprint(&parcel)) {
                let text = format!(
                    "job {id} is not the same in both stores: something changed it meanwhile; stop producers and workers of both, and compare it with `taskharbor inspect`"
                );
                return Err(Failure::error("different", text));
            }
            jobs += parcel.jobs.len();
        }
    }
    Ok(jobs)
}

/// What tells one content from another. Leases that are over may be taken back in the destination.
fn fingerprint(parcel: &ExportUnit) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    let mut parcel = parcel.clone();
    for job in &mut parcel.jobs {
        if matches!(job.life.stage, Stage::Inflight(_)) {
            job.life.stage = Stage::Waiting;
        }
    }
    // What is printed for debugging has all but the content of payloads, outputs and headers. Of
    // tokens it has enough to tell two apart.
    format!("{parcel:?}").hash(&mut hasher);
    for job in &parcel.jobs {
        job.new.payload[..].hash(&mut hasher);
        job.life.output.as_deref().hash(&mut hasher);
        for header in job.new.headers.iter() {
            header.hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// The parcels of a store, a page at a time.
struct Pages<'a> {
    store: &'a AnyDriver,
    cursor: Option<Cursor>,
    is_over: bool,
}

impl<'a> Pages<'a> {
    const fn new(store: &'a AnyDriver) -> Self {
        Self { store, cursor: None, is_over: false }
    }

    /// The next page. Between two of them a move can be interrupted.
    async fn next(&mut self, hold: &Hold) -> Outcome<Option<Vec<ExportUnit>>> {
        if hold.is_asked() {
            return Err(interrupted());
        }
        if self.is_over {
            return Ok(None);
        }
        let page = self.store.export(self.cursor.take(), PAGE).await?;
        self.is_over = page.next.is_none();
        self.cursor = page.next;
        Ok(Some(page.items))
    }
}
