//! Limits of queues and holds: what is configured, and the text it is stored as.

use std::{collections::HashSet, time::Duration};

use rusqlite::{Row, params};
use serde_json::{Map, Value, json};
use taskharbor_core::{
    QueueName, Timestamp,
    admin::{Change, LaneLimits, LimitsDeclaration, LimitsRecord, QueueLimits, Rate},
    error::Denied,
    name::{LaneName, OwnerName},
};

use super::Store;
use crate::{
    entry::{self, text},
    error::Fault,
    statement as sql,
};

type Answer = Result<Result<(), Denied>, Fault>;

impl Store<'_> {
    pub(super) fn change_limits(&mut self, change: &Change) -> Answer {
        match change {
            Change::SetLimits { queue, limits } => self.set_limits(queue, limits.as_ref()),
            Change::DeclareLimits(declaration) => self.declare_limits(declaration),
            Change::ImportLimits(record) => self.import_limits(record),
            Change::Hold { queue, lane, until } => self.hold(queue, lane.as_ref(), *until).map(Ok),
            _ => Ok(Ok(())),
        }
    }

    fn limits_of(&self, queue: &QueueName) -> Result<Option<LimitsRecord>, Fault> {
        let mut statement = self.statement(sql::LIMITS_OF)?;
        let mut rows = statement.query([queue.as_str()])?;
        rows.next()?.map(read).transpose()
    }

    fn set_limits(&mut self, queue: &QueueName, limits: Option<&QueueLimits>) -> Answer {
        // LIM-8
        if let Some(stored) = self.limits_of(queue)?
            && let Err(denied) = stored.check_owner(None)
        {
            return Ok(Err(denied));
        }
        match limits {
            Some(limits) => self.replace_limits(queue, limits, None).map(Ok),
            None => self.remove_limits(queue).map(Ok),
        }
    }

    fn replace_limits(
        &mut self,
        queue: &QueueName,
        limits: &QueueLimits,
        owner: Option<&OwnerName>,
    ) -> Result<(), Fault> {
        let is_first = self.limits_of(queue)?.is_none();
        let owner = owner.map(OwnerName::as_str);
        self.execute(sql::SET_LIMITS, params![queue.as_str(), owner, to_text(limits)])?;
        // LIM-6
        if is_first {
            self.execute(sql::COUNT_LEASES, [queue.as_str()])?;
        }
        // WAK-3
        self.wake_queue(queue);
        Ok(())
    }

    fn remove_limits(&mut self, queue: &QueueName) -> Result<(), Fault> {
        // Holds stay.
        for sql in [
            sql::REMOVE_LIMITS,
            sql::DROP_QUEUE,
            sql::FORGET_LEASES,
            sql::FORGET_CHARGES,
            sql::DROP_LANES,
        ] {
            self.execute(sql, [queue.as_str()])?;
        }
        // WAK-3
        self.wake_queue(queue);
        Ok(())
    }

    fn declare_limits(&mut self, declaration: &LimitsDeclaration) -> Answer {
        let owner = &declaration.owner;
        if let Err(denied) = declaration.check_version(self.owner_version(owner)?) {
            return Ok(Err(denied));
        }
        // Before the first of them is changed.
        for (queue, _) in &declaration.limits {
            if let Some(stored) = self.limits_of(queue)?
                && let Err(denied) = stored.check_owner(Some(owner))
            {
                return Ok(Err(denied));
            }
        }
        let kept: HashSet<&str> = declaration.limits.iter().map(|(it, _)| it.as_str()).collect();
        let mut statement = self.statement(sql::LIMITS_OWNED)?;
        let names = statement.query_map([owner.as_str()], |row| row.get::<_, String>(0))?;
        for name in names.collect::<Result<Vec<_>, _>>()? {
            if !kept.contains(name.as_str()) {
                self.remove_limits(&entry::name(QueueName::new(name))?)?;
            }
        }
        for (queue, limits) in &declaration.limits {
            self.replace_limits(queue, limits, Some(owner))?;
        }
        self.set_owner_version(owner, declaration.version).map(Ok)
    }

    fn import_limits(&mut self, record: &LimitsRecord) -> Answer {
        // LIM-8
        match self.limits_of(&record.queue)? {
            Some(stored) if stored == *record => Ok(Ok(())),
            Some(_) => Ok(Err(Denied::LimitsExist(record.queue.clone()))),
            None => {
                self.replace_limits(&record.queue, &record.limits, record.owner.as_ref()).map(Ok)
            }
        }
    }

    fn hold(
        &mut self,
        queue: &QueueName,
        lane: Option<&LaneName>,
        until: Option<Timestamp>,
    ) -> Result<(), Fault> {
        let name = queue.as_str();
        // RAT-4
        match (lane.map(LaneName::as_str), until.map(Timestamp::as_micros)) {
            (None, Some(until)) => drop(self.execute(sql::HOLD_QUEUE, params![name, until])?),
            (Some(lane), Some(until)) => {
                self.execute(sql::HOLD_LANE, params![name, lane, until])?;
            }
            (None, None) => {
                self.execute(sql::END_QUEUE_HOLD, [name])?;
                self.execute(sql::DROP_QUEUE, [name])?;
            }
            (Some(lane), None) => {
                self.execute(sql::END_LANE_HOLD, [name, lane])?;
                self.execute(sql::DROP_LANES, [name])?;
            }
        }
        if until.is_none() {
            // WAK-3
            self.wake_queue(queue);
        }
        Ok(())
    }
}

/// A record as its row has it.
pub(super) fn read(row: &Row<'_>) -> Result<LimitsRecord, Fault> {
    let queue = entry::name(QueueName::new(text(row, 0)?))?;
    let owner = row.get::<_, Option<String>>(1)?.map(OwnerName::new);
    let owner = owner.map(entry::name).transpose()?;
    Ok(LimitsRecord::new(queue, owner, parse(text(row, 2)?)?))
}

fn to_text(limits: &QueueLimits) -> String {
    let lane = |(name, lane): (&LaneName, &LaneLimits)| {
        let mut map = Map::new();
        put(&mut map, "inflight", lane.inflight.map(Value::from));
        put(&mut map, "rate", lane.rate.map(rate_value));
        put(&mut map, "weight", lane.weight.map(Value::from));
        (name.to_string(), Value::Object(map))
    };
    let mut map = Map::new();
    put(&mut map, "inflight", limits.inflight.map(Value::from));
    put(&mut map, "rate", limits.rate.map(rate_value));
    put(&mut map, "per_lane", limits.per_lane.map(Value::from));
    put(&mut map, "lane_rate", limits.lane_rate.map(rate_value));
    if !limits.lanes.is_empty() {
        let lanes = limits.lanes.iter().map(lane).collect();
        map.insert("lanes".to_owned(), Value::Object(lanes));
    }
    Value::Object(map).to_string()
}

fn put(map: &mut Map<String, Value>, name: &str, value: Option<Value>) {
    if let Some(value) = value {
        map.insert(name.to_owned(), value);
    }
}

fn rate_value(rate: Rate) -> Value {
    // The range was checked, so nothing is cut off.
    json!([rate.jobs, u64::try_from(rate.per.as_micros()).unwrap_or(u64::MAX), rate.burst])
}

/// Limits as [`to_text`] has written them.
pub(super) fn parse(text: &str) -> Result<QueueLimits, Fault> {
    let map: Map<String, Value> = serde_json::from_str(text).map_err(|_| damaged())?;
    let mut limits = QueueLimits::new();
    limits.inflight = count(&map, "inflight")?;
    limits.rate = rate(&map, "rate")?;
    limits.per_lane = count(&map, "per_lane")?;
    limits.lane_rate = rate(&map, "lane_rate")?;
    if let Some(lanes) = map.get("lanes") {
        for (name, value) in lanes.as_object().ok_or_else(damaged)? {
            let map = value.as_object().ok_or_else(damaged)?;
            let mut lane = LaneLimits::new();
            lane.inflight = count(map, "inflight")?;
            lane.rate = rate(map, "rate")?;
            lane.weight = count(map, "weight")?;
            limits.lanes.insert(entry::name(LaneName::new(name))?, lane);
        }
    }
    Ok(limits)
}

fn damaged() -> Fault {
    Fault::damaged("limits")
}

fn number(value: &Value) -> Result<u32, Fault> {
    value.as_u64().and_then(|it| u32::try_from(it).ok()).ok_or_else(damaged)
}

fn count(map: &Map<String, Value>, name: &str) -> Result<Option<u32>, Fault> {
    map.get(name).map(number).transpose()
}

fn rate(map: &Map<String, Value>, name: &str) -> Result<Option<Rate>, Fault> {
    let Some(value) = map.get(name) else { return Ok(None) };
    let Some([jobs, per, burst]) = value.as_array().map(Vec::as_slice) else {
        return Err(damaged());
    };
    let per = Duration::from_micros(per.as_u64().ok_or_else(damaged)?);
    Ok(Some(Rate::per(number(jobs)?, per).burst(number(burst)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_back_as_they_were() {
        let rate = Rate::per(90, Duration::from_micros(10_000_001)).burst(10);
        let lane = LaneLimits::new().inflight(3).rate(Rate::per(1, Rate::MAX_SPAN));
        let all = QueueLimits::new().inflight(50).per_lane(2).rate(rate).lane_rate(rate);
        let all = all.weight("gold \"1\"", 3).lane("tin", lane);
        for limits in [QueueLimits::new(), QueueLimits::new().per_lane(1), all] {
            let text = to_text(&limits);
            let Ok(parsed) = parse(&text) else { panic!("{text}") };
            assert_eq!(parsed, limits);
        }
        for text in ["", "[]", r#"{"inflight":-1}"#, r#"{"rate":[1,2]}"#, r#"{"lanes":{"":{}}}"#] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
