//! The schemas of what requests carry and of what is answered.
//!
//! A type that travels in both directions can have two schemas: what may be left out of a request is always
//! in an answer. Then the one of the answer has a name of its own.

use std::collections::{BTreeMap, BTreeSet};

use schemars::{
    Schema, SchemaGenerator,
    generate::{Contract, SchemaSettings},
};
use serde_json::{Map, Value, json};

const PREFIX: &str = "#/components/schemas/";

/// Collects the schemas of a description.
pub(super) struct Schemas {
    taken: SchemaGenerator,
    answered: SchemaGenerator,
}

type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

impl Schemas {
    pub(super) fn new() -> Self {
        let generator = |contract: Contract| {
            let settings = SchemaSettings::draft2020_12().with(|it| {
                it.definitions_path = "/components/schemas".into();
                it.contract = contract;
            });
            settings.into_generator()
        };
        Self { taken: generator(Contract::Deserialize), answered: generator(Contract::Serialize) }
    }

    /// The schema of what a request carries.
    pub(super) fn taken(&mut self, schema: SchemaOf) -> Value {
        schema(&mut self.taken).to_value()
    }

    /// The schema of what is answered.
    pub(super) fn answered(&mut self, schema: SchemaOf) -> Value {
        let mut schema = schema(&mut self.answered).to_value();
        each_reference(&mut schema, &mut |reference| reference.push_str(ANSWERED));
        schema
    }

    /// The parameters of a query.
    pub(super) fn parameters(&mut self, schema: SchemaOf) -> Vec<Value> {
        let schema = self.taken(schema);
        let schema = self.resolve(&schema);
        let required: BTreeSet<&str> = list(schema, "required").filter_map(Value::as_str).collect();
        let properties = schema.get("properties").and_then(Value::as_object);
        let parameters = properties.into_iter().flatten().map(|(name, schema)| {
            let mut schema = schema.clone();
            let description = schema.as_object_mut().and_then(|it| it.remove("description"));
            let mut parameter = json!({
                "name": name,
                "in": "query",
                "required": required.contains(name.as_str()),
                "schema": without_null(schema),
            });
            if let Some(description) = description {
                parameter["description"] = description;
            }
            parameter
        });
        parameters.collect()
    }

    fn resolve<'a>(&'a self, schema: &'a Value) -> &'a Value {
        let reference = schema.get("$ref").and_then(Value::as_str);
        let name = reference.and_then(|it| it.strip_prefix(PREFIX));
        name.and_then(|name| self.taken.definitions().get(name)).unwrap_or(schema)
    }

    /// Writes the schemas that the description names.
    pub(super) fn finish(mut self, document: &mut Value) {
        let taken = self.taken.take_definitions(false);
        let answered = self.answered.take_definitions(false);
        let names = names_of_answered(&taken, &answered);
        let mut rename = |reference: &mut String| {
            if let Some(name) = reference.strip_suffix(ANSWERED)
                && let Some(name) = name.strip_prefix(PREFIX)
            {
                *reference = format!("{PREFIX}{}", names.get(name).map_or(name, String::as_str));
            }
        };
        let mut all = taken;
        for (name, mut schema) in answered {
            each_reference(&mut schema, &mut |reference| {
                reference.push_str(ANSWERED);
                rename(reference);
            });
            let name = names.get(&name).cloned().unwrap_or(name);
            all.insert(name, schema);
        }
        all.values_mut().for_each(describe_plainly);
        each_reference(document, &mut rename);
        keep_named(&mut all, document);
        document["components"]["schemas"] = Value::Object(all);
    }
}

/// Marks a reference to the schema of an answer until its name is known. No name of a type has it.
const ANSWERED: &str = " answered";

/// The names of schemas of answers that differ from those of requests, with new ones.
fn names_of_answered(
    taken: &Map<String, Value>,
    answered: &Map<String, Value>,
) -> BTreeMap<String, String> {
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    let other = |name: &String| (name.clone(), format!("{name}Answered"));
    let both = answered.iter().filter(|(name, _)| taken.contains_key(*name));
    let both: Vec<(&String, &Value)> = both.collect();
    names.extend(
        both.iter().filter(|(name, schema)| taken.get(*name) != Some(schema)).map(|it| other(it.0)),
    );
    // What names a schema that differs, differs as well.
    loop {
        let more = both.iter().filter(|(name, schema)| {
            let mut references = Vec::new();
            references_of(schema, &mut references);
            !names.contains_key(*name) && references.iter().any(|it| names.contains_key(*it))
        });
        let more: Vec<_> = more.map(|it| other(it.0)).collect();
        if more.is_empty() {
            return names;
        }
        names.extend(more);
    }
}

/// Drops what is not named by the document, such as queries, whose parameters are listed.
fn keep_named(all: &mut Map<String, Value>, document: &Value) {
    let mut named: BTreeSet<String> = BTreeSet::new();
    let mut open: Vec<&str> = Vec::new();
    references_of(document, &mut open);
    while let Some(name) = open.pop() {
        if named.insert(name.to_owned())
            && let Some(schema) = all.get(name)
        {
            references_of(schema, &mut open);
        }
    }
    all.retain(|name, _| named.contains(name));
}

/// The names of the schemas that a value refers to.
fn references_of<'a>(value: &'a Value, into: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(text) if key == "$ref" => into.extend(text.strip_prefix(PREFIX)),
                    value => references_of(value, into),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| references_of(value, into)),
        _ => {}
    }
}

fn each_reference(value: &mut Value, change: &mut impl FnMut(&mut String)) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(text) if key == "$ref" => change(text),
                    value => each_reference(value, change),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| each_reference(value, change)),
        _ => {}
    }
}

/// Writes links to items of the library as code: here they lead nowhere.
fn describe_plainly(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(text) if key == "description" => *text = without_links(text),
                    value => describe_plainly(value),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(describe_plainly),
        _ => {}
    }
}

fn without_links(text: &str) -> String {
    let (mut plain, mut rest) = (String::new(), text);
    while let Some((before, link)) = rest.split_once("[`")
        && let Some((code, after)) = link.split_once("`]")
    {
        plain.extend([before, "`", code, "`"]);
        let target = after.strip_prefix('(').and_then(|it| it.split_once(')'));
        rest = target.map_or(after, |(_, after)| after);
    }
    plain + rest
}

/// A parameter of a query is there or not, and never null.
fn without_null(mut schema: Value) -> Value {
    if let Some(kinds) = schema.get_mut("type").and_then(Value::as_array_mut) {
        kinds.retain(|kind| kind != "null");
        if let [kind] = &kinds[..] {
            schema["type"] = kind.clone();
        }
    }
    let is_null = |it: &Value| it.get("type").is_some_and(|kind| kind == "null");
    let some: Vec<&Value> = list(&schema, "anyOf").filter(|it| !is_null(it)).collect();
    match some[..] {
        [one] => one.clone(),
        _ => schema,
    }
}

fn list<'a>(schema: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    schema.get(key).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_become_code() {
        let text = "[`A::b`] and [`C`](crate::C), as a[0] is, (so) [`open";
        assert_eq!(without_links(text), "`A::b` and `C`, as a[0] is, (so) [`open");
    }

    #[test]
    fn a_schema_that_differs_in_both_directions_has_two_names_and_so_has_what_names_it() {
        let reference = |name: &str| json!({ "$ref": format!("{PREFIX}{name}") });
        let taken = json!({ "A": { "type": "integer" }, "B": reference("A"), "C": reference("D"), "D": {} });
        let mut answered = taken.clone();
        answered["A"] = json!({ "type": "string" });
        let (Value::Object(taken), Value::Object(answered)) = (taken, answered) else { return };
        let names = names_of_answered(&taken, &answered);
        let names: Vec<&str> = names.values().map(String::as_str).collect();
        assert_eq!(names, ["AAnswered", "BAnswered"]);
    }
}
