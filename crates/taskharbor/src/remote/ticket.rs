//! [`Ticket`]: the data that settling a job needs, as a text that its worker keeps.

use std::{fmt, time::Duration};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use taskharbor_core::{
    JobType, QueueName, State, Timestamp,
    admin::Change,
    driver::{LeaseToken, Leased, Limits, Transition},
    job::{FailurePolicy, ReleaseReason},
    name::{Holder, LaneName},
};

use crate::{
    CallResult, CancelReason, Exponential, RetryPolicy,
    codec::Format,
    worker::resolution::{self, Circumstances, Resolution, Subject},
};

/// How long after its timeout an execution may still be reported as timed out: its lease is extended for so
/// long and no longer.
const CANCEL_WAIT: Duration = Duration::from_secs(5);
/// Longer texts are not read.
const MAX_BYTES: usize = 8 * 1024;

/// The data that settling a job needs beside its outcome: the lease token, and how often and how
/// long the job may run.
///
/// A worker keeps it as an opaque text ([`Ticket::to_text`]). A worker that changes the text can harm no job
/// but the one that it holds.
#[derive(Clone, PartialEq)]
pub struct Ticket {
    token: LeaseToken,
    holder: Holder,
    granted_at: Timestamp,
    job_type: JobType,
    queue: QueueName,
    lane: Option<LaneName>,
    attempts: u32,
    max_attempts: u32,
    timeout: Option<Duration>,
    retry: Exponential,
    is_json: bool,
}

/// A text that is not the ticket of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease is invalid: pass on what the reservation or the last extension gave")]
pub struct InvalidTicket;

/// Whether an execution has exceeded its timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overtime {
    /// It has time left, or has no timeout.
    No,
    /// Its timeout has passed, and it should be told to stop.
    TimedOut,
    /// Its timeout passed 5 s ago. Its lease is not extended any more.
    Overdue,
}

/// The transition to record for a job, and the hold that goes with it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Decision {
    /// The transition of the job.
    pub transition: Transition,
    /// The hold of the lane or queue that is set first, because the job was throttled.
    pub hold: Option<Change>,
}

impl Decision {
    const fn new(transition: Transition) -> Self {
        Self { transition, hold: None }
    }

    /// The state in which this leaves the job at `now`. A job that would run again is cancelled instead if
    /// its cancellation was requested.
    #[must_use]
    pub fn state(&self, now: Timestamp) -> State {
        match &self.transition {
            Transition::Ack { .. } | Transition::Expand(_) => State::Done,
            Transition::Fail { .. } => State::Dlq,
            Transition::Retry { run_at, .. } | Transition::Release { run_at, .. } => match run_at {
                Some(at) if *at > now => State::Scheduled,
                _ => State::Ready,
            },
        }
    }
}

/// As it is written; the names are short, since it travels with every call.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    v: u8,
    t: String,
    h: String,
    g: i64,
    y: String,
    q: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    l: Option<String>,
    a: u32,
    m: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    o: Option<u64>,
    /// Base and cap in microseconds, multiplier, jitter, if they are not the defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    r: Option<(u64, u64, f64, f64)>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    b: bool,
}

const VERSION: u8 = 1;

impl Ticket {
    pub(super) fn new(
        leased: &Leased,
        holder: &Holder,
        granted_at: Timestamp,
        retry: Exponential,
        max_attempts: u32,
        timeout: Option<Duration>,
    ) -> Self {
        let job = &leased.job;
        Self {
            token: leased.lease.token,
            holder: holder.clone(),
            granted_at,
            job_type: job.job_type.clone(),
            queue: job.queue.clone(),
            lane: job.lane.clone(),
            attempts: job.attempts,
            max_attempts,
            timeout,
            retry,
            is_json: Format::named_in(&job.headers) == Format::UNNAMED,
        }
    }

    /// The lease token.
    #[must_use]
    pub const fn token(&self) -> LeaseToken {
        self.token
    }

    /// Returns the ticket with another token: a driver may change it when a lease is extended.
    #[must_use]
    pub const fn with_token(mut self, token: LeaseToken) -> Self {
        self.token = token;
        self
    }

    /// How many executions may fail before the job is dead-lettered.
    #[must_use]
    pub const fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// How long this execution may take.
    #[must_use]
    pub const fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Whether payload and output of the job are JSON.
    #[must_use]
    pub const fn is_json(&self) -> bool {
        self.is_json
    }

    /// Where the execution stands against its timeout.
    #[must_use]
    pub fn overtime(&self, now: Timestamp) -> Overtime {
        let Some(end) = self.timeout.and_then(|it| self.granted_at.checked_add(it)) else {
            return Overtime::No;
        };
        match now {
            now if now < end => Overtime::No,
            now if now < end.saturating_add(CANCEL_WAIT) => Overtime::TimedOut,
            _ => Overtime::Overdue,
        }
    }

    /// The decision for a job whose handler has ended with this result. `chance` is a random number
    /// from 0 to below 1, for the jitter of the retry policy.
    #[must_use]
    pub fn settle(&self, result: CallResult, now: Timestamp, chance: f64) -> Decision {
        let circumstances = Circumstances {
            worker: &self.holder,
            now,
            took: Duration::ZERO,
            cancel: None,
            policy: &self.retry,
            max_attempts: self.max_attempts,
            chance: &|| chance,
            limits: Limits::default(),
            format: &Format::json(),
        };
        self.hold(circumstances.resolve(self.subject(), result))
    }

    /// The decision for a job whose execution exceeded its timeout.
    #[must_use]
    pub fn time_out(&self, now: Timestamp, chance: f64) -> Decision {
        self.settle(Err(resolution::timed_out(self.timeout.unwrap_or_default())), now, chance)
    }

    /// The decision for a job whose handler was told to stop, and has no result.
    #[must_use]
    pub fn stop(&self, reason: CancelReason) -> Decision {
        Decision::new(resolution::release_stopped(reason, &self.holder).transition)
    }

    /// The decision for a job that a worker which shuts down has reserved and not started.
    #[must_use]
    pub fn unstarted(&self) -> Decision {
        Decision::new(resolution::release(ReleaseReason::Shutdown).transition)
    }

    fn subject(&self) -> Subject<'_> {
        // A remote worker returns no flows, for which alone the failure policy counts.
        let (job_type, attempts) = (&self.job_type, self.attempts);
        Subject { job_type, attempts, on_failure: FailurePolicy::default() }
    }

    fn hold(&self, resolution: Resolution) -> Decision {
        let hold = resolution.holds_until.map(|until| {
            let (queue, lane) = (self.queue.clone(), self.lane.clone());
            Change::Hold { queue, lane, until: Some(until) }
        });
        Decision { transition: resolution.transition, hold }
    }

    /// The text that a worker keeps.
    #[must_use]
    pub fn to_text(&self) -> String {
        let micros = |it: Duration| u64::try_from(it.as_micros()).unwrap_or(u64::MAX);
        let (base, cap, multiplier, jitter) = self.retry.parts();
        let is_usual = self.retry.parts() == Exponential::new().parts();
        let written = Written {
            v: VERSION,
            t: format!("{:032x}", self.token.to_bits()),
            h: self.holder.to_string(),
            g: self.granted_at.as_micros(),
            y: self.job_type.to_string(),
            q: self.queue.to_string(),
            l: self.lane.as_ref().map(ToString::to_string),
            a: self.attempts,
            m: self.max_attempts,
            o: self.timeout.map(micros),
            r: (!is_usual).then(|| (micros(base), micros(cap), multiplier, jitter)),
            b: !self.is_json,
        };
        // Texts and finite numbers: writing them cannot fail.
        BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(&written).unwrap_or_default())
    }

    /// Reads what [`Ticket::to_text`] wrote. Every part is checked, since it comes from outside.
    ///
    /// # Errors
    ///
    /// [`InvalidTicket`].
    pub fn parse(text: &str) -> Result<Self, InvalidTicket> {
        Self::read(text).ok_or(InvalidTicket)
    }

    fn read(text: &str) -> Option<Self> {
        if text.len() > MAX_BYTES {
            return None;
        }
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        let written: Written = serde_json::from_slice(&bytes).ok()?;
        let is_hex = written.t.len() == 32 && written.t.bytes().all(|it| it.is_ascii_hexdigit());
        let attempts = 1..=Limits::MAX_ATTEMPTS;
        let is_known = written.v == VERSION && is_hex && attempts.contains(&written.m);
        if !is_known || written.a > Limits::MAX_ATTEMPTS {
            return None;
        }
        let mut retry = Exponential::new();
        if let Some((base, cap, multiplier, jitter)) = written.r {
            let (base, cap) = (Duration::from_micros(base), Duration::from_micros(cap));
            retry = retry.base(base).cap(cap).multiplier(multiplier).jitter(jitter);
            retry.check().ok()?;
        }
        Some(Self {
            token: LeaseToken::from_bits(u128::from_str_radix(&written.t, 16).ok()?),
            holder: Holder::new(written.h).ok()?,
            granted_at: Timestamp::from_micros(written.g).ok()?,
            job_type: JobType::new(written.y).ok()?,
            queue: QueueName::new(written.q).ok()?,
            lane: written.l.map(LaneName::new).transpose().ok()?,
            attempts: written.a,
            max_attempts: written.m,
            timeout: written.o.map(Duration::from_micros),
            retry,
            is_json: !written.b,
        })
    }
}

/// Without the whole token, which is a secret.
impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("token", &self.token)
            .field("holder", &self.holder)
            .field("granted_at", &self.granted_at)
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}
