//! [`WorkerInfo`]: the content of a worker's announcement.

use serde::{Deserialize, Serialize};
use taskharbor_core::{Blob, driver::Limits};

/// The content of a worker's announcement. Counts start when the worker starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// The version of the service, as [`WorkerBuilder::version`](crate::WorkerBuilder::version) gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The version of this library.
    pub library: String,
    /// The host that it runs on, if the environment names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Its process id.
    pub pid: u32,
    /// Its phase between start and end.
    pub phase: WorkerPhase,
    /// The reasons why it runs no jobs although it should; empty if it is healthy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// Whether wake-ups arrive.
    pub wake_ups: bool,
    /// For how many seconds the oldest of its handlers has been running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_secs: Option<u64>,
    /// How many leases it has lost in the last hour.
    #[serde(skip_serializing_if = "is_none_of_them")]
    pub lost_in_hour: u64,
    /// The queues that it serves.
    pub queues: Vec<QueueInfo>,
    /// How many queues are missing in the list because there are too many.
    #[serde(skip_serializing_if = "is_zero")]
    pub queues_left_out: usize,
    /// The types of jobs that it has handlers for.
    pub types: Vec<String>,
    /// How many types are missing in the list because there are too many.
    #[serde(skip_serializing_if = "is_zero")]
    pub types_left_out: usize,
}

/// The phase of a worker between start and end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum WorkerPhase {
    /// It waits for the store.
    Starting,
    /// It reserves and runs jobs.
    #[default]
    Working,
    /// It reserves nothing more and goes on with its jobs.
    Quiet,
    /// It shuts down.
    Stopping,
    /// It has ended.
    Ended,
    /// A phase that this version does not know.
    #[serde(other)]
    Unknown,
}

impl WorkerPhase {
    /// The name of the phase.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Working => "working",
            Self::Quiet => "quiet",
            Self::Stopping => "stopping",
            Self::Ended => "ended",
            Self::Unknown => "unknown",
        }
    }
}

/// The part of a worker's announcement about one of its queues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct QueueInfo {
    /// Its name.
    pub name: String,
    /// How many of its jobs may run at once.
    pub slots: usize,
    /// How many slots are taken.
    pub busy: usize,
    /// Handlers begun.
    pub started: u64,
    /// Successes recorded.
    pub done: u64,
    /// Handlers failed.
    pub failed: u64,
    /// Jobs dead-lettered.
    pub dead: u64,
    /// Jobs released.
    pub released: u64,
    /// Leases lost.
    pub lost: u64,
    /// A histogram of the time from a job's position until its handler began: the number of jobs in
    /// each bucket of [`QueueInfo::BUCKETS`], and then of those beyond the last bucket. Empty if
    /// the announcement had no room for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wait: Vec<u64>,
    /// How long handlers ran, in the same buckets as `wait`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub run: Vec<u64>,
}

impl QueueInfo {
    /// The upper ends of the buckets, in milliseconds.
    pub const BUCKETS: [u64; 11] =
        [1, 5, 25, 100, 250, 1_000, 2_500, 10_000, 30_000, 120_000, 600_000];
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for this")]
const fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for this")]
const fn is_none_of_them(number: &u64) -> bool {
    *number == 0
}

/// A text has no more bytes than this, and there are no more problems. As JSON, each byte may become six.
const MAX_TEXT_BYTES: usize = 200;
const MAX_PROBLEMS: usize = 3;

/// Cuts a text that is too long, between two characters.
fn cut(text: &mut String) {
    text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
}

impl WorkerInfo {
    /// Reads an announcement; `None` if it was not written by this library.
    #[must_use]
    pub fn read(info: &Blob) -> Option<Self> {
        serde_json::from_slice(info).ok()
    }

    /// Encodes the announcement. Queues and types that have no room are left out and counted.
    #[must_use]
    pub fn encode(mut self) -> Blob {
        let fits = |bytes: &[u8]| bytes.len() <= Limits::MAX_WORKER_INFO_BYTES;
        // Long texts would take the room of the queues.
        for text in [&mut self.version, &mut self.host].into_iter().flatten() {
            cut(text);
        }
        cut(&mut self.library);
        self.problems.truncate(MAX_PROBLEMS);
        self.problems.iter_mut().for_each(cut);
        let mut bytes = self.to_json();
        if !fits(&bytes) {
            for queue in &mut self.queues {
                (queue.wait, queue.run) = (Vec::new(), Vec::new());
            }
            bytes = self.to_json();
        }
        while !fits(&bytes) && !self.types.is_empty() {
            let left = self.types.len() / 2;
            self.types_left_out += self.types.len() - left;
            self.types.truncate(left);
            bytes = self.to_json();
        }
        while !fits(&bytes) && !self.queues.is_empty() {
            let left = self.queues.len() / 2;
            self.queues_left_out += self.queues.len() - left;
            self.queues.truncate(left);
            bytes = self.to_json();
        }
        if fits(&bytes) { bytes.into() } else { Blob::from(b"{}") }
    }

    fn to_json(&self) -> Vec<u8> {
        // Writing plain data into memory cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(queues: usize, types: usize) -> WorkerInfo {
        let queue = |n| QueueInfo {
            name: format!("queue-{n}"),
            wait: vec![u64::MAX; 12],
            run: vec![1; 12],
            ..QueueInfo::default()
        };
        WorkerInfo {
            queues: (0..queues).map(queue).collect(),
            types: (0..types).map(|n| format!("type:{n}")).collect(),
            ..WorkerInfo::default()
        }
    }

    #[test]
    fn what_is_announced_is_read_back() {
        let info = info(2, 3);
        assert_eq!(WorkerInfo::read(&info.clone().encode()), Some(info));
        assert_eq!(WorkerInfo::read(&Blob::from(b"hello")), None);
        assert!(WorkerInfo::read(&Blob::from(br#"{"more":1,"pid":7}"#)).is_some());
    }

    #[test]
    fn a_phase_that_is_not_known_leaves_the_rest_readable() {
        let read = WorkerInfo::read(&Blob::from(br#"{"phase":"dreaming","pid":7}"#)).unwrap();
        assert_eq!((read.phase, read.pid), (WorkerPhase::Unknown, 7));
    }

    #[test]
    fn long_texts_are_cut_and_take_no_room_from_the_queues() {
        let long = || "\u{1}ü".repeat(20_000);
        let announced = WorkerInfo {
            version: Some(long()),
            host: Some(long()),
            library: long(),
            problems: (0..100).map(|_| long()).collect(),
            ..info(3, 3)
        };
        let bytes = announced.encode();
        assert!(bytes.len() <= Limits::MAX_WORKER_INFO_BYTES, "{}", bytes.len());
        let read = WorkerInfo::read(&bytes).unwrap();
        assert_eq!((read.queues.len(), read.types.len()), (3, 3));
        assert_eq!(read.problems.len(), MAX_PROBLEMS);
        assert!(read.version.unwrap().len() > MAX_TEXT_BYTES / 2);
    }

    #[test]
    fn what_has_no_room_is_left_out_and_counted() {
        for (queues, types) in [(30, 10), (3, 5_000), (2_000, 5_000)] {
            let bytes = info(queues, types).encode();
            assert!(bytes.len() <= Limits::MAX_WORKER_INFO_BYTES, "{}", bytes.len());
            let read = WorkerInfo::read(&bytes).unwrap();
            assert_eq!(read.types.len() + read.types_left_out, types);
            assert_eq!(read.queues.len() + read.queues_left_out, queues);
        }
    }
}
