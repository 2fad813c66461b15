//! `taskharbor move`: all jobs from one store to another.
//!
//! The queues of the source are paused first, so that no worker gets a job that is being copied, and
//! they stay paused: a copied job must not run in two places. A unit that has arrived is not stored
//! again, so an interrupted move can be repeated.

mod pause;

use std::{collections::HashMap, time::Duration};

use serde::Serialize;
use taskharbor::{Admin, AnyDriver, Cursor, JobId, QueueName};
use taskharbor_core::{
    Timestamp,
    admin::Counts,
    export::{ExportUnit, ImportRefused, Imported},
    life::Stage,
    name::IdempotencyKey,
};

use super::bulk::Ahead;
use crate::{
    clean,
    failure::{Failure, Outcome, chain},
    interrupt::{self, Hold},
    screen::{Screen, counted},
    stderr::tell,
    store::{Missing, Url},
};
use pause::Paused;

/// Units in one call.
const PAGE: usize = 50;
/// Time between two looks at the jobs that workers hold.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Move all jobs, with their states, attempts, errors and edges, to another store
///
/// Stop producers first. The queues of the source are paused and stay paused, because the jobs run in
/// the destination from then on. The command refuses to start while workers hold jobs, unless --wait
/// is given. An interrupted move can be repeated: it continues where it stopped. At the end, both
/// stores are compared job by job. The source is left as it is, for you to delete.
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
    let counts = source.counts(Counts::new(now)).await?;
    let jobs: usize = counts.iter().map(|it| it.states.total()).sum();
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
    // From here on, pauses have to be undone if the move fails.
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
        let compared = compare(&source, &destination, &hold).await?;
        paused.check(&source).await?;
        Ok::<_, Failure>(compared)
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
        // Jobs that have arrived, or may have, must not run in two places.
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
    let Report { moved, existed, compared, keys, .. } = report;
    screen.line(&format!(
        "moved {}, {existed} were there before; {compared} are the same in both stores",
        counted(moved, "job")
    ))?;
    if keys > 0 {
        let keys = counted(keys, "idempotency key");
        screen.line(&format!("also moved {keys} that outlived the jobs they were used for"))?;
    }
    screen.line(&format!(
        "the queues in {shown_from} stay paused; delete that store when you no longer need it"
    ))
}

/// Whether two addresses lead to one store: what is done in one shows in the other.
async fn is_same(source: &AnyDriver, destination: &AnyDriver) -> Outcome<bool> {
    let now = source.now().await?;
    let id = JobId::generate(now).map_err(|error| Failure::error("random", chain(&error)))?;
    let probe = QueueName::new(format!("{}-{id}", pause::MARK))
        .map_err(|error| Failure::error("name", error.to_string()))?;
    source.pause(probe.clone(), now).await?;
    let seen = pause::pauses(destination).await;
    source.resume(probe.clone(), now).await?;
    Ok(seen?.contains_key(&probe))
}

/// Fails while a worker holds a job, or waits until none does.
async fn held(source: &AnyDriver, wait: bool, hold: &Hold) -> Outcome {
    let mut is_told = false;
    loop {
        let now = source.now().await?;
        let counts = source.counts(Counts::new(now)).await?;
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
            () = hold.asked() => return Err(interrupted()),
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

/// The number of inflight jobs whose lease is over.
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
    while let Some(units) = pages.next(hold).await? {
        let sizes: Vec<_> =
            units.iter().map(|unit| (unit.jobs.len(), usize::from(unit.key.is_some()))).collect();
        let is_more = !sizes.is_empty();
        report.is_begun |= is_more;
        let mut refused = None;
        for (answer, (jobs, keys)) in destination.import(units).await?.into_iter().zip(sizes) {
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
        let arrived = report.moved + report.existed;
        if is_more && arrived.is_multiple_of(10_000) {
            tell(&format!("{arrived} jobs"));
        }
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

/// What identifies a unit in both stores.
#[derive(PartialEq, Eq, Hash)]
enum UnitId {
    Jobs(JobId),
    Key(QueueName, IdempotencyKey),
}

impl UnitId {
    fn of(unit: &ExportUnit) -> Option<Self> {
        let job = unit.jobs.first().map(|job| Self::Jobs(job.new.id.clone()));
        let key = unit.key.as_ref();
        job.or_else(|| key.map(|key| Self::Key(key.queue.clone(), key.key.clone())))
    }
}

/// Compares everything in the source with the same in the destination; answers how many jobs.
async fn compare(source: &AnyDriver, destination: &AnyDriver, hold: &Hold) -> Outcome<usize> {
    let mut arrived = HashMap::new();
    let mut pages = Pages::new(destination);
    while let Some(units) = pages.next(hold).await? {
        for unit in units {
            if let Some(id) = UnitId::of(&unit) {
                arrived.insert(id, fingerprint(&unit));
            }
        }
    }
    let now = source.now().await?;
    let mut jobs = 0;
    let mut pages = Pages::new(source);
    while let Some(units) = pages.next(hold).await? {
        for unit in units {
            let Some(id) = UnitId::of(&unit) else { continue };
            if arrived.get(&id) != Some(&fingerprint(&unit)) && !is_expired_key(&unit, now) {
                let what = match id {
                    UnitId::Jobs(job) => format!("job {job}"),
                    UnitId::Key(queue, key) => format!("key {key} of queue {queue}"),
                };
                let text = format!(
                    "{what} is not the same in both stores: it was changed meanwhile; stop producers and workers of both stores, and compare it with `taskharbor inspect`"
                );
                return Err(Failure::error("different", text));
            }
            jobs += unit.jobs.len();
        }
    }
    Ok(jobs)
}

/// Whether the unit is a key that is free by now, which a store may forget at any time.
fn is_expired_key(unit: &ExportUnit, now: Timestamp) -> bool {
    unit.key.as_ref().is_some_and(|key| key.held_until <= now)
}

/// A hash of everything in a unit. Leases that are over may be reclaimed in the destination.
fn fingerprint(unit: &ExportUnit) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    let mut unit = unit.clone();
    for job in &mut unit.jobs {
        if matches!(job.life.stage, Stage::Inflight(_)) {
            job.life.stage = Stage::Waiting;
        }
    }
    // The debug output has everything but the content of payloads, outputs and headers. Of tokens it
    // has enough to tell two apart.
    format!("{unit:?}").hash(&mut hasher);
    for job in &unit.jobs {
        job.new.payload[..].hash(&mut hasher);
        job.life.output.as_deref().hash(&mut hasher);
        for header in job.new.headers.iter() {
            header.hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// The units of a store, a page at a time.
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
