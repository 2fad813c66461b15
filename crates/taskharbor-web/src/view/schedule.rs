//! Schedules: slots, pauses, firing by hand, backfills.

mod definition;
mod draft;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use taskharbor::{
    Cursor, Firing, JobId, Limits, ManageError, ScheduleAdmin, ScheduleInfo, SlotTotals, Timestamp,
};
use taskharbor_core::name::{OwnerName, ScheduleName};

use self::draft::Draft;
use crate::{
    access::Role,
    call::Call,
    endpoint::{Endpoint, Nothing},
    problem::Problem,
};

/// The most coming slots of one answer.
const MAX_NEXT: usize = 100;
/// The slots of a backfill that an answer names.
const MAX_SLOTS: usize = 1_000;
/// How long a backfill may take.
const BACKFILL_TIME: Duration = Duration::from_secs(60);

pub(super) fn endpoints() -> Vec<Endpoint> {
    let act = |name: &str| format!("/v1/{{store}}/schedules/{{name}}/{name}");
    vec![
        Endpoint::get("/v1/{store}/schedules", list).summary("A page of schedules, by name"),
        Endpoint::post("/v1/{store}/schedules", put)
            .needs(Role::Admin)
            .acts("schedule.put")
            .summary("Store a schedule, or replace the one of its name"),
        Endpoint::get("/v1/{store}/schedules/{name}", get)
            .summary("A schedule, with its definition and its coming slots"),
        Endpoint::post(act("pause"), pause)
            .needs(Role::Operator)
            .acts("schedule.pause")
            .summary("Pause a schedule: none of its slots is fired until it is resumed"),
        Endpoint::post(act("resume"), resume)
            .needs(Role::Operator)
            .acts("schedule.resume")
            .summary("Resume a schedule from now on"),
        Endpoint::post(act("run_now"), run_now)
            .needs(Role::Operator)
            .acts("schedule.run_now")
            .summary("Enqueue the job of a schedule now, beside its slots"),
        Endpoint::post(act("backfill"), backfill)
            .needs(Role::Admin)
            .acts("schedule.backfill")
            .time_limit(BACKFILL_TIME)
            .summary("Enqueue the jobs of past slots, or only say which slots those are"),
        Endpoint::post(act("remove"), remove)
            .needs(Role::Admin)
            .acts("schedule.remove")
            .summary("Remove a schedule; its jobs stay"),
    ]
}

/// Which schedules.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ScheduleListQuery")]
struct ListQuery {
    /// The greatest number of items to return, 1 to 1,000; 100 unless set.
    limit: Option<usize>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// A page of schedules.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SchedulePage")]
struct Page {
    items: Vec<View>,
    /// The `after` of the next page, if there may be one.
    next: Option<Cursor>,
}

/// A schedule.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ScheduleView")]
struct View {
    name: ScheduleName,
    /// The service that declared it; `None` if it was put on its own.
    owner: Option<OwnerName>,
    /// When it is due: a cron expression, or `every` and a duration. `None` if this server cannot read
    /// the definition.
    when: Option<String>,
    /// The time zone of the cron expression.
    zone: Option<String>,
    /// What it says, in the answer for one schedule. Payloads are left out unless the caller may see
    /// them.
    #[schemars(with = "Option<serde_json::Value>")]
    definition: Option<Box<RawValue>>,
    /// The next slot; `None` after the last one.
    next_slot: Option<Timestamp>,
    /// The coming slots, in the answer for one schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Vec<Timestamp>>,
    /// Since when it has been paused.
    paused_since: Option<Timestamp>,
    /// The number of its slots so far, by result.
    totals: SlotTotals,
    /// Why the definition cannot be read, or why the last firing stored no jobs.
    error: Option<String>,
    /// The last firings, the newest last.
    firings: Vec<Fired>,
}

/// One slot that was fired.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ScheduleFiring")]
struct Fired {
    slot: Timestamp,
    fired_at: Timestamp,
    /// The job that stands for the slot.
    job: JobId,
    /// Whether it was stored by the firing.
    is_new: bool,
}

impl From<Firing> for Fired {
    fn from(firing: Firing) -> Self {
        let (job, is_new) = (firing.job.id().clone(), firing.job.is_new());
        Self { slot: firing.slot, fired_at: firing.fired_at, job, is_new }
    }
}

impl View {
    fn new(info: ScheduleInfo) -> Self {
        let ScheduleInfo { record, details, .. } = info;
        let unreadable = details.as_ref().err().cloned();
        let (when, zone) = details.map(|it| (Some(it.timing), it.zone)).unwrap_or_default();
        Self {
            name: record.name,
            owner: record.owner,
            when,
            zone,
            definition: None,
            next_slot: record.next_slot,
            next: None,
            paused_since: record.paused_since,
            totals: record.totals,
            error: unreadable.or_else(|| record.error.map(|it| it.as_str().to_owned())),
            firings: record.firings.into_iter().map(Fired::from).collect(),
        }
    }
}

async fn list(call: Call, query: ListQuery) -> Result<Page, Problem> {
    let limit = super::limit(query.limit, Limits::MAX_PAGE)?;
    let after = query.after.map(Cursor::new);
    let page = call.store()?.client.schedules().list(after, limit).await?;
    Ok(Page { items: page.items.into_iter().map(View::new).collect(), next: page.next })
}

/// How much of a schedule.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ScheduleQuery")]
struct Query {
    /// The number of coming slots to return, up to 100; none unless set.
    next: Option<usize>,
}

async fn get(call: Call, query: Query) -> Result<View, Problem> {
    let count = query.next.unwrap_or(0);
    if count > MAX_NEXT {
        return Err(Problem::out_of_range("next", 0, MAX_NEXT));
    }
    let info = find(&call).await?;
    let shown = definition::shown(&info, call.access.payloads);
    let next = if count > 0 && info.details.is_ok() {
        let upcoming = schedules(&call)?.upcoming(info.record.name.as_str(), count).await;
        upcoming.map_err(unusable)?
    } else {
        Vec::new()
    };
    Ok(View { definition: shown, next: Some(next), ..View::new(info) })
}

fn schedules(call: &Call) -> Result<ScheduleAdmin<'_>, Problem> {
    Ok(call.store()?.client.schedules())
}

async fn find(call: &Call) -> Result<ScheduleInfo, Problem> {
    let name: ScheduleName = call.param("name")?;
    let found = schedules(call)?.get(name.as_str()).await?;
    found.ok_or_else(|| taskharbor::Denied::ScheduleNotFound.into())
}

/// What a schedule says cannot be done, as it is stored.
fn unusable(error: ManageError) -> Problem {
    match error {
        ManageError::Schedule(error) => {
            Problem::conflict("schedule_unusable", "the schedule cannot be used", error.to_string())
        }
        other => other.into(),
    }
}

async fn pause(call: Call, _: Nothing) -> Result<Nothing, Problem> {
    let name: ScheduleName = call.param("name")?;
    schedules(&call)?.pause(name.as_str()).await?;
    Ok(Nothing {})
}

async fn resume(call: Call, _: Nothing) -> Result<Nothing, Problem> {
    let name: ScheduleName = call.param("name")?;
    schedules(&call)?.resume(name.as_str()).await.map_err(unusable)?;
    Ok(Nothing {})
}

async fn remove(call: Call, _: Nothing) -> Result<Nothing, Problem> {
    let name: ScheduleName = call.param("name")?;
    schedules(&call)?.remove(name.as_str()).await?;
    Ok(Nothing {})
}

/// The job that was enqueued, or that stands in its place.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ScheduleRun")]
struct Run {
    job: JobId,
    /// Whether it was stored by this call. It was not if the job of an earlier slot still runs, and the
    /// schedule allows no overlap.
    is_new: bool,
}

async fn run_now(call: Call, _: Nothing) -> Result<Run, Problem> {
    let name: ScheduleName = call.param("name")?;
    let job = schedules(&call)?.run_now(name.as_str()).await.map_err(unusable)?;
    call.note(|note| note.ids = vec![job.id().to_string()]);
    Ok(Run { is_new: job.is_new(), job: job.id().clone() })
}

/// The slots of a backfill.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ScheduleBackfill")]
struct Asked {
    /// Slots from this instant on.
    from: Timestamp,
    /// Slots before this instant. There may be 10,000 of them.
    before: Timestamp,
    /// Says only which slots there are.
    #[serde(default)]
    dry_run: bool,
}

/// The slots of a backfill, and what was enqueued.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ScheduleBackfilled")]
struct Backfilled {
    /// The first 1,000 of the slots.
    slots: Vec<Timestamp>,
    /// How many slots there are.
    count: usize,
    /// How many of their jobs were stored. The jobs of the others were stored before.
    #[serde(skip_serializing_if = "Option::is_none")]
    stored: Option<usize>,
}

async fn backfill(call: Call, asked: Asked) -> Result<Backfilled, Problem> {
    let Asked { from, before, dry_run } = asked;
    let details = serde_json::json!({
        "from": from.to_string(), "before": before.to_string(), "dry_run": dry_run,
    });
    call.note(|note| note.details = Some(details));
    if from >= before {
        return Err(Problem::invalid("\"from\" is not earlier than \"before\": swap them"));
    }
    let info = find(&call).await?;
    let (name, schedules) = (info.record.name.as_str(), schedules(&call)?);
    let mut slots = match schedules.slots(name, from, before).await {
        // The definition can be read, so it is the time that is too long.
        Err(ManageError::Schedule(error)) if info.details.is_ok() => {
            return Err(Problem::invalid(error.fault.to_string()));
        }
        slots => slots.map_err(unusable)?,
    };
    let count = slots.len();
    slots.truncate(MAX_SLOTS);
    if dry_run {
        return Ok(Backfilled { slots, count, stored: None });
    }
    let done = schedules.backfill(name, from, before).await.map_err(unusable)?;
    call.note(|note| note.count = Some(done.stored));
    Ok(Backfilled { slots, count, stored: Some(done.stored) })
}

async fn put(call: Call, draft: Draft) -> Result<View, Problem> {
    let name: ScheduleName = draft.name().parse()?;
    call.note(|note| note.ids = vec![name.to_string()]);
    let schedules = schedules(&call)?;
    schedules.put(draft.into_schedule()?).await?;
    let stored = schedules.get(name.as_str()).await?;
    stored.map(View::new).ok_or_else(|| taskharbor::Denied::ScheduleNotFound.into())
}
