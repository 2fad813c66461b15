//! [`Token`]: what a lease token of this store is made of.
//!
//! A call of Reserve draws one random number for all jobs that it grants (RES-8). The token of a job is that number,
//! mixed with the job's id and number, and the job's number. So a token finds its job without an index on ids, and a token
//! that is shown with the id of another job is no token of that job.

use taskharbor_core::{JobId, driver::LeaseToken, error::NoRandomness};

/// The two halves of a lease token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    /// `lease_token` in the tables.
    pub(crate) random: i64,
    /// The number of the job.
    pub(crate) seq: i64,
}

impl Token {
    /// The halves of a token that is shown with the id of a job. They mean nothing if another store issued it.
    pub(crate) fn read(token: LeaseToken, id: &JobId) -> Self {
        let bits = token.to_bits().to_be_bytes();
        let (random, seq) = bits.split_at(8);
        let half =
            |bytes: &[u8]| bytes.iter().fold(0, |half: i64, byte| half << 8 | i64::from(*byte));
        let seq = half(seq);
        Self { random: half(random) ^ mask(id, seq), seq }
    }

    pub(crate) fn lease_token(self, id: &JobId) -> LeaseToken {
        let half = |half: i64| u128::from(half.cast_unsigned());
        LeaseToken::from_bits(half(self.random ^ mask(id, self.seq)) << 64 | half(self.seq))
    }
}

/// A number for the jobs that one call grants.
pub(crate) fn random() -> Result<i64, NoRandomness> {
    let bits = LeaseToken::random()?.to_bits().to_be_bytes();
    Ok(bits.iter().take(8).fold(0, |half, byte| half << 8 | i64::from(*byte)))
}

/// What the random half is mixed with, so that no bit of the id or of the number can be changed.
fn mask(id: &JobId, seq: i64) -> i64 {
    hash(id) ^ seq.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.cast_signed())
}

/// FNV-1a. Tokens outlive processes, so it must never change.
fn hash(id: &JobId) -> i64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    id.as_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, mix).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> JobId {
        JobId::new(text).unwrap()
    }

    #[test]
    fn a_token_is_read_back_with_its_id_alone() {
        for (random, seq) in [(0, 1), (-1, i64::MAX), (i64::MIN, 77), (12_345, 512)] {
            let token = Token { random, seq };
            let shown = token.lease_token(&id("a"));
            assert!(Token::read(shown, &id("a")) == token);
            assert!(Token::read(shown, &id("b")).random != random);
            assert_eq!(Token::read(shown, &id("b")).seq, seq);
        }
    }

    #[test]
    fn the_hash_is_the_one_that_stored_tokens_were_made_with() {
        assert_eq!(hash(&id("a")), 0xaf63_dc4c_8601_ec8c_u64.cast_signed());
        assert_eq!(hash(&id("foobar")), 0x8594_4171_f739_67e8_u64.cast_signed());
    }

    #[test]
    fn random_numbers_differ() {
        assert_ne!(random().unwrap(), random().unwrap());
    }
}
