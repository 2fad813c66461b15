//! Queues: pauses, limits, lanes and holds.
//!
//! A queue is there as soon as a job is enqueued in it, and a name may be configured before that. So no
//! queue is unknown: one without limits answers that it has none.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use taskharbor::{
    Admin, Cursor, LaneName, LaneStatus, Limits, LimitsRecord, QueueLimits, QueueName, Timestamp,
};
use taskharbor_core::admin::{Change, Configure, ListLanes};

use crate::{
    access::Role,
    call::Call,
    contract::note,
    endpoint::{Endpoint, Nothing},
    problem::Problem,
};

/// The longest hold.
const MAX_HOLD: Duration = Duration::from_secs(366 * 86_400);

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::post("/v1/{store}/queues/{queue}/pause", pause)
            .needs(Role::Operator)
            .acts("queue.pause")
            .summary("Pause a queue: no job of it starts until it is resumed"),
        Endpoint::post("/v1/{store}/queues/{queue}/resume", resume)
            .needs(Role::Operator)
            .acts("queue.resume")
            .summary("Resume a queue"),
        Endpoint::get("/v1/{store}/queues/{queue}/limits", limits)
            .summary("The limits of a queue, and who declared them"),
        Endpoint::post("/v1/{store}/queues/{queue}/limits", set_limits)
            .needs(Role::Admin)
            .acts("queue.limit")
            .summary("Set or remove the limits of a queue"),
        Endpoint::get("/v1/{store}/queues/{queue}/lanes", lanes)
            .summary("A page of the lanes of a queue, by name"),
        Endpoint::post("/v1/{store}/queues/{queue}/hold", hold)
            .needs(Role::Operator)
            .acts("queue.hold")
            .summary("Hold a queue or a lane for a time, or end the hold"),
    ]
}

/// Reads a field that has to be there, but may be `null`.
fn nullable<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    from: D,
) -> Result<Option<T>, D::Error> {
    Option::deserialize(from)
}

async fn pause(call: Call, _: Nothing) -> Result<Nothing, Problem> {
    let change = Change::PauseQueue(call.param("queue")?);
    configure(&call, change).await
}

async fn resume(call: Call, _: Nothing) -> Result<Nothing, Problem> {
    let change = Change::ResumeQueue(call.param("queue")?);
    configure(&call, change).await
}

async fn configure(call: &Call, change: Change) -> Result<Nothing, Problem> {
    let (store, now) = call.store_now().await?;
    for answer in store.driver.configure(Configure::new(vec![change], now)).await? {
        answer?;
    }
    Ok(Nothing {})
}

/// The limits of a queue as they are stored.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "StoredLimits")]
struct Stored {
    queue: QueueName,
    /// The service that declared them; `None` if there are none or they were set on their own.
    owner: Option<String>,
    /// The limits; `None` if the queue is not limited.
    limits: Option<QueueLimits>,
}

async fn limits(call: Call, _: Nothing) -> Result<Stored, Problem> {
    let queue: QueueName = call.param("queue")?;
    let record = call.store()?.client.queue(queue.as_str()).limits().await?;
    Ok(match record {
        Some(LimitsRecord { owner, limits, .. }) => {
            let owner = owner.map(|owner| owner.as_str().to_owned());
            Stored { queue, owner, limits: Some(limits) }
        }
        None => Stored { queue, owner: None, limits: None },
    })
}

/// The limits that a queue gets, in place of those it has.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "LimitsChange", extend("required" = ["limits"]))]
struct NewLimits {
    /// The limits; `null` removes them.
    #[serde(deserialize_with = "nullable")]
    limits: Option<QueueLimits>,
}

async fn set_limits(call: Call, new: NewLimits) -> Result<Stored, Problem> {
    let queue: QueueName = call.param("queue")?;
    let limits = new.limits.filter(|limits| !limits.is_empty());
    // A time that is too long for JSON's numbers is too long for a store.
    let details =
        limits.as_ref().map(note::limits).transpose().map_err(|_| {
            Problem::out_of_range("the time of a rate, in nanoseconds", 1, u64::MAX)
        })?;
    call.note(|note| note.details = Some(details.unwrap_or_default()));
    configure(&call, Change::SetLimits { queue, limits }).await?;
    self::limits(call, Nothing {}).await
}

/// Which lanes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "LaneQuery")]
struct Query {
    /// The greatest number of items to return, 1 to 1,000; 100 unless set.
    limit: Option<usize>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// A page of lanes. Jobs without a lane are one, the first.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "LanePage")]
struct Page {
    items: Vec<LaneStatus>,
    /// The `after` of the next page, if there may be one.
    next: Option<Cursor>,
}

async fn lanes(call: Call, query: Query) -> Result<Page, Problem> {
    let queue: QueueName = call.param("queue")?;
    let limit = super::limit(query.limit, Limits::MAX_PAGE)?;
    let (store, now) = call.store_now().await?;
    let mut request = ListLanes::new(queue, limit, now);
    request.after = query.after.map(Cursor::new);
    let page = store.driver.lanes(request).await?;
    Ok(Page { items: page.items, next: page.next })
}

/// A hold of a queue, or of one of its lanes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "HoldChange", extend("required" = ["until"]))]
struct NewHold {
    /// The lane; the whole queue if it is not given.
    lane: Option<LaneName>,
    /// No job starts before this instant, at most 366 days ahead. A hold that lasts longer stays; `null`
    /// ends the hold.
    #[serde(deserialize_with = "nullable")]
    until: Option<Timestamp>,
}

async fn hold(call: Call, hold: NewHold) -> Result<Nothing, Problem> {
    let queue: QueueName = call.param("queue")?;
    let (_, now) = call.store_now().await?;
    let last = now.saturating_add(MAX_HOLD);
    if hold.until.is_some_and(|until| until <= now || until > last) {
        return Err(Problem::out_of_range("until", now, last));
    }
    let until = hold.until.map(|it| it.to_string());
    let lane = hold.lane.as_ref().map(LaneName::as_str);
    let details = serde_json::json!({ "lane": lane, "until": until });
    call.note(|note| note.details = Some(details));
    configure(&call, Change::Hold { queue, lane: hold.lane, until: hold.until }).await
}
