//! Limits of queues and lanes as they are stored and read.

use std::time::Duration;

use serde_json::{Map, Value as Json, json};
use taskharbor_core::{
    DriverError, QueueName, Timestamp,
    admin::{
        HeldJob, LaneLimits, LaneStatus, LimitsRecord, ListLanes, Page, QueueLimits, Rate, Usage,
    },
    name::LaneName,
};
use tokio_postgres::Row;

use crate::{
    PostgresDriver,
    answer::{self, get},
    column::place,
    value::Value,
};

impl PostgresDriver {
    pub(crate) async fn list_lanes(
        &self,
        request: ListLanes,
    ) -> Result<Page<LaneStatus>, DriverError> {
        request.check()?;
        let after = request.begin()?;
        let after = after.as_ref().map(|lane| lane.as_ref().map_or("", LaneName::as_str));
        let values = [
            Value::Text(Some(request.queue.as_str())),
            Value::Text(after),
            // One more tells whether there is a further page.
            Value::BigInt(place(request.limit)),
            Value::BigInt(Some(request.now.as_micros())),
        ];
        let rows = self.query(&self.shared.statements.lanes, &values).await?;
        let lanes = rows.iter().take(request.limit).map(|row| status(row, request.now));
        let lanes = lanes.collect::<Result<Vec<_>, _>>()?;
        let next = lanes.last().filter(|_| rows.len() > request.limit).map(LaneStatus::cursor);
        Ok(Page::new(lanes, next))
    }
}

fn status(row: &Row, now: Timestamp) -> Result<LaneStatus, DriverError> {
    let lane = get::<&str>(row, "lane")?;
    let lane = if lane.is_empty() { None } else { Some(answer::name(LaneName::new(lane))?) };
    let number = |column| answer::number(get(row, column)?);
    let held_back = held_back(row, lane.as_ref(), "queue_inflight", now)?;
    Ok(LaneStatus::new(lane, number("ready")?, number("inflight")?, held_back))
}

/// What holds a ready job of this lane back, as `th_usage` tells. LIM-4.
pub(crate) fn held_back(
    row: &Row,
    lane: Option<&LaneName>,
    inflight: &str,
    now: Timestamp,
) -> Result<Option<HeldJob>, DriverError> {
    let usage = |inflight: &str, tat: &str, held_until: &str| {
        let time = |column| {
            let at = answer::optional_time(get(row, column)?)?;
            Ok::<_, DriverError>(at.unwrap_or(Timestamp::EPOCH))
        };
        let inflight = answer::count(get(row, inflight)?)?;
        Ok::<_, DriverError>(Usage::new(inflight, time(tat)?, time(held_until)?))
    };
    let limits = match get::<Option<&str>>(row, "limits")? {
        Some(text) => read(text)?,
        None => QueueLimits::new(),
    };
    let of_queue = usage(inflight, "tat", "held_until")?;
    let of_lane = match lane {
        Some(_) => usage("lane_inflight", "lane_tat", "lane_held_until")?,
        None => Usage::NONE,
    };
    Ok(limits.held_back(lane, &of_queue, &of_lane, now))
}

/// Limits of a queue as they are stored.
pub(crate) fn record(row: &Row) -> Result<LimitsRecord, DriverError> {
    let queue = answer::name(QueueName::new(get::<&str>(row, "name")?))?;
    let owner = crate::setting::owner(get(row, "owner")?)?;
    Ok(LimitsRecord::new(queue, owner, read(get(row, "limits")?)?))
}

/// Limits as the functions of the store read them. What is not set is left out.
pub(crate) fn json(limits: &QueueLimits) -> Json {
    let mut object = Map::new();
    put(&mut object, "inflight", limits.inflight.map(Json::from));
    put(&mut object, "per_lane", limits.per_lane.map(Json::from));
    put(&mut object, "rate", limits.rate.map(rate));
    put(&mut object, "lane_rate", limits.lane_rate.map(rate));
    let lanes: Map<_, _> = limits
        .lanes
        .iter()
        .map(|(lane, limits)| (lane.as_str().to_owned(), lane_json(limits)))
        .collect();
    put(&mut object, "lanes", (!lanes.is_empty()).then_some(Json::from(lanes)));
    Json::from(object)
}

fn lane_json(limits: &LaneLimits) -> Json {
    let mut object = Map::new();
    put(&mut object, "inflight", limits.inflight.map(Json::from));
    put(&mut object, "rate", limits.rate.map(rate));
    put(&mut object, "weight", limits.weight.map(Json::from));
    Json::from(object)
}

fn put(object: &mut Map<String, Json>, name: &str, value: Option<Json>) {
    object.extend(value.map(|value| (name.to_owned(), value)));
}

/// The range was checked, so nothing is cut off.
fn rate(rate: Rate) -> Json {
    let per_us = u64::try_from(rate.per.as_micros()).unwrap_or(u64::MAX);
    json!({ "jobs": rate.jobs, "per_us": per_us, "burst": rate.burst })
}

fn read(text: &str) -> Result<QueueLimits, DriverError> {
    let json: Json = serde_json::from_str(text).map_err(DriverError::backend)?;
    let mut limits = QueueLimits::new();
    limits.inflight = number(&json["inflight"])?;
    limits.per_lane = number(&json["per_lane"])?;
    limits.rate = read_rate(&json["rate"])?;
    limits.lane_rate = read_rate(&json["lane_rate"])?;
    for (lane, json) in json["lanes"].as_object().into_iter().flatten() {
        let mut own = LaneLimits::new();
        own.inflight = number(&json["inflight"])?;
        own.rate = read_rate(&json["rate"])?;
        own.weight = number(&json["weight"])?;
        limits = limits.lane(lane, own);
    }
    limits.check()?;
    Ok(limits)
}

fn read_rate(json: &Json) -> Result<Option<Rate>, DriverError> {
    let (Some(jobs), Some(burst), Some(per_us)) =
        (number(&json["jobs"])?, number(&json["burst"])?, json["per_us"].as_u64())
    else {
        return Ok(None);
    };
    Ok(Some(Rate::per(jobs, Duration::from_micros(per_us)).burst(burst)))
}

fn number(json: &Json) -> Result<Option<u32>, DriverError> {
    let number = json.as_u64().map(u32::try_from);
    number.transpose().map_err(DriverError::backend)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_they_were_written() {
        let second = Duration::from_secs(1);
        let all = QueueLimits::new()
            .inflight(50)
            .per_lane(2)
            .rate(Rate::per(90, 10 * second).burst(10))
            .lane_rate(Rate::per(1, second))
            .weight("gold", 3)
            .lane("a \"b\"", LaneLimits::new().inflight(4).rate(Rate::per(2, second)));
        for limits in [QueueLimits::new(), all] {
            assert_eq!(read(&json(&limits).to_string()).unwrap(), limits);
        }
    }
}
