//! Validated names. The rules are the same for every store.
//!
//! Nothing is trimmed and case is kept, so two names are the same exactly when their bytes are.
//! Control characters are refused because names reach terminals and logs, and because NUL cannot
//! be stored as text everywhere. The lengths are bounded so that every store can index them.

use std::{
    borrow::{Borrow, Cow},
    fmt,
    str::FromStr,
    sync::Arc,
};

use crate::Timestamp;

/// Why a name was refused.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {problem}")]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NameError {
    what: Cow<'static, str>,
    problem: NameProblem,
}

crate::debug_as_display!(NameError);

impl NameError {
    /// What is wrong with the name.
    #[must_use]
    pub const fn problem(&self) -> &NameProblem {
        &self.problem
    }
}

/// What can be wrong with a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum NameProblem {
    /// It has no characters.
    #[error("is empty: give it at least one visible character")]
    Empty,
    /// It has nothing but white space.
    #[error("is blank: give it at least one visible character")]
    Blank,
    /// It is longer than every store can index.
    #[error("is {bytes} bytes long: shorten it to {max} or fewer")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The greatest length allowed.
        max: usize,
    },
    /// It contains a control character.
    #[error("has a control character at byte {at}: remove it")]
    Control {
        /// Where the character starts.
        at: usize,
    },
    /// It is not UTF-8.
    #[error("is not valid UTF-8 from byte {at} on")]
    NotUtf8 {
        /// Where the encoding breaks.
        at: usize,
    },
}

pub(crate) fn check(what: &'static str, text: &str, max: usize) -> Result<(), NameError> {
    // JOB-3
    let problem = if text.is_empty() {
        NameProblem::Empty
    } else if text.len() > max {
        NameProblem::TooLong { bytes: text.len(), max }
    } else if let Some((at, _)) = text.char_indices().find(|(_, c)| c.is_control()) {
        NameProblem::Control { at }
    } else if text.trim().is_empty() {
        NameProblem::Blank
    } else {
        return Ok(());
    };
    Err(NameError { what: what.into(), problem })
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:literal) => {
        $(#[$doc])*
        ///
        /// Cheap to clone.
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The greatest length, in bytes.
            pub const MAX_BYTES: usize = $max;

            /// Checks `text` and takes it as it is.
            ///
            /// # Errors
            ///
            /// [`NameError`] if it is empty, blank, too long or has a control character.
            pub fn new(text: impl AsRef<str>) -> Result<Self, NameError> {
                check($what, text.as_ref(), Self::MAX_BYTES)?;
                Ok(Self(Arc::from(text.as_ref())))
            }

            /// As [`Self::new`], for bytes that came from outside.
            ///
            /// # Errors
            ///
            /// [`NameError`] as for [`Self::new`], and for bytes that are not UTF-8.
            pub fn from_utf8(bytes: &[u8]) -> Result<Self, NameError> {
                match std::str::from_utf8(bytes) {
                    Ok(text) => Self::new(text),
                    Err(error) => Err(NameError {
                        what: Cow::Borrowed($what),
                        problem: NameProblem::NotUtf8 { at: error.valid_up_to() },
                    }),
                }
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = NameError;
            fn try_from(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(text)
            }
        }
    };
}

name! {
    /// Identifies a job, and the flow whose output that job produces.
    JobId, "job id", 255
}
name! {
    /// Names a queue.
    QueueName, "queue name", 255
}
name! {
    /// Names what kind of work a job is; workers choose the handler by it.
    JobType, "job type", 255
}
name! {
    /// Keeps a second enqueue of the same thing from creating a second job in its queue.
    IdempotencyKey, "idempotency key", 1024
}
name! {
    /// Names who holds a lease, for people; nothing is decided by it.
    Holder, "holder", 255
}
name! {
    /// Names a flow, for people.
    FlowName, "flow name", 255
}
name! {
    /// Identifies a schedule. Shorter than a job id, which it is a part of.
    ScheduleName, "schedule name", 200
}
name! {
    /// Names a lane of a queue: a tenant, host or account.
    LaneName, "lane name", 255
}
name! {
    /// Names a service that declares schedules and limits.
    OwnerName, "owner name", 255
}

impl JobId {
    /// A new id: a version 7 UUID whose time is `now`, so that ids sort by creation.
    ///
    /// # Errors
    ///
    /// [`NoRandomness`](crate::error::NoRandomness) if the operating system has none to give.
    pub fn generate(now: Timestamp) -> Result<Self, crate::error::NoRandomness> {
        let mut random = [0; 10];
        crate::random::fill(&mut random)?;
        Ok(Self::from_random(now, &random))
    }

    /// As many new ids as asked for, at the price of one call to the operating system. Those made
    /// in the same millisecond are in no order.
    ///
    /// # Errors
    ///
    /// [`NoRandomness`](crate::error::NoRandomness) if the operating system has none to give.
    pub fn generate_many(
        now: Timestamp,
        count: usize,
    ) -> Result<Vec<Self>, crate::error::NoRandomness> {
        let mut random = vec![0; count * 10];
        crate::random::fill(&mut random)?;
        let (random, _) = random.as_chunks::<10>();
        Ok(random.iter().map(|random| Self::from_random(now, random)).collect())
    }

    fn from_random(now: Timestamp, random: &[u8; 10]) -> Self {
        // A timestamp is never negative, so the conversion cannot lose anything.
        let millis = now.as_micros().unsigned_abs() / 1_000;
        let uuid = uuid::Builder::from_unix_timestamp_millis(millis, random).into_uuid();
        let mut text = uuid::Uuid::encode_buffer();
        Self(Arc::from(&*uuid.hyphenated().encode_lower(&mut text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_are_refused_with_their_reason() {
        let long = "x".repeat(256);
        for (text, problem) in [
            ("", NameProblem::Empty),
            (" \t", NameProblem::Control { at: 1 }),
            (" \u{2003}", NameProblem::Blank),
            (long.as_str(), NameProblem::TooLong { bytes: 256, max: 255 }),
            ("a\0b", NameProblem::Control { at: 1 }),
            ("é\u{85}", NameProblem::Control { at: 2 }),
        ] {
            assert_eq!(QueueName::new(text).unwrap_err().problem(), &problem, "{text:?}");
        }
        assert_eq!(
            QueueName::from_utf8(b"ok\xff").unwrap_err().problem(),
            &NameProblem::NotUtf8 { at: 2 }
        );
    }

    #[test]
    fn nothing_is_trimmed_and_case_is_kept() {
        let name = QueueName::new(" Mail ").unwrap();
        assert_eq!(name.as_str(), " Mail ");
        assert_ne!(name, QueueName::new(" mail ").unwrap());
    }

    #[test]
    fn generated_ids_are_version_7_and_sort_by_time() {
        let ids: Vec<_> = [0, 1_000, 2_000_000, Timestamp::MAX.as_micros()]
            .map(|micros| JobId::generate(Timestamp::from_micros(micros).unwrap()).unwrap())
            .into();
        assert!(ids.is_sorted(), "{ids:?}");
        assert!(ids.iter().all(|id| id.as_str().as_bytes()[14] == b'7'));
    }

    #[test]
    fn many_ids_at_once_are_as_many_different_ones() {
        let ids = JobId::generate_many(Timestamp::EPOCH, 1_000).unwrap();
        assert!(ids.iter().all(|id| id.as_str().as_bytes()[14] == b'7'));
        assert_eq!(ids.into_iter().collect::<std::collections::HashSet<_>>().len(), 1_000);
        assert_eq!(JobId::generate_many(Timestamp::EPOCH, 0).unwrap(), []);
    }
}
