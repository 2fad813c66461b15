//! Parses text to JSON, and refuses a field that an object has twice.
//!
//! A person who reads a document takes the first of two fields of one name for the one that counts,
//! a parser the last. Here there is only one.

use std::{cell::RefCell, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::{DocumentError, Fault, at};

pub(super) fn value(text: &[u8]) -> Result<Value, DocumentError> {
    let twice = RefCell::new(None);
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let seed = Strict { path: &Path::Root, twice: &twice };
    let read = seed.deserialize(&mut deserializer);
    let read = read.and_then(|value| deserializer.end().map(|()| value));
    read.map_err(|error| twice.take().unwrap_or_else(|| at("$", Fault::Syntax(error))))
}

/// Where in the document, told only if something is wrong there.
enum Path<'a> {
    Root,
    Field(&'a Self, &'a str),
    Item(&'a Self, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("$"),
            Self::Field(path, name) => write!(f, "{path}.{name}"),
            Self::Item(path, at) => write!(f, "{path}[{at}]"),
        }
    }
}

struct Strict<'a> {
    path: &'a Path<'a>,
    /// What is there twice.
    twice: &'a RefCell<Option<DocumentError>>,
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let path = Path::Item(self.path, list.len());
            match items.next_element_seed(Strict { path: &path, twice: self.twice })? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let path = Path::Field(self.path, &name);
            if object.contains_key(&name) {
                *self.twice.borrow_mut() = Some(at(&path.to_string(), Fault::DuplicateField));
                return Err(A::Error::custom("a field is there twice"));
            }
            let value = fields.next_value_seed(Strict { path: &path, twice: self.twice })?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}
