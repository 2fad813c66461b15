//! [`Lease`] and [`LeaseToken`]: temporary ownership of a job, and the proof of it.

use std::fmt;

use crate::{Timestamp, error::NoRandomness};

/// The proof that a worker holds a job: 128 bits, new with every grant, that no other worker can guess.
///
/// It is never printed whole: `Debug` shows enough to tell two tokens apart in a log and too
/// little to use one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseToken([u8; 16]);

impl LeaseToken {
    /// A new token from the operating system's randomness.
    ///
    /// # Errors
    ///
    /// [`NoRandomness`] if there is none.
    pub fn random() -> Result<Self, NoRandomness> {
        let mut bytes = [0; 16];
        crate::random::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// As many new tokens as asked for, at the price of one call to the operating system.
    ///
    /// # Errors
    ///
    /// [`NoRandomness`] if there is none.
    pub fn random_many(count: usize) -> Result<Vec<Self>, NoRandomness> {
        let mut bytes = vec![0; count * 16];
        crate::random::fill(&mut bytes)?;
        let (tokens, _) = bytes.as_chunks::<16>();
        Ok(tokens.iter().copied().map(Self).collect())
    }

    /// The token that a store kept as these bits.
    #[must_use]
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits.to_be_bytes())
    }

    /// The bits, for a store to keep.
    #[must_use]
    pub const fn to_bits(self) -> u128 {
        u128::from_be_bytes(self.0)
    }
}

impl fmt::Debug for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseToken({:02x}{:02x}…)", self.0[0], self.0[1])
    }
}

/// A holder's mark on its lease, which decides whether the end of the lease counts as a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum LeaseMark {
    /// A handler is about to run the job.
    Started,
    /// The worker is shutting down, and may have to stop before the job has ended.
    Leaving,
}

impl LeaseMark {
    /// All marks.
    pub const ALL: [Self; 2] = [Self::Started, Self::Leaving];

    /// Its name in stores.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Leaving => "leaving",
        }
    }
}

/// Temporary ownership of an inflight job.
///
/// The holder may change the job while `now < expires_at`. At `now == expires_at` it may not, and
/// the job may be granted to another worker: there is neither a gap nor an overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lease {
    /// The proof of ownership.
    pub token: LeaseToken,
    /// The end of the lease: the first instant at which it is not valid.
    pub expires_at: Timestamp,
}

impl Lease {
    /// A lease with this token until this instant.
    #[must_use]
    pub const fn new(token: LeaseToken, expires_at: Timestamp) -> Self {
        Self { token, expires_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_never_printed_whole() {
        let token = LeaseToken::from_bits(0xfeed_0123_4567_89ab_cdef_0123_4567_89ab);
        assert_eq!(format!("{token:?}"), "LeaseToken(feed…)");
        let lease = Lease::new(token, Timestamp::EPOCH);
        assert!(!format!("{lease:?}").contains("0123"));
    }

    #[test]
    fn tokens_differ() {
        let tokens = LeaseToken::random_many(1_000).unwrap();
        let distinct: std::collections::HashSet<_> = tokens.iter().collect();
        assert_eq!(distinct.len(), 1_000);
        assert_ne!(LeaseToken::random().unwrap(), LeaseToken::random().unwrap());
        for token in tokens {
            assert_eq!(LeaseToken::from_bits(token.to_bits()), token);
        }
    }
}
