//! The JSON in which a definition is stored. Its fields have a fixed order, so that equal
//! definitions give equal bytes.
//!
//! A program refuses fields that it does not know. A change that older programs must not
//! ignore, a new cron syntax included, gets another version.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use taskharbor_core::{
    Blob, JobId, JobType, NewJob, QueueName, Timestamp,
    job::{FailurePolicy, JobKind, JoinReading, KeyHold},
    name::{IdempotencyKey, LaneName},
};

use super::{
    Missed, Overlap,
    calendar::Calendar,
    definition::{Definition, DefinitionError},
    fault::ScheduleFault,
    template::{Template, positions, text},
    timing::{self, Timing},
};

const VERSION: u64 = 1;

#[derive(Deserialize)]
struct Version {
    v: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    v: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    every: Option<String>,
    missed: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_most: Option<u32>,
    within: String,
    overlap: String,
    jitter: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    starts_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ends_at: Option<String>,
    flow: bool,
    jobs: Vec<WireJob>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireJob {
    r#type: String,
    queue: String,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u32>,
    priority: i16,
    #[serde(skip_serializing_if = "Option::is_none")]
    lane: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hold: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    join: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    after: Vec<usize>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    after_failure_of: Vec<usize>,
    on_failure: String,
}

/// A field that is present, even if its value is `null`.
fn present<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

pub(super) fn encode(definition: &Definition) -> Blob {
    let Definition { calendar, missed, within, overlap, jitter, template } = definition;
    let (cron, zone, every) = match &calendar.timing {
        Timing::Cron(it) => (Some(it.expression().to_owned()), Some(it.zone().to_owned()), None),
        Timing::Every(micros) => (None, None, Some(Duration::from_micros(micros.unsigned_abs()))),
    };
    let wire = Wire {
        v: VERSION,
        cron,
        zone,
        every: every.map(seconds),
        missed: missed.as_str().to_owned(),
        at_most: match missed {
            Missed::All { at_most } => Some(*at_most),
            _ => None,
        },
        within: seconds(*within),
        overlap: overlap.as_str().to_owned(),
        jitter: seconds(*jitter),
        starts_at: calendar.starts_at.map(text),
        ends_at: calendar.ends_at.map(text),
        flow: template.is_flow,
        jobs: template.jobs.iter().map(WireJob::of).collect(),
    };
    #[expect(clippy::expect_used, reason = "every value is text, a number or JSON already")]
    let bytes = serde_json::to_vec(&wire).expect("a definition as JSON");
    bytes.into()
}

pub(super) fn decode(bytes: &[u8]) -> Result<Definition, DefinitionError> {
    let Version { v } = serde_json::from_slice(bytes).map_err(malformed)?;
    match v {
        VERSION => {}
        0 => return Err(malformed("unknown version 0")),
        later => return Err(DefinitionError::LaterVersion(later)),
    }
    let wire: Wire = serde_json::from_slice(bytes).map_err(malformed)?;
    let timing = match (&wire.cron, &wire.every) {
        (Some(cron), None) => {
            let zone = timing::zone(wire.zone.as_deref().unwrap_or(Timing::DEFAULT_ZONE));
            Timing::cron(cron, zone.map_err(unknown_zone)?).map_err(malformed)?
        }
        (None, Some(every)) => Timing::every(duration(every)?).map_err(malformed)?,
        _ => return Err(malformed("either cron or every is expected")),
    };
    let time = |text: &Option<String>| {
        text.as_deref().map(|it| it.parse::<Timestamp>().map_err(malformed)).transpose()
    };
    let ids = positions(wire.jobs.len()).map_err(malformed)?;
    let jobs = wire.jobs.iter().zip(&ids).map(|(job, id)| job.read(id, &ids));
    Ok(Definition {
        calendar: Calendar {
            timing,
            starts_at: time(&wire.starts_at)?,
            ends_at: time(&wire.ends_at)?,
        },
        missed: Missed::named(&wire.missed, wire.at_most)
            .ok_or_else(|| unknown("missed", &wire.missed))?,
        within: duration(&wire.within)?,
        overlap: find(Overlap::ALL, Overlap::as_str, &wire.overlap)
            .ok_or_else(|| unknown("overlap", &wire.overlap))?,
        jitter: duration(&wire.jitter)?,
        template: Template { jobs: jobs.collect::<Result<_, _>>()?, is_flow: wire.flow },
    })
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` passes")]
fn malformed(why: impl ToString) -> DefinitionError {
    DefinitionError::Malformed(why.to_string())
}

fn unknown(field: &str, value: &str) -> DefinitionError {
    malformed(format!("{field}: unknown value {value:?}"))
}

fn unknown_zone(fault: ScheduleFault) -> DefinitionError {
    match fault {
        ScheduleFault::UnknownZone(zone) => DefinitionError::UnknownZone(zone),
        other => malformed(other),
    }
}

fn find<T: Copy>(all: &[T], name: impl Fn(T) -> &'static str, text: &str) -> Option<T> {
    all.iter().copied().find(|it| name(*it) == text)
}

impl WireJob {
    fn of(job: &NewJob) -> Self {
        let json = serde_json::from_slice::<Box<RawValue>>(&job.payload).ok();
        // Whitespace around JSON would be lost.
        let payload = json.filter(|json| json.get().len() == job.payload.len());
        let is_other = payload.is_none() && job.kind == JobKind::Work;
        let parents = job.parents.iter().filter_map(|id| id.as_str().parse().ok());
        let (failed, done) = parents.partition(|_: &usize| job.is_failure_job());
        Self {
            r#type: job.job_type.as_str().to_owned(),
            queue: job.queue.as_str().to_owned(),
            payload,
            payload_base64: is_other.then(|| BASE64_STANDARD.encode(&job.payload)),
            headers: job.headers.iter().map(|(a, b)| (a.to_owned(), b.to_owned())).collect(),
            delay: job.run_at.map(|at| seconds(at.since(Timestamp::EPOCH))),
            timeout: job.timeout.map(seconds),
            max_attempts: job.max_attempts,
            priority: job.priority,
            lane: job.lane.as_ref().map(|lane| lane.as_str().to_owned()),
            idempotency_key: job.idempotency_key.as_ref().map(|key| key.as_str().to_owned()),
            key_hold: match job.key_hold {
                KeyHold::UntilPruned => None,
                KeyHold::UntilDone => Some("until_done".to_owned()),
                KeyHold::UntilTerminal => Some("until_terminal".to_owned()),
                KeyHold::For(time) => Some(seconds(time)),
            },
            join: match job.kind {
                JobKind::Work => None,
                JobKind::Join(reading) => Some(reading.as_str().to_owned()),
            },
            after: done,
            after_failure_of: failed,
            on_failure: job.on_failure.as_str().to_owned(),
        }
    }

    fn read(&self, id: &JobId, ids: &[JobId]) -> Result<NewJob, DefinitionError> {
        let queue = QueueName::new(&self.queue).map_err(malformed)?;
        let job_type = JobType::new(&self.r#type).map_err(malformed)?;
        let mut job = NewJob::new(id.clone(), queue, job_type, self.payload()?);
        for (name, value) in &self.headers {
            job.headers = job.headers.with_any(name, value).map_err(malformed)?;
        }
        if let Some(join) = &self.join {
            let reading = find(JoinReading::ALL, JoinReading::as_str, join);
            job = job.read_as(reading.ok_or_else(|| unknown("join", join))?);
        }
        let delay = self.delay.as_deref().map(duration).transpose()?;
        job.run_at = delay.map(|delay| Timestamp::EPOCH.saturating_add(delay));
        job.timeout = self.timeout.as_deref().map(duration).transpose()?;
        (job.max_attempts, job.priority) = (self.max_attempts, self.priority);
        let lane = self.lane.as_ref().map(LaneName::new);
        job.lane = lane.transpose().map_err(malformed)?;
        let key = self.idempotency_key.as_ref().map(IdempotencyKey::new);
        job.idempotency_key = key.transpose().map_err(malformed)?;
        job.key_hold = match self.key_hold.as_deref() {
            None => KeyHold::UntilPruned,
            Some("until_done") => KeyHold::UntilDone,
            Some("until_terminal") => KeyHold::UntilTerminal,
            Some(time) => KeyHold::For(duration(time)?),
        };
        let parent = |at: &usize| ids.get(*at).cloned().ok_or_else(|| malformed("unknown parent"));
        let parents = |list: &[usize]| list.iter().map(parent).collect::<Result<Vec<_>, _>>();
        job = match (&self.after[..], &self.after_failure_of[..]) {
            (after, []) => job.after(parents(after)?),
            ([], failed) => job.after_failure_of(parents(failed)?),
            _ => return Err(malformed("after and after_failure_of exclude each other")),
        };
        let policy = find(FailurePolicy::ALL, FailurePolicy::as_str, &self.on_failure);
        job.on_failure = policy.ok_or_else(|| unknown("on_failure", &self.on_failure))?;
        Ok(job)
    }

    fn payload(&self) -> Result<Blob, DefinitionError> {
        match (&self.payload, &self.payload_base64) {
            (Some(json), None) => Ok(json.get().as_bytes().into()),
            (None, Some(text)) => BASE64_STANDARD.decode(text).map(Blob::from).map_err(malformed),
            (None, None) => Ok(Blob::from(&[])),
            (Some(_), Some(_)) => Err(malformed("payload and payload_base64 exclude each other")),
        }
    }
}

/// Seconds with as many digits of their fraction as needed, as in `1.5s`.
fn seconds(time: Duration) -> String {
    let fraction = format!("{:06}", time.subsec_micros());
    match fraction.trim_end_matches('0') {
        "" => format!("{}s", time.as_secs()),
        fraction => format!("{}.{fraction}s", time.as_secs()),
    }
}

fn duration(text: &str) -> Result<Duration, DefinitionError> {
    let parse = || {
        let number = text.strip_suffix('s')?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let is_number = digits(whole) && digits(fraction) && fraction.len() <= 6;
        let micros = format!("{fraction:0<6}").parse::<u64>().ok().filter(|_| is_number)?;
        Some(Duration::from_secs(whole.parse().ok()?) + Duration::from_micros(micros))
    };
    parse().ok_or_else(|| malformed(format!("{text:?} is not a time in seconds, as in \"1.5s\"")))
}

#[cfg(test)]
mod tests;
