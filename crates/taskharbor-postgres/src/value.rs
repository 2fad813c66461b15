//! The parameters of a statement: neutral values that every PostgreSQL client can bind.
//!
//! There are few kinds, because lists are sent as arrays. A value is bound as it
//! is rather than what it holds, so that a client which logs its parameters logs only kinds and
//! lengths: payloads and keys stay out of logs.

use std::{error::Error, fmt};

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, WrongType, to_sql_checked};

/// One parameter of a statement. Texts are bound as they are: `Text` and names have no character that
/// PostgreSQL cannot store (JOB-3, JOB-4).
#[derive(Clone, PartialEq)]
pub enum Value<'a> {
    /// An `int8`.
    BigInt(Option<i64>),
    /// An `int8[]`.
    BigInts(Vec<Option<i64>>),
    /// A `text`.
    Text(Option<&'a str>),
    /// A `text[]`.
    Texts(Vec<Option<&'a str>>),
    /// A `bytea[]`.
    Byteas(Vec<Option<&'a [u8]>>),
    /// A `uuid[]`.
    Uuids(Vec<u128>),
    /// A `bool`.
    Bool(bool),
}

impl Value<'_> {
    /// The type that the statement must declare for it.
    pub(crate) fn sql_type(&self) -> Type {
        match self {
            Self::BigInt(_) => Type::INT8,
            Self::BigInts(_) => Type::INT8_ARRAY,
            Self::Text(_) => Type::TEXT,
            Self::Texts(_) => Type::TEXT_ARRAY,
            Self::Byteas(_) => Type::BYTEA_ARRAY,
            Self::Uuids(_) => Type::UUID_ARRAY,
            Self::Bool(_) => Type::BOOL,
        }
    }

    /// Itself, as `tokio-postgres` takes parameters.
    pub(crate) fn bind(&self) -> &(dyn ToSql + Sync) {
        self
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BigInt(number) => write!(f, "{number:?}"),
            Self::BigInts(numbers) => write!(f, "int8[{}]", numbers.len()),
            Self::Text(text) => write!(f, "text of {:?} bytes", text.map(str::len)),
            Self::Texts(texts) => write!(f, "text[{}]", texts.len()),
            Self::Byteas(all) => write!(f, "bytea[{}]", all.len()),
            Self::Uuids(all) => write!(f, "uuid[{}]", all.len()),
            Self::Bool(truth) => write!(f, "{truth}"),
        }
    }
}

impl ToSql for Value<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        // `accepts` is asked about a type and not about a value, so the match is made here.
        if *ty != self.sql_type() {
            return Err(WrongType::new::<Self>(ty.clone()).into());
        }
        match self {
            Self::BigInt(number) => number.to_sql(ty, out),
            Self::BigInts(numbers) => numbers.to_sql(ty, out),
            Self::Text(text) => text.to_sql(ty, out),
            Self::Texts(texts) => texts.to_sql(ty, out),
            Self::Byteas(all) => all.to_sql(ty, out),
            Self::Uuids(all) => all.iter().copied().map(Bits).collect::<Vec<_>>().to_sql(ty, out),
            Self::Bool(truth) => truth.to_sql(ty, out),
        }
    }

    fn accepts(ty: &Type) -> bool {
        [
            Type::INT8,
            Type::INT8_ARRAY,
            Type::TEXT,
            Type::TEXT_ARRAY,
            Type::BYTEA_ARRAY,
            Type::UUID_ARRAY,
            Type::BOOL,
        ]
        .contains(ty)
    }

    to_sql_checked!();
}

/// A `uuid` as the number that its 128 bits are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bits(pub(crate) u128);

impl fmt::Debug for Bits {
    /// Lease tokens are such numbers, so it is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("uuid")
    }
}

impl ToSql for Bits {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_u128(self.0);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::UUID
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Bits {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(u128::from_be_bytes(raw.try_into()?)))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::UUID
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_kinds_and_lengths_and_no_contents() {
        let values = [
            Value::Text(Some("canary")),
            Value::Texts(vec![Some("canary"), None]),
            Value::Byteas(vec![Some(b"canary")]),
            Value::Uuids(vec![0xCA9A]),
            Value::Text(None),
        ];
        let shown = format!("{values:?} {:?}", Bits(0xCA9A));
        assert_eq!(
            shown,
            "[text of Some(6) bytes, text[2], bytea[1], uuid[1], \
             text of None bytes] uuid"
        );
    }

    #[test]
    fn bits_are_sixteen_bytes_in_network_order() {
        let mut out = BytesMut::new();
        Bits(1).to_sql(&Type::UUID, &mut out).unwrap();
        assert_eq!(out[..], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(Bits::from_sql(&Type::UUID, &out).unwrap(), Bits(1));
        assert!(Bits::from_sql(&Type::UUID, &out[1..]).is_err());
    }

    #[test]
    fn a_value_is_bound_to_no_type_but_its_own() {
        let mut out = BytesMut::new();
        assert!(Value::BigInt(Some(1)).to_sql_checked(&Type::TEXT, &mut out).is_err());
        assert!(Value::Bool(true).to_sql_checked(&Type::INT4, &mut out).is_err());
        assert!(out.is_empty());
    }
}
