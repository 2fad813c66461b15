//! [`Columns`]: jobs as the arrays that the functions of the store take.
//!
//! A column in which no job says anything is sent as an empty array: most jobs have neither a time
//! nor a key.

use taskharbor_core::{
    DriverError, NewJob, Timestamp,
    job::{Condition, FailurePolicy, Headers, JobKind, JoinReading, KeyHold},
    name::{IdempotencyKey, LaneName},
};

use crate::value::Value;

/// Jobs to be stored, column by column.
#[derive(Debug)]
pub(crate) struct Columns<'a> {
    pub(crate) jobs: Vec<&'a NewJob>,
    headers: Vec<Option<String>>,
}

impl<'a> Columns<'a> {
    pub(crate) fn of(jobs: Vec<&'a NewJob>) -> Result<Self, DriverError> {
        let headers = jobs.iter().map(|job| json(&job.headers)).collect::<Result<_, _>>()?;
        Ok(Self { jobs, headers })
    }

    /// What every function that stores jobs takes of them, in this order.
    pub(crate) fn common(&self) -> [Value<'_>; 11] {
        [
            self.ids(),
            self.queues(),
            self.types(),
            self.payloads(),
            self.priorities(),
            self.run_ats(),
            self.timeouts(),
            self.max_attempts(),
            self.headers(),
            self.policies(),
            self.lanes(),
        ]
    }

    /// What there is to say of jobs about which nothing else was said, in this order.
    pub(crate) fn bare(&self) -> [Value<'_>; 5] {
        [self.ids(), self.queues(), self.types(), self.payloads(), self.headers()]
    }

    fn ids(&self) -> Value<'_> {
        self.texts(|job| Some(job.id.as_str()))
    }

    fn queues(&self) -> Value<'_> {
        self.texts(|job| Some(job.queue.as_str()))
    }

    fn types(&self) -> Value<'_> {
        self.texts(|job| Some(job.job_type.as_str()))
    }

    fn payloads(&self) -> Value<'_> {
        Value::Byteas(self.jobs.iter().map(|job| Some(&*job.payload)).collect())
    }

    fn priorities(&self) -> Value<'_> {
        self.numbers(|job| (job.priority != 0).then_some(i64::from(job.priority)))
    }

    fn run_ats(&self) -> Value<'_> {
        self.numbers(|job| job.run_at.map(Timestamp::as_micros))
    }

    fn timeouts(&self) -> Value<'_> {
        // The range was checked, so nothing is cut off.
        self.numbers(|job| job.timeout.map(|it| i64::try_from(it.as_micros()).unwrap_or(i64::MAX)))
    }

    fn max_attempts(&self) -> Value<'_> {
        self.numbers(|job| job.max_attempts.map(i64::from))
    }

    fn headers(&self) -> Value<'_> {
        texts(self.headers.iter().map(Option::as_deref).collect())
    }

    fn policies(&self) -> Value<'_> {
        self.texts(policy)
    }

    fn lanes(&self) -> Value<'_> {
        self.texts(|job| job.lane.as_ref().map(LaneName::as_str))
    }

    pub(crate) fn kinds(&self) -> Value<'_> {
        self.texts(kind)
    }

    pub(crate) fn keys(&self) -> Value<'_> {
        self.texts(|job| job.idempotency_key.as_ref().map(IdempotencyKey::as_str))
    }

    pub(crate) fn key_holds(&self) -> Value<'_> {
        self.texts(key_hold)
    }

    pub(crate) fn key_times(&self) -> Value<'_> {
        self.numbers(key_time)
    }

    fn texts(&self, of: impl Fn(&'a NewJob) -> Option<&'a str>) -> Value<'_> {
        texts(self.jobs.iter().map(|job| of(job)).collect())
    }

    fn numbers(&self, of: impl Fn(&NewJob) -> Option<i64>) -> Value<'_> {
        numbers(self.jobs.iter().map(|job| of(job)).collect())
    }
}

/// The failure policy of a job, if it is not the default.
pub(crate) const fn policy(job: &NewJob) -> Option<&str> {
    match job.on_failure {
        FailurePolicy::Block => None,
        FailurePolicy::Cancel => Some("cancel"),
        FailurePolicy::FailFast => Some("fail_fast"),
        FailurePolicy::Continue => Some("continue"),
    }
}

/// What kind of job it is, if not the usual. Only work can be a failure job.
pub(crate) const fn kind(job: &NewJob) -> Option<&str> {
    match (job.kind, job.condition) {
        (JobKind::Work, Condition::ParentsDone) => None,
        (JobKind::Work, Condition::ParentsFailed) => Some("failure_job"),
        (JobKind::Join(JoinReading::List), _) => Some("list"),
        (JobKind::Join(JoinReading::Gather), _) => Some("gather"),
        (JobKind::Join(JoinReading::Empty), _) => Some("empty"),
        (JobKind::Join(JoinReading::Discard), _) => Some("discard"),
        (JobKind::Join(JoinReading::First), _) => Some("first"),
    }
}

/// How long a job's key is held, if not as usual.
pub(crate) const fn key_hold(job: &NewJob) -> Option<&str> {
    match job.key_hold {
        KeyHold::UntilPruned => None,
        KeyHold::UntilDone => Some("until_done"),
        KeyHold::UntilTerminal => Some("until_terminal"),
        KeyHold::For(_) => Some("for_a_time"),
    }
}

/// For how many microseconds a job's key is held, if for a time. The range was checked.
pub(crate) fn key_time(job: &NewJob) -> Option<i64> {
    match job.key_hold {
        KeyHold::For(time) => Some(i64::try_from(time.as_micros()).unwrap_or(i64::MAX)),
        KeyHold::UntilPruned | KeyHold::UntilDone | KeyHold::UntilTerminal => None,
    }
}

/// A column of texts, empty if no job says anything.
pub(crate) fn texts(all: Vec<Option<&str>>) -> Value<'_> {
    Value::Texts(if all.iter().any(Option::is_some) { all } else { Vec::new() })
}

/// A column of numbers, empty if no job says anything.
pub(crate) fn numbers(all: Vec<Option<i64>>) -> Value<'static> {
    Value::BigInts(if all.iter().any(Option::is_some) { all } else { Vec::new() })
}

/// A position in a list as SQL counts.
pub(crate) fn place(at: usize) -> Option<i64> {
    i64::try_from(at + 1).ok()
}

fn json(headers: &Headers) -> Result<Option<String>, DriverError> {
    if headers.is_empty() {
        return Ok(None);
    }
    let map: serde_json::Map<_, _> =
        headers.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    serde_json::to_string(&map).map(Some).map_err(DriverError::backend)
}
