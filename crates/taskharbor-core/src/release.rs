//! Why a job was released: [`ReleaseReason`], and the note of it that stays with the job.

use std::fmt;

use crate::{Text, Timestamp};

/// Why a job was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ReleaseReason {
    /// Its handler asked for it.
    Snoozed,
    /// Its handler was throttled by the service that it calls. Its lane, or its queue if it has no
    /// lane, is held, too.
    Throttled,
    /// The worker shuts down, or is quiet.
    Shutdown,
    /// This worker has no handler for it.
    NoHandler,
    /// It was written with a codec that this worker does not know, or its payload does not decode.
    Unreadable,
    /// Its cancellation was requested.
    CancelRequested,
    /// It took so long to arrive that its lease was nearly over.
    ArrivedLate,
    /// It was reserved ahead and could not start in time. It did not start.
    Waited,
    /// Its lease ran out several times, and the worker runs another such job: they run one at a time,
    /// because one of them may kill its process. It did not start.
    KeptApart,
    /// Its lease ran out by a clock that was ahead, because the store's was set back, or by one that could
    /// not be compared with the store's. So another worker may still run it. It did not start.
    ClockSetBack,
}

impl ReleaseReason {
    /// All reasons.
    pub const ALL: [Self; 10] = [
        Self::Snoozed,
        Self::Throttled,
        Self::Shutdown,
        Self::NoHandler,
        Self::Unreadable,
        Self::CancelRequested,
        Self::ArrivedLate,
        Self::Waited,
        Self::KeptApart,
        Self::ClockSetBack,
    ];

    /// The name under which stores keep it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Snoozed => "snoozed",
            Self::Throttled => "throttled",
            Self::Shutdown => "shutdown",
            Self::NoHandler => "no_handler",
            Self::Unreadable => "unreadable",
            Self::CancelRequested => "cancel_requested",
            Self::ArrivedLate => "arrived_late",
            Self::Waited => "waited",
            Self::KeptApart => "kept_apart",
            Self::ClockSetBack => "clock_set_back",
        }
    }
}

/// A worker's note about a release, for operators and for the next worker that gets the job.
///
/// A store keeps it as text: [`ReleaseNote::to_string`](ToString) and [`ReleaseNote::parse`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReleaseNote {
    /// Why the job was released.
    pub reason: ReleaseReason,
    /// Since when no worker that got the job could run it, if that is the case.
    pub unfit_since: Option<Timestamp>,
    /// The same as text: which worker, and what it found.
    pub text: Text,
}

impl ReleaseNote {
    /// A note of a release for this reason.
    #[must_use]
    pub fn new(reason: ReleaseReason, text: impl Into<Text>) -> Self {
        Self { reason, unfit_since: None, text: text.into() }
    }

    /// No worker could run the job since then.
    #[must_use]
    pub const fn unfit_since(mut self, since: Option<Timestamp>) -> Self {
        self.unfit_since = since;
        self
    }

    /// Reads a note as a store keeps it. `None` if this version does not know the reason, or if it is
    /// not a note at all: no job is kept from its worker for that.
    #[must_use]
    pub fn parse(stored: &str) -> Option<Self> {
        let (head, text) = stored.split_once(": ")?;
        let (name, since) = match head.split_once(" since ") {
            Some((name, micros)) => {
                (name, Some(Timestamp::from_micros(micros.parse().ok()?).ok()?))
            }
            None => (head, None),
        };
        let reason = ReleaseReason::ALL.into_iter().find(|reason| reason.as_str() == name)?;
        Some(Self::new(reason, text).unfit_since(since))
    }
}

/// As stores keep it: the reason, the time in microseconds since 1970 if there is one, and the text.
impl fmt::Display for ReleaseNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.as_str())?;
        if let Some(since) = self.unfit_since {
            write!(f, " since {}", since.as_micros())?;
        }
        write!(f, ": {}", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        for reason in ReleaseReason::ALL {
            for text in ["", "worker w: no handler\nfor it since yesterday: none"] {
                for since in [None, Some(Timestamp::EPOCH), Some(Timestamp::MAX)] {
                    let note = ReleaseNote::new(reason, text).unfit_since(since);
                    assert_eq!(ReleaseNote::parse(&note.to_string()), Some(note));
                }
            }
        }
    }

    #[test]
    fn what_is_no_note_is_none() {
        for text in ["", "snoozed", "sleepy: zzz", "snoozed since noon: zzz", "snoozed since -1: "]
        {
            assert_eq!(ReleaseNote::parse(text), None, "{text:?}");
        }
    }
}
