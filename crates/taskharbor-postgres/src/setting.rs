//! Settings: paused queues, schedules and their owners, as they are changed and read.

use std::collections::HashSet;

use serde_json::{Value as Json, json};
use taskharbor_core::{
    DriverError, QueueName, Text, Timestamp,
    admin::{
        Change, Configure, Firing, ListSettings, NewSchedule, Page, QueueLimits, ScheduleRecord,
        Setting, SettingKind, SlotTotals,
    },
    driver::{Answers, Due, DueSchedules, Enqueued},
    error::Denied,
    name::{LaneName, OwnerName, ScheduleName},
};
use tokio_postgres::Row;

use crate::{
    PostgresDriver,
    answer::{self, get},
    column::place,
    limit,
    value::Value,
};

impl PostgresDriver {
    pub(crate) async fn change_settings(&self, request: Configure) -> Answers<(), Denied> {
        request.check()?;
        let mut changes = Changes::default();
        for (at, change) in request.changes.iter().enumerate() {
            changes.add(at, change);
        }
        // WAK-1, WAK-3
        let resumed = request.changes.iter().filter_map(|change| match change {
            Change::ResumeQueue(queue) | Change::Hold { queue, until: None, .. } => {
                Some(queue.clone())
            }
            _ => None,
        });
        let mut resumed: Vec<QueueName> = resumed.collect();
        let text = Json::from(changes.calls).to_string();
        let values = [
            Value::Text(Some(&text)),
            Value::Byteas(changes.definitions),
            Value::BigInt(Some(request.now.as_micros())),
            Value::Text(None),
        ];
        let call = self.shared.wakeups.begin_call(resumed.clone());
        let rows = self.query(&self.shared.statements.configure, &values).await;
        call.answered(&rows);
        let rows = rows?;
        let mut answers = vec![Ok(()); request.changes.len()];
        for row in &rows {
            if get::<&str>(row, "denied")? == "woken" {
                resumed.push(answer::name(QueueName::new(get::<&str>(row, "name")?))?);
                continue;
            }
            let at: usize = answer::number(get::<i64>(row, "ord")? - 1)?;
            if let Some(answer) = answers.get_mut(at) {
                *answer = Err(denied(row)?);
            }
        }
        self.put_in_line(resumed, 0);
        Ok(answers)
    }

    pub(crate) async fn list_settings(
        &self,
        request: ListSettings,
    ) -> Result<Page<Setting>, DriverError> {
        request.check()?;
        let (after_kind, after_name) = request.begin()?.unzip();
        if request.name.as_ref().is_some_and(|name| name.contains('\0')) {
            // PostgreSQL knows no NUL, and no name has one.
            return Ok(Page::new(Vec::new(), None));
        }
        let after_name = after_name.map(|name| name.replace('\0', ""));
        let values = [
            Value::Text(after_kind.map(SettingKind::as_str)),
            Value::Text(after_name.as_deref()),
            Value::Text(request.kind.map(SettingKind::as_str)),
            Value::Text(request.name.as_deref()),
            // One more tells whether there is a further page.
            Value::BigInt(place(request.limit)),
        ];
        let rows = self.query(&self.shared.statements.settings, &values).await?;
        // PAU-3
        let page = rows.iter().take(request.limit).map(setting);
        let page = page.collect::<Result<Vec<_>, _>>()?;
        let next = page.last().filter(|_| rows.len() > request.limit).map(Setting::cursor);
        Ok(Page::new(page, next))
    }

    pub(crate) async fn find_due_schedules(
        &self,
        request: DueSchedules,
    ) -> Result<Due, DriverError> {
        request.check()?;
        let after = request.after.as_ref();
        let (slot, name) = after.map_or((-1, ""), |(slot, name)| (slot.as_micros(), name.as_str()));
        let values = [
            Value::BigInt(Some(request.now.as_micros())),
            Value::BigInt(Some(slot)),
            Value::Text(Some(name)),
            Value::BigInt(i64::try_from(request.limit).ok()),
        ];
        let rows = self.query(&self.shared.statements.due_schedules, &values).await?;
        let next = rows.first().map(|row| get(row, "after_now")).transpose()?.flatten();
        let mut due = Vec::with_capacity(rows.len());
        for row in &rows {
            // There is a row even if no schedule is due.
            if get::<Option<&str>>(row, "name")?.is_some() {
                due.push(schedule(row)?);
            }
        }
        Ok(Due::new(due, answer::optional_time(next)?))
    }
}

/// The changes of a call as the store takes them. Schedules that are put one after another are one change there.
#[derive(Debug, Default)]
struct Changes<'a> {
    calls: Vec<Json>,
    definitions: Vec<Option<&'a [u8]>>,
    /// The schedules that the last change puts.
    put: HashSet<&'a ScheduleName>,
}

impl<'a> Changes<'a> {
    fn add(&mut self, at: usize, change: &'a Change) {
        if let Change::PutSchedule(new) = change {
            let is_first = self.put.is_empty();
            if self.put.insert(&new.name)
                && !is_first
                && let Some(last) = self.calls.last_mut()
                && let Some(schedules) = last["schedules"].as_array_mut()
            {
                schedules.push(new_schedule(new));
                self.definitions.push(Some(&new.definition));
                return;
            }
        }
        self.put.clear();
        let first = place(self.definitions.len());
        let mut call = match change {
            Change::PauseQueue(queue) => json!({ "change": "pause_queue", "name": queue.as_str() }),
            Change::ResumeQueue(queue) => {
                json!({ "change": "resume_queue", "name": queue.as_str() })
            }
            Change::PutSchedule(new) => {
                self.put.insert(&new.name);
                self.definitions.push(Some(&new.definition));
                json!({ "change": "put_schedules", "first": first, "schedules": [new_schedule(new)] })
            }
            Change::DeclareSchedules(declaration) => {
                let schedules = &declaration.schedules;
                self.definitions.extend(schedules.iter().map(|new| Some(&*new.definition)));
                let schedules: Vec<_> = schedules.iter().map(new_schedule).collect();
                json!({
                    "change": "declare_schedules", "name": declaration.owner.as_str(),
                    "version": declaration.version, "first": first, "schedules": schedules,
                })
            }
            Change::PauseSchedule(name) => {
                json!({ "change": "pause_schedule", "name": name.as_str() })
            }
            Change::ResumeSchedule { name, revision, next_slot } => json!({
                "change": "resume_schedule", "name": name.as_str(), "revision": bigint(*revision),
                "next_slot": micros(*next_slot),
            }),
            Change::RemoveSchedule(name) => {
                json!({ "change": "remove_schedule", "name": name.as_str() })
            }
            Change::ImportSchedule(record) => {
                self.definitions.push(Some(&record.definition));
                json!({
                    "change": "import_schedule", "name": record.name.as_str(), "first": first,
                    "schedules": [imported(record)],
                })
            }
            Change::SetLimits { queue, limits } => json!({
                "change": "set_limits", "name": queue.as_str(),
                "limits": limits.as_ref().map(limit::json),
            }),
            Change::DeclareLimits(declaration) => {
                let of_queue = |(queue, limits): &(QueueName, QueueLimits)| {
                    (queue.as_str().to_owned(), limit::json(limits))
                };
                let limits: serde_json::Map<_, _> =
                    declaration.limits.iter().map(of_queue).collect();
                json!({
                    "change": "declare_limits", "owner": declaration.owner.as_str(),
                    "version": declaration.version, "limits": limits,
                })
            }
            Change::ImportLimits(record) => json!({
                "change": "import_limits", "name": record.queue.as_str(),
                "owner": record.owner.as_ref().map(OwnerName::as_str),
                "limits": limit::json(&record.limits),
            }),
            Change::Hold { queue, lane, until } => json!({
                "change": "hold", "name": queue.as_str(), "until": micros(*until),
                "lane": lane.as_ref().map(LaneName::as_str),
            }),
            Change::SetOwnerVersion { owner, version } => json!({
                "change": "set_owner_version", "name": owner.as_str(), "version": version,
            }),
        };
        call["ord"] = json!(place(at));
        self.calls.push(call);
    }
}

fn new_schedule(new: &NewSchedule) -> Json {
    json!({
        "name": new.name.as_str(), "next_slot": micros(new.next_slot), "keeps_slot": new.keeps_slot,
    })
}

/// The columns of a record but its definition.
fn imported(record: &ScheduleRecord) -> Json {
    let firings = record.firings.iter().map(|firing| {
        json!({
            "slot": firing.slot.as_micros(), "fired_at": firing.fired_at.as_micros(),
            "job": firing.job.id().as_str(), "is_stored": firing.job.is_new(),
        })
    });
    let SlotTotals { stored, skipped, missed, .. } = record.totals;
    json!({
        "name": record.name.as_str(), "owner": record.owner.as_ref().map(OwnerName::as_str),
        "next_slot": micros(record.next_slot), "paused_since": micros(record.paused_since),
        "stored": count(stored), "skipped": count(skipped), "missed": count(missed),
        "error": record.error.as_ref().map(Text::as_str), "firings": firings.collect::<Vec<_>>(),
    })
}

pub(crate) fn micros(at: Option<Timestamp>) -> Option<i64> {
    at.map(Timestamp::as_micros)
}

/// A number that the store may have given; no other is found there.
pub(crate) fn bigint(number: u64) -> Option<i64> {
    i64::try_from(number).ok()
}

/// A count, up to what can be stored.
pub(crate) fn count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn denied(row: &Row) -> Result<Denied, DriverError> {
    let name = || answer::name(ScheduleName::new(get::<Option<&str>>(row, "name")?.unwrap_or("")));
    let queue = || answer::name(QueueName::new(get::<Option<&str>>(row, "name")?.unwrap_or("")));
    let detail: Option<&str> = get(row, "detail")?;
    Ok(match get::<&str>(row, "denied")? {
        "not_found" => Denied::ScheduleNotFound,
        "changed" => Denied::ScheduleChanged,
        "exists" => Denied::ScheduleExists(name()?),
        "owned" => Denied::ScheduleOwned { name: name()?, owner: owner(detail)? },
        "limits_owned" => Denied::LimitsOwned { queue: queue()?, owner: owner(detail)? },
        "limits_exist" => Denied::LimitsExist(queue()?),
        "newer_version" => {
            let stored = detail.unwrap_or_default().parse().map_err(DriverError::backend)?;
            Denied::NewerVersion { stored }
        }
        other => return Err(answer::unknown("denial", other)),
    })
}

pub(crate) fn owner(text: Option<&str>) -> Result<Option<OwnerName>, DriverError> {
    text.map(|text| answer::name(OwnerName::new(text))).transpose()
}

fn setting(row: &Row) -> Result<Setting, DriverError> {
    let name: &str = get(row, "name")?;
    Ok(match get::<&str>(row, "kind")? {
        "paused_queue" => Setting::PausedQueue {
            queue: answer::name(QueueName::new(name))?,
            since: answer::time(get(row, "paused_since")?)?,
        },
        "owner" => Setting::Owner {
            owner: answer::name(OwnerName::new(name))?,
            version: answer::number(get(row, "version")?)?,
        },
        "schedule" => Setting::Schedule(Box::new(schedule(row)?)),
        "limits" => Setting::Limits(Box::new(limit::record(row)?)),
        other => return Err(answer::unknown("setting", other)),
    })
}

fn schedule(row: &Row) -> Result<ScheduleRecord, DriverError> {
    let name = answer::name(ScheduleName::new(get::<&str>(row, "name")?))?;
    let definition: &[u8] = get(row, "definition")?;
    let next_slot = answer::optional_time(get(row, "next_slot")?)?;
    let new = NewSchedule::new(name, definition, next_slot);
    let revision = answer::number(get(row, "revision")?)?;
    let mut record = ScheduleRecord::new(new, owner(get(row, "owner")?)?, revision);
    let total = |column| answer::number(get(row, column)?);
    record.paused_since = answer::optional_time(get(row, "paused_since")?)?;
    record.totals = SlotTotals::new(total("stored")?, total("skipped")?, total("missed")?);
    record.error = answer::text(get(row, "error")?);
    let firings: Vec<Json> =
        serde_json::from_str(get(row, "firings")?).map_err(DriverError::backend)?;
    record.firings = firings.iter().map(firing).collect::<Result<_, _>>()?;
    Ok(record)
}

fn firing(json: &Json) -> Result<Firing, DriverError> {
    let time = |field: &str| answer::time(json[field].as_i64().unwrap_or(-1));
    let id = answer::id(json["job"].as_str().unwrap_or_default())?;
    let is_stored = json["is_stored"].as_bool().unwrap_or_default();
    let job = if is_stored { Enqueued::Inserted(id) } else { Enqueued::Existing(id) };
    Ok(Firing::new(time("slot")?, time("fired_at")?, job))
}
