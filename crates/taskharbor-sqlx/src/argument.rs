//! Binding the driver's values as parameters of a statement.

use sqlx::{
    Arguments, Encode, Postgres, Type,
    encode::IsNull,
    error::BoxDynError,
    postgres::{PgArgumentBuffer, PgArguments, PgHasArrayType, PgTypeInfo, types::Oid},
};
use taskharbor_postgres::bridge::Value;

/// The values as sqlx sends them: each of exactly the type that the statement expects.
pub(crate) fn of(values: &[Value<'_>]) -> Result<PgArguments, BoxDynError> {
    let mut arguments = PgArguments::default();
    for value in values {
        match value {
            Value::BigInt(number) => arguments.add(number),
            Value::BigInts(numbers) => arguments.add(&numbers[..]),
            Value::Text(text) => arguments.add(text),
            Value::Texts(texts) => arguments.add(&texts[..]),
            Value::Byteas(all) => arguments.add(&all[..]),
            Value::Uuids(all) => {
                let all: Vec<Bits> = all.iter().copied().map(Bits).collect();
                arguments.add(all)
            }
            Value::Bool(truth) => arguments.add(truth),
        }?;
    }
    Ok(arguments)
}

/// A `uuid` as the number that its 128 bits are. The feature of sqlx for such would bring SQLite along.
struct Bits(u128);

/// The numbers by which every server knows these two types.
const UUID: Oid = Oid(2950);
const UUID_ARRAY: Oid = Oid(2951);

impl Type<Postgres> for Bits {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(UUID)
    }
}

impl PgHasArrayType for Bits {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(UUID_ARRAY)
    }
}

impl Encode<'_, Postgres> for Bits {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(&self.0.to_be_bytes());
        Ok(IsNull::No)
    }
}
