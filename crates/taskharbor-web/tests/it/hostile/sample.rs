//! Examples of requests, made from their schemas, and what can be wrong with them.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use taskharbor::Timestamp;

/// How deep examples go: schemas refer to themselves.
const MAX_DEPTH: usize = 8;
/// Stands in an example where a number is written.
const HERE: &str = "@number@";

/// Makes examples of schemas.
pub(super) struct Samples<'a> {
    schemas: &'a Map<String, Value>,
    now: Timestamp,
}

/// Which fields an example has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fields {
    Required,
    All,
}

impl<'a> Samples<'a> {
    pub(super) fn new(document: &'a Value, now: Timestamp) -> Self {
        Self { schemas: document["components"]["schemas"].as_object().unwrap(), now }
    }

    /// An example with what it has to have.
    pub(super) fn required(&self, schema: &Value) -> Value {
        self.example(schema, Fields::Required, 0, 0)
    }

    /// Examples with all fields, one for each way in which their parts can be chosen first.
    pub(super) fn all(&self, schema: &Value) -> Vec<Value> {
        let mut examples: Vec<Value> = Vec::new();
        for choice in 0..16 {
            let example = self.example(schema, Fields::All, choice, 0);
            if !examples.contains(&example) {
                examples.push(example);
            }
        }
        examples
    }

    /// Examples in which one value is of another kind.
    pub(super) fn twisted(&self, schema: &Value) -> Vec<Value> {
        let (mut twisted, mut seen) = (Vec::new(), BTreeSet::new());
        for example in self.all(schema) {
            for place in places_of(&example).into_iter().filter(|it| seen.insert(it.clone())) {
                for other in [
                    json!(null),
                    json!("\0"),
                    json!({}),
                    json!([[]]),
                    json!(-7.5),
                    json!("x".repeat(10_000)),
                ] {
                    let mut changed = example.clone();
                    if let Some(value) = changed.pointer_mut(&place) {
                        *value = other;
                        twisted.push(changed);
                    }
                }
            }
        }
        twisted
    }

    /// Examples as text in which one number is written like this; and whether it has to be an integer.
    pub(super) fn with_number(&self, schema: &Value, number: &str) -> Vec<(bool, String)> {
        let (mut bodies, mut seen) = (Vec::new(), BTreeSet::new());
        for example in self.all(schema) {
            for place in places_of(&example).into_iter().filter(|it| seen.insert(it.clone())) {
                let mut changed = example.clone();
                let Some(value) = changed.pointer_mut(&place) else { continue };
                let Value::Number(was) = value else { continue };
                let is_integer = was.is_i64() || was.is_u64();
                *value = json!(HERE);
                let text = changed.to_string().replace(&format!("\"{HERE}\""), number);
                bodies.push((is_integer, text));
            }
        }
        bodies
    }

    fn example(&self, schema: &Value, fields: Fields, choice: usize, depth: usize) -> Value {
        if let Some(name) = schema["$ref"].as_str().and_then(|it| it.rsplit('/').next()) {
            return self.example(&self.schemas[name], fields, choice, depth);
        }
        if let Some(value) = schema.get("const") {
            return value.clone();
        }
        for key in ["oneOf", "anyOf"] {
            let choices = schema[key].as_array().map_or(&[][..], |it| it);
            let real: Vec<_> = choices.iter().filter(|it| it["type"] != "null").collect();
            if !real.is_empty() {
                let chosen = if depth >= MAX_DEPTH { 0 } else { choice % real.len() };
                return self.example(real[chosen], fields, choice, depth + 1);
            }
        }
        if let Some(values) = schema["enum"].as_array() {
            return values[choice % values.len()].clone();
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => kinds.iter().find(|it| *it != "null").and_then(Value::as_str),
            kind => kind.as_str(),
        };
        match kind {
            Some("object") => self.object(schema, fields, choice, depth),
            Some("array") => self.array(schema, fields, choice, depth),
            Some("integer") => json!(schema["minimum"].as_i64().unwrap_or(0).max(0) + 1),
            Some("number") => json!(1.5),
            Some("boolean") => json!(choice.is_multiple_of(2)),
            Some("null") => Value::Null,
            Some("string") => json!(self.text(schema)),
            _ => json!({}),
        }
    }

    fn object(&self, schema: &Value, fields: Fields, choice: usize, depth: usize) -> Value {
        let mut object = Map::new();
        let required = schema["required"].as_array();
        let is_required = |name: &str| required.is_some_and(|it| it.iter().any(|it| it == name));
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            if is_required(name) || (fields == Fields::All && depth < MAX_DEPTH) {
                let value = match property {
                    Value::Bool(_) => json!({}),
                    property => self.example(property, fields, choice, depth + 1),
                };
                object.insert(name.clone(), value);
            }
        }
        Value::Object(object)
    }

    fn array(&self, schema: &Value, fields: Fields, choice: usize, depth: usize) -> Value {
        let fixed = schema["prefixItems"].as_array().into_iter().flatten();
        let mut items: Vec<_> =
            fixed.map(|it| self.example(it, fields, choice, depth + 1)).collect();
        if items.is_empty()
            && fields == Fields::All
            && depth < MAX_DEPTH
            && schema["items"].is_object()
        {
            items.push(self.example(&schema["items"], fields, choice, depth + 1));
        }
        Value::Array(items)
    }

    fn text(&self, schema: &Value) -> String {
        match (schema["format"].as_str(), schema["pattern"].as_str()) {
            (Some("date-time"), _) => self.now.to_string(),
            (_, Some(pattern)) if pattern.contains("{32}") => "0".repeat(32),
            (_, Some(pattern)) if pattern.contains("{16}") => "0".repeat(16),
            _ if schema["contentEncoding"] == "base64" => "e30=".to_owned(),
            _ => "x".to_owned(),
        }
    }
}

/// The places of all values, as JSON pointers.
fn places_of(value: &Value) -> Vec<String> {
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(map) => {
            let escaped = |name: &String| name.replace('~', "~0").replace('/', "~1");
            map.iter().map(|(name, value)| (escaped(name), value)).collect()
        }
        Value::Array(list) => {
            list.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect()
        }
        _ => Vec::new(),
    };
    let mut places = Vec::new();
    for (name, value) in inner {
        places.push(format!("/{name}"));
        places.extend(places_of(value).into_iter().map(|place| format!("/{name}{place}")));
    }
    places
}
