//! Firing schedules: one call for all whose slots have single jobs, one for each that has flows.

use serde_json::{Value as Json, json};
use taskharbor_core::{
    DriverError, NewJob, Text, Timestamp,
    driver::{Answers, Enqueued, Fire, FireSchedule, Limits, SlotJobs},
    error::{FireRefused, Rejected},
    flow::CheckedSet,
};
use tokio_postgres::Row;

use crate::{
    PostgresDriver,
    answer::{self, get},
    column::{Columns, place},
    enqueue::{self, is_key_free_at},
    error,
    setting::{bigint, count, micros},
    statement::Statements,
    storing::{self, LOCK_WAIT_MS},
    value::Value,
    wake::Work,
};

/// A transaction that has stored the job of a slot or taken its key, and does not end, makes a statement time out. The
/// firings are then tried in ever smaller parts, each of which waits this long, so that one schedule does not hold up the
/// others.
const SHORT_LOCK_WAIT_MS: Option<i64> = Some(50);

/// After this many timeouts a part that times out is not divided again.
const MAX_LOCK_TIMEOUTS: usize = 24;

/// A firing, and what its slots make or why a slot cannot be stored.
#[derive(Debug)]
struct Item<'a> {
    fire: &'a FireSchedule,
    sets: Result<Vec<CheckedSet>, Rejected>,
}

impl<'a> Item<'a> {
    fn of(fire: &'a FireSchedule, limits: &Limits) -> Self {
        let sets = fire.slots.iter().map(|slot| slot.set.check(limits)).collect();
        Self { fire, sets }
    }

    /// The slots with what they make; none if one of them cannot be stored. SCH-4.
    fn slots(&self) -> impl Iterator<Item = (&'a SlotJobs, &CheckedSet)> {
        self.fire.slots.iter().zip(self.sets.iter().flatten())
    }

    /// Whether its slots have to be stored one after another: they have flows, or keys that are free at once.
    fn is_alone(&self, now: Timestamp) -> bool {
        self.slots().any(|(slot, set)| {
            matches!(set, CheckedSet::Flow(_)) || is_key_free_at(slot.job(set), now)
        })
    }

    fn json(&self) -> Json {
        let fire = self.fire;
        json!({
            "name": fire.name.as_str(), "revision": bigint(fire.revision),
            "next_slot": micros(fire.next_slot), "missed": count(fire.missed),
            "error": fire.error.as_ref().map(Text::as_str), "waits_for_key": fire.waits_for_key,
            "is_rejected": self.sets.is_err(),
        })
    }
}

/// Firings that one statement makes.
#[derive(Debug)]
struct Part<'a> {
    items: Vec<Item<'a>>,
    is_alone: bool,
}

impl PostgresDriver {
    pub(crate) async fn fire_schedules(
        &self,
        request: Fire,
    ) -> Answers<Vec<Enqueued>, FireRefused> {
        request.check()?;
        let shared = &self.shared;
        let mut answers = Vec::with_capacity(request.items.len());
        let mut parts: Vec<_> = parts(&request, &shared.limits).into_iter().rev().collect();
        let mut timeouts = 0;
        while let Some(mut part) = parts.pop() {
            let jobs = part.jobs();
            let call = shared.begin_storing(&jobs).await?;
            let columns = Columns::of(jobs)?;
            let texts = (part.items_json(), part.slots_json());
            let (sql, mut values) =
                part.statement(&columns, &texts, &shared.statements, request.now);
            let wait = if timeouts == 0 { LOCK_WAIT_MS } else { SHORT_LOCK_WAIT_MS };
            values.push(Value::BigInt(wait));
            let rows = self.query_notifying(sql, values, call.channel).await;
            if rows.as_ref().is_err_and(error::is_lock_timeout) {
                drop(call.answered(rows));
                timeouts += 1;
                // SCH-3
                match part.split().filter(|_| timeouts < MAX_LOCK_TIMEOUTS) {
                    Some(second) => parts.extend([second, part]),
                    None => answers.extend(part.items.iter().map(|_| Err(FireRefused::Changed))),
                }
                continue;
            }
            let (rows, announcement) = call.answered(rows)?;
            let stored = part.conclude(&rows, &mut answers, request.now)?;
            announcement.send(stored, request.now);
        }
        Ok(answers)
    }
}

/// Sorts the firings of a call into what one statement can do, in their order.
fn parts<'a>(request: &'a Fire, limits: &Limits) -> Vec<Part<'a>> {
    let mut parts: Vec<Part<'a>> = Vec::new();
    for item in request.items.iter().map(|fire| Item::of(fire, limits)) {
        let is_alone = item.is_alone(request.now);
        match parts.last_mut() {
            Some(part) if !is_alone && !part.is_alone => part.items.push(item),
            _ => parts.push(Part { items: vec![item], is_alone }),
        }
    }
    parts
}

impl<'a> Part<'a> {
    /// Takes away the second half of its firings, if there are two.
    fn split(&mut self) -> Option<Self> {
        let items = self.items.split_off(self.items.len().div_ceil(2));
        (!items.is_empty()).then_some(Self { items, is_alone: self.is_alone })
    }

    fn slots(&self) -> impl Iterator<Item = (usize, &'a SlotJobs, &CheckedSet)> {
        let items = self.items.iter().enumerate();
        items.flat_map(|(at, item)| item.slots().map(move |(slot, set)| (at, slot, set)))
    }

    /// The jobs of all slots, one slot after another.
    fn jobs(&self) -> Vec<&'a NewJob> {
        self.slots().flat_map(|(_, slot, _)| &slot.set.jobs).collect()
    }

    fn items_json(&self) -> String {
        Json::from(self.items.iter().map(Item::json).collect::<Vec<_>>()).to_string()
    }

    /// The slots of a firing that is alone, each with the positions of its jobs.
    fn slots_json(&self) -> String {
        let mut last = 0;
        let slots = self.slots().filter(|_| self.is_alone).map(|(_, slot, set)| {
            let first = last + 1;
            last += slot.set.jobs.len();
            let [children, parents, runs] = match set {
                CheckedSet::Flow(edges) => enqueue::edges(edges),
                CheckedSet::Plain => Default::default(),
            };
            json!({
                "slot": slot.at.as_micros(), "first": first, "last": last, "tail": set.tail() + 1,
                "is_flow": matches!(set, CheckedSet::Flow(_)), "name": enqueue::name(&slot.set),
                "children": children, "parents": parents, "runs": runs,
            })
        });
        Json::from(slots.collect::<Vec<_>>()).to_string()
    }

    /// The statement, and what it is given but the wait for other transactions and the channel.
    fn statement<'v>(
        &self,
        columns: &'v Columns<'_>,
        (items, slots): &'v (String, String),
        statements: &'v Statements,
        now: Timestamp,
    ) -> (&'v str, Vec<Value<'v>>) {
        let mut values = vec![Value::BigInt(Some(now.as_micros())), Value::Text(Some(items))];
        let sql = if self.is_alone {
            values.push(Value::Text(Some(slots)));
            values.extend(columns.common());
            values.push(columns.kinds());
            &statements.fire_flows
        } else {
            let times = self.slots().map(|(_, slot, _)| Some(slot.at.as_micros())).collect();
            values.push(Value::BigInts(self.slots().map(|(item, ..)| place(item)).collect()));
            values.push(Value::BigInts(times));
            values.extend(columns.common());
            &statements.fire
        };
        values.extend([columns.keys(), columns.key_holds(), columns.key_times()]);
        (sql, values)
    }

    /// Adds the results of its firings to the answers; returns which queues have work now, or later.
    fn conclude(
        &self,
        rows: &[Row],
        answers: &mut Vec<Result<Vec<Enqueued>, FireRefused>>,
        now: Timestamp,
    ) -> Result<Vec<Work>, DriverError> {
        let mut stored = Vec::new();
        let mut items = self.items.iter();
        for row in rows {
            if get::<Option<i64>>(row, "ord")?.is_none() {
                stored.extend(answer::queues(get(row, "wakes")?).into_iter().map(Work::new));
            } else if let Some(item) = items.next() {
                answers.push(match get::<Option<&str>>(row, "refused")? {
                    Some(refused) => Err(item.refused(refused, get(row, "detail")?)?),
                    None => Ok(item.fired(get(row, "existing")?, &mut stored, now)?),
                });
            }
        }
        match items.next() {
            Some(item) => Err(answer::unknown("answer of schedule", item.fire.name.as_str())),
            None => Ok(stored),
        }
    }
}

impl Item<'_> {
    fn refused(&self, why: &str, detail: Option<&str>) -> Result<FireRefused, DriverError> {
        Ok(match (why, answer::optional_id(detail)?, &self.sets) {
            ("not_found", ..) => FireRefused::NotFound,
            ("changed", ..) => FireRefused::Changed,
            ("paused", ..) => FireRefused::Paused,
            ("rejected", _, Err(rejected)) => rejected.clone().into(),
            ("overlap", Some(job), _) => Rejected::Overlap { job }.into(),
            ("key_held", Some(holder), _) => FireRefused::KeyHeld(holder),
            (other, ..) => return Err(answer::unknown("refusal", other)),
        })
    }

    /// The job that stands for each slot, given those that stand in the places of others. Adds single jobs that were
    /// stored to the work; the queues of flows are told by the store.
    fn fired(
        &self,
        existing: Option<Vec<Option<&str>>>,
        stored: &mut Vec<Work>,
        now: Timestamp,
    ) -> Result<Vec<Enqueued>, DriverError> {
        let slots = self.slots().zip(existing.into_iter().flatten());
        let jobs = slots.map(|((slot, set), existing)| {
            let job = slot.job(set);
            Ok(match answer::optional_id(existing)? {
                Some(id) => Enqueued::Existing(id),
                None => {
                    if matches!(set, CheckedSet::Plain) {
                        storing::add_work(stored, job, now);
                    }
                    Enqueued::Inserted(job.id.clone())
                }
            })
        });
        jobs.collect()
    }
}
