//! Announcements of workers, and the eviction of workers.
//!
//! No job depends on an announcement. It shows operators and other workers which workers exist, and
//! what they do. An eviction ends leases, as if they had expired.

use std::{fmt, time::Duration};

use crate::{
    Blob, Timestamp,
    admin::Cursor,
    check,
    driver::Limits,
    error::{InvalidRequest, NoRandomness},
    name::Holder,
};

/// Tells one start of a worker from another start under the same name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(u64);

impl Incarnation {
    /// A new one from the operating system's randomness.
    ///
    /// # Errors
    ///
    /// [`NoRandomness`] if there is none.
    pub fn random() -> Result<Self, NoRandomness> {
        let mut bytes = [0; 8];
        crate::random::fill(&mut bytes)?;
        Ok(Self(u64::from_be_bytes(bytes)))
    }

    /// The incarnation with this number.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The number of the incarnation.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Parses an incarnation. Stores keep and sort its text, which has 16 hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_hex =
            text.len() == 16 && text.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
        is_hex.then(|| u64::from_str_radix(text, 16).ok().map(Self)).flatten()
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Announces a worker.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Announce {
    /// The name under which the worker holds leases.
    pub holder: Holder,
    /// Which start of it this is.
    pub incarnation: Incarnation,
    /// What it says about itself. A store does not read it.
    pub info: Blob,
    /// How long the announcement is valid. Zero withdraws it.
    #[cfg_attr(feature = "serde", serde(rename = "valid_for_nanos", with = "crate::json::Nanos"))]
    pub valid_for: Duration,
    /// The current time.
    pub now: Timestamp,
}

impl Announce {
    /// The announcement of a worker.
    #[must_use]
    pub const fn new(
        holder: Holder,
        incarnation: Incarnation,
        info: Blob,
        valid_for: Duration,
        now: Timestamp,
    ) -> Self {
        Self { holder, incarnation, info, valid_for, now }
    }

    /// Withdraws the announcement of a worker.
    #[must_use]
    pub fn withdraw(holder: Holder, incarnation: Incarnation, now: Timestamp) -> Self {
        Self::new(holder, incarnation, Blob::from(&[]), Duration::ZERO, now)
    }

    /// Checks the announcement; returns its end, `None` if it is withdrawn.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::OutOfRange`] if `info` is too large or the announcement is valid for more than
    /// [`Limits::MAX_ANNOUNCED_FOR`].
    pub fn check(&self) -> Result<Option<Timestamp>, InvalidRequest> {
        // WRK-5
        let max = Limits::MAX_WORKER_INFO_BYTES;
        check::range("the size of an announcement", self.info.len(), 0, max)?;
        let seconds = self.valid_for.as_nanos().div_ceil(1_000_000_000);
        let seconds = usize::try_from(seconds).unwrap_or(usize::MAX);
        let max = usize::try_from(Limits::MAX_ANNOUNCED_FOR.as_secs()).unwrap_or(usize::MAX);
        check::range("the seconds for which an announcement is valid", seconds, 0, max)?;
        // WRK-3
        let ends_at = self.now.saturating_add(self.valid_for);
        Ok((ends_at > self.now).then_some(ends_at))
    }
}

/// A worker as it has announced itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkerRecord {
    /// The name under which it holds leases.
    pub holder: Holder,
    /// Which start of it this is.
    pub incarnation: Incarnation,
    /// What it said about itself last.
    pub info: Blob,
    /// When it announced itself first.
    pub started_at: Timestamp,
    /// When it announced itself last.
    pub seen_at: Timestamp,
    /// The end of the announcement: the first instant at which it is not valid.
    pub expires_at: Timestamp,
}

impl WorkerRecord {
    /// The record of this announcement, which ends at `expires_at`, of a worker that first
    /// announced itself at `started_at`.
    #[must_use]
    pub fn new(announced: Announce, started_at: Timestamp, expires_at: Timestamp) -> Self {
        let Announce { holder, incarnation, info, now, .. } = announced;
        Self { holder, incarnation, info, started_at, seen_at: now, expires_at }
    }

    /// Whether the announcement is valid at `now`.
    #[must_use]
    pub fn is_valid(&self, now: Timestamp) -> bool {
        // WRK-2
        now < self.expires_at
    }

    /// The cursor of the page after this worker.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        Cursor::new(format!("worker-{}-{}", self.incarnation, self.holder))
    }
}

/// Asks for a page of the workers that have announced themselves, by name and incarnation.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListWorkers {
    /// Whether workers are listed whose announcement is valid.
    #[cfg_attr(feature = "serde", serde(default = "crate::json::yes"))]
    pub valid: bool,
    /// Whether workers are listed whose announcement has ended.
    #[cfg_attr(feature = "serde", serde(default))]
    pub overdue: bool,
    /// After the last worker of the page that gave this.
    pub after: Option<Cursor>,
    /// The greatest number of items to return.
    pub limit: usize,
    /// The current time.
    pub now: Timestamp,
}

impl ListWorkers {
    /// The first page of the workers whose announcement is valid.
    #[must_use]
    pub const fn new(limit: usize, now: Timestamp) -> Self {
        Self { valid: true, overdue: false, after: None, limit, now }
    }

    /// Also lists the workers whose announcement has ended.
    #[must_use]
    pub const fn with_overdue(mut self) -> Self {
        self.overdue = true;
        self
    }

    /// Lists only the workers whose announcement has ended.
    #[must_use]
    pub const fn only_overdue(mut self) -> Self {
        (self.valid, self.overdue) = (false, true);
        self
    }

    /// The page after the one that gave `cursor`.
    #[must_use]
    pub fn after(mut self, cursor: Cursor) -> Self {
        self.after = Some(cursor);
        self
    }

    /// Whether this worker is listed.
    #[must_use]
    pub fn wants(&self, worker: &WorkerRecord) -> bool {
        if worker.is_valid(self.now) { self.valid } else { self.overdue }
    }

    /// Checks the limit.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::OutOfRange`].
    pub const fn check(&self) -> Result<(), InvalidRequest> {
        check::range("limit", self.limit, 1, Limits::MAX_PAGE)
    }

    /// The worker after which the page begins; `None` for the first page.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::Cursor`] for a cursor of another list.
    pub fn begin(&self) -> Result<Option<(Holder, Incarnation)>, InvalidRequest> {
        let Some(cursor) = &self.after else { return Ok(None) };
        let read = || {
            let (bits, holder) = cursor.as_str().strip_prefix("worker-")?.split_once('-')?;
            Some((Holder::new(holder).ok()?, Incarnation::parse(bits)?))
        };
        read().map(Some).ok_or(InvalidRequest::Cursor)
    }
}

/// Asks for all leases of a worker to end now, as if their time had ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Evict {
    /// The name under which the worker holds leases.
    pub holder: Holder,
    /// The incarnation to evict. `None` evicts all incarnations of the holder.
    pub incarnation: Option<Incarnation>,
    /// The current time.
    pub now: Timestamp,
}

impl Evict {
    /// Evicts all incarnations of this holder.
    #[must_use]
    pub const fn new(holder: Holder, now: Timestamp) -> Self {
        Self { holder, incarnation: None, now }
    }

    /// Evicts the worker only if no other start of it has announced itself.
    #[must_use]
    pub const fn incarnation(mut self, incarnation: Incarnation) -> Self {
        self.incarnation = Some(incarnation);
        self
    }
}

/// What an eviction did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Evicted {
    /// The worker was evicted; this many leases ended.
    Leases(usize),
    /// Nothing was done: another worker has announced itself under the same name, and the leases of the
    /// two cannot be distinguished.
    Replaced,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announce(info: usize, valid_for: Duration) -> Announce {
        let holder = Holder::new("w-1").unwrap();
        let incarnation = Incarnation::from_bits(7);
        Announce::new(holder, incarnation, vec![b' '; info].into(), valid_for, Timestamp::EPOCH)
    }

    #[test]
    fn an_announcement_is_small_and_ends() {
        let day = Limits::MAX_ANNOUNCED_FOR;
        let ends_at = Timestamp::EPOCH.saturating_add(day);
        assert_eq!(announce(Limits::MAX_WORKER_INFO_BYTES, day).check(), Ok(Some(ends_at)));
        assert!(announce(Limits::MAX_WORKER_INFO_BYTES + 1, day).check().is_err());
        assert!(announce(0, day + Duration::from_micros(1)).check().is_err());
        assert_eq!(announce(0, Duration::ZERO).check(), Ok(None));
        assert_eq!(announce(0, Duration::from_nanos(1)).check(), Ok(None));
    }

    #[test]
    fn a_cursor_leads_to_the_workers_after_its_own() {
        let announced = announce(0, Duration::from_secs(1));
        let record = WorkerRecord::new(announced, Timestamp::EPOCH, Timestamp::MAX);
        let page = |cursor| ListWorkers::new(1, Timestamp::EPOCH).after(cursor).begin();
        let begin = Some((record.holder.clone(), record.incarnation));
        assert_eq!(page(record.cursor()), Ok(begin));
        let digits = "worker-0000000000000007";
        for other in
            [digits, "worker-7-a", "worker-000000000000000G-a", &format!("{digits}-"), "lane-a"]
        {
            assert_eq!(page(Cursor::new(other)), Err(InvalidRequest::Cursor), "{other}");
        }
    }
}
