//! Lease tokens that contain the number of their job.
//!
//! The second half of a token is the number of its job, so that the holder's calls find the row without
//! looking for the id. The first half is a secret that all jobs granted together share, mixed with a hash
//! of the id: a token that comes with the id of another job does not match. So one statement grants many
//! jobs, and one statement acks them. Jobs that are granted together have one holder, so a token tells it
//! nothing about the jobs of other holders. The store keeps the secret, 8 bytes; of a token that another store
//! has given it keeps the whole.

use taskharbor_core::{JobId, driver::LeaseToken};

/// What tokens that were given together have in common: 63 random bits, and whether their jobs were
/// plain when they were granted (see [`Secret::is_plain`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Secret(u64);

impl Secret {
    /// The secrets for plain jobs and for others, from one random token.
    pub(crate) fn pair(random: LeaseToken) -> [Self; 2] {
        let (bits, _) = halves(random);
        [Self(bits | 1), Self(bits & !1)]
    }

    /// The secret of a token that came with this id.
    pub(crate) fn of(token: LeaseToken, id: &JobId) -> Self {
        Self(halves(token).0 ^ hash(id))
    }

    /// Whether the job was in no flow and its ack frees no key, so that it may be acked with others.
    pub(crate) const fn is_plain(self) -> bool {
        self.0 & 1 == 1
    }

    pub(crate) fn token(self, id: &JobId, seq: i64) -> LeaseToken {
        let first = u128::from(self.0 ^ hash(id)) << 64;
        LeaseToken::from_bits(first | u128::from(seq.cast_unsigned()))
    }

    /// As the store keeps it.
    pub(crate) const fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

/// The number of the job that a token was given for, if this store has given it.
pub(crate) fn seq_in(token: LeaseToken) -> i64 {
    halves(token).1.cast_signed()
}

/// A job's token as the store keeps it.
pub(crate) fn to_stored(token: LeaseToken, id: &JobId, seq: i64) -> Vec<u8> {
    if seq_in(token) == seq {
        Secret::of(token, id).to_bytes().to_vec()
    } else {
        token.to_bits().to_be_bytes().to_vec()
    }
}

/// A job's token from what the store keeps; `None` if that is no token.
pub(crate) fn from_stored(bytes: &[u8], id: &JobId, seq: i64) -> Option<LeaseToken> {
    if let Ok(secret) = <[u8; 8]>::try_from(bytes) {
        return Some(Secret(u64::from_be_bytes(secret)).token(id, seq));
    }
    let whole = <[u8; 16]>::try_from(bytes).ok()?;
    Some(LeaseToken::from_bits(u128::from_be_bytes(whole)))
}

fn halves(token: LeaseToken) -> (u64, u64) {
    let bits = token.to_bits();
    // Each fits: the one is shifted down, the other cut.
    ((bits >> 64) as u64, bits as u64)
}

/// FNV-1a. It must not change: tokens that were given with it are held while programs are replaced.
fn hash(id: &JobId) -> u64 {
    id.as_str().bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> JobId {
        JobId::new(text).unwrap()
    }

    #[test]
    fn a_token_leads_to_its_job_and_to_no_other() {
        let [plain, other] = Secret::pair(LeaseToken::random().unwrap());
        assert!(plain.is_plain() && !other.is_plain());
        for secret in [plain, other] {
            let token = secret.token(&id("a"), 7);
            assert_eq!(seq_in(token), 7);
            assert_eq!(Secret::of(token, &id("a")), secret);
            assert_ne!(Secret::of(token, &id("b")), secret);
        }
    }

    #[test]
    fn a_token_is_read_back_as_it_was() {
        let random = LeaseToken::random().unwrap();
        let [plain, _] = Secret::pair(random);
        for (token, length) in [(plain.token(&id("a"), 7), 8), (random, 16)] {
            let stored = to_stored(token, &id("a"), 7);
            assert_eq!(stored.len(), length);
            assert_eq!(from_stored(&stored, &id("a"), 7), Some(token));
        }
        assert_eq!(from_stored(&[1, 2, 3], &id("a"), 7), None);
    }

    #[test]
    fn the_hash_of_an_id_stays() {
        assert_eq!(hash(&id("a")), 0xaf63_dc4c_8601_ec8c);
    }
}
