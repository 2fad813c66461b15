//! [`Draft`]: a schedule as a caller gives it.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use taskharbor::{Blob, Missed, Options, Overlap, Schedule, Timestamp};

use crate::problem::Problem;

/// A hundred years: the longest duration that a schedule takes.
const MAX_SECONDS: f64 = 100.0 * 365.0 * 86_400.0;

/// A schedule with one job. Either `cron` or `every_seconds` is given.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ScheduleDraft")]
pub(super) struct Draft {
    /// Its name. It replaces the schedule of this name, if that has no owner.
    name: String,
    /// When it is due: minute, hour, day of month, month and weekday, or `@daily` and the like.
    cron: Option<String>,
    /// The time zone of `cron`, such as `Europe/Berlin`. Defaults to UTC.
    zone: Option<String>,
    /// How often it is due.
    every_seconds: Option<f64>,
    /// The type of its job.
    r#type: String,
    /// The queue of its job. Defaults to `default`.
    queue: Option<String>,
    /// The payload of its job, kept byte for byte. Defaults to `null`.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<serde_json::Value>")]
    payload: Option<Box<RawValue>>,
    /// The payload, if it is no JSON.
    payload_base64: Option<String>,
    /// What travels beside the payload.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The lane of its job.
    lane: Option<String>,
    /// The priority of its job: higher runs first.
    priority: Option<i16>,
    /// How many executions may fail before the job is dead-lettered.
    max_attempts: Option<u32>,
    /// How long one execution may take.
    timeout_seconds: Option<f64>,
    /// Which missed slots are fired late. Defaults to `latest`.
    missed: Option<MissedPolicy>,
    /// How many, with `all`: 1 to 1,000.
    at_most: Option<u32>,
    /// How old a slot may be that is fired late. Defaults to a day.
    within_seconds: Option<f64>,
    /// What happens while the job of an earlier slot runs. Defaults to `allow` with `cron`, and to
    /// `skip` with `every_seconds`.
    overlap: Option<OverlapPolicy>,
    /// Each job starts up to this much later, at random.
    jitter_seconds: Option<f64>,
    /// No slot is earlier.
    starts_at: Option<Timestamp>,
    /// No slot is later.
    ends_at: Option<Timestamp>,
}

/// Which missed slots are fired late.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "SchedulePolicyMissed")]
enum MissedPolicy {
    /// The latest one.
    Latest,
    /// None.
    Skip,
    /// The latest ones, up to `at_most`.
    All,
}

/// What happens while the job of an earlier slot is not terminal.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "SchedulePolicyOverlap")]
enum OverlapPolicy {
    /// Both jobs run.
    Allow,
    /// The slot is skipped.
    Skip,
    /// The slot waits.
    Queue,
    /// The earlier job is cancelled.
    Replace,
}

/// Reads a value whose `null` says something else than its absence.
fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(from).map(Some)
}

impl Draft {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn into_schedule(mut self) -> Result<Schedule, Problem> {
        let mut schedule = self.timing()?.raw(self.r#type.clone(), self.payload()?);
        schedule = schedule.options(self.options()?);
        if let Some(missed) = self.missed()? {
            schedule = schedule.missed(missed);
        }
        if let Some(within) = seconds("within_seconds", self.within_seconds)? {
            schedule = schedule.within(within);
        }
        if let Some(overlap) = self.overlap {
            schedule = schedule.overlap(match overlap {
                OverlapPolicy::Allow => Overlap::Allow,
                OverlapPolicy::Skip => Overlap::Skip,
                OverlapPolicy::Queue => Overlap::Queue,
                OverlapPolicy::Replace => Overlap::Replace,
            });
        }
        if let Some(jitter) = seconds("jitter_seconds", self.jitter_seconds)? {
            schedule = schedule.jitter(jitter);
        }
        if let Some(starts_at) = self.starts_at {
            schedule = schedule.starts_at(starts_at);
        }
        if let Some(ends_at) = self.ends_at {
            schedule = schedule.ends_at(ends_at);
        }
        Ok(schedule)
    }

    fn timing(&self) -> Result<Schedule, Problem> {
        let schedule = match (&self.cron, seconds("every_seconds", self.every_seconds)?) {
            (Some(cron), None) => Schedule::cron(&self.name, cron),
            (None, Some(every)) => Schedule::every(&self.name, every),
            _ => return Err(Problem::invalid("give either \"cron\" or \"every_seconds\"")),
        };
        Ok(match &self.zone {
            Some(zone) => schedule.zone(zone),
            None => schedule,
        })
    }

    fn missed(&self) -> Result<Option<Missed>, Problem> {
        match (self.missed, self.at_most) {
            (None, None) => Ok(None),
            (Some(MissedPolicy::Latest), None) => Ok(Some(Missed::Latest)),
            (Some(MissedPolicy::Skip), None) => Ok(Some(Missed::Skip)),
            (Some(MissedPolicy::All), Some(at_most)) => Ok(Some(Missed::All { at_most })),
            _ => Err(Problem::invalid(
                "\"missed\" takes \"at_most\" with \"all\", and with nothing else",
            )),
        }
    }

    fn payload(&mut self) -> Result<Blob, Problem> {
        match (self.payload.take(), &self.payload_base64) {
            (Some(json), None) => Ok(Box::<str>::from(json).into_string().into_bytes().into()),
            (None, Some(text)) => BASE64_STANDARD.decode(text).map(Blob::from).map_err(|error| {
                Problem::invalid(format!("\"payload_base64\" is not base64: {error}"))
            }),
            (None, None) => Ok(Blob::from(b"null")),
            (Some(_), Some(_)) => {
                Err(Problem::invalid("both \"payload\" and \"payload_base64\" are given: give one"))
            }
        }
    }

    fn options(&self) -> Result<Options, Problem> {
        let mut options = Options::new();
        if let Some(queue) = &self.queue {
            options = options.queue(queue);
        }
        if let Some(lane) = &self.lane {
            options = options.lane(lane);
        }
        if let Some(priority) = self.priority {
            options = options.priority(priority);
        }
        if let Some(max_attempts) = self.max_attempts {
            options = options.max_attempts(max_attempts);
        }
        if let Some(timeout) = seconds("timeout_seconds", self.timeout_seconds)? {
            options = options.timeout(timeout);
        }
        for (name, value) in &self.headers {
            options = options.header(name, value);
        }
        Ok(options)
    }
}

fn seconds(what: &str, value: Option<f64>) -> Result<Option<Duration>, Problem> {
    let Some(value) = value else { return Ok(None) };
    let is_in = (0.0..=MAX_SECONDS).contains(&value);
    let time = if is_in { Duration::try_from_secs_f64(value).ok() } else { None };
    time.map(Some).ok_or_else(|| Problem::out_of_range(what, 0, MAX_SECONDS))
}
