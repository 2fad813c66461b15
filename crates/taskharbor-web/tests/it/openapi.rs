//! The description of the API, as it is served and as the repository has it.

use std::{collections::BTreeSet, path::Path};

use serde_json::Value;

use crate::rig::Rig;

/// The file in the repository.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");

/// Every operation of the description: its path, its method and what is said of it.
pub(crate) fn operations(document: &Value) -> Vec<(&str, &str, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    let of_path = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().iter();
        let methods = methods.filter(|(method, _)| *method != "parameters");
        methods.map(move |(method, operation)| (path.as_str(), method.as_str(), operation))
    });
    of_path.collect()
}

#[tokio::test]
async fn the_description_in_the_repository_is_the_one_that_is_served() {
    let served = Rig::new().description().await;
    if std::env::var_os("TASKHARBOR_BLESS").is_some() {
        let text = serde_json::to_string_pretty(&served).unwrap();
        std::fs::write(FILE, text + "\n").unwrap();
    }
    let text = std::fs::read_to_string(Path::new(FILE)).unwrap();
    let kept: Value = serde_json::from_str(&text).unwrap();
    assert!(
        kept == served,
        "docs/openapi.json is not up to date: write it with \
         TASKHARBOR_BLESS=1 cargo test -p taskharbor-web --test it -- openapi"
    );
}

#[tokio::test]
async fn every_operation_has_an_id_of_its_own_a_summary_and_a_tag() {
    let document = Rig::new().description().await;
    let operations = operations(&document);
    assert!(operations.len() > 30);
    let mut ids = BTreeSet::new();
    for (path, method, operation) in operations {
        let at = format!("{method} {path}");
        assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{at}");
        let summary = operation["summary"].as_str().unwrap();
        assert!(!summary.is_empty() && !summary.ends_with('.'), "{at}: {summary}");
        assert!(operation["tags"][0].is_string(), "{at}");
        assert!(operation["responses"]["200"]["content"].is_object(), "{at}");
    }
}

#[tokio::test]
async fn every_schema_that_is_named_is_there_and_every_one_that_is_there_is_named() {
    let document = Rig::new().description().await;
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let text = document.to_string();
    let named: BTreeSet<&str> = text
        .split("\"#/components/schemas/")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    let there: BTreeSet<&str> = schemas.keys().map(String::as_str).collect();
    assert_eq!(named, there);
    // A number at the end stands for a second type of the same name.
    let second: Vec<_> =
        there.iter().filter(|it| it.ends_with(|c: char| c.is_ascii_digit())).collect();
    assert!(second.is_empty(), "{second:?}: rename one with #[schemars(rename = …)]");
}

/// The schemas of interfaces whose names differ from theirs.
const OTHER_NAMES: [(&str, &str); 9] = [
    ("Backfill", "ScheduleBackfilled"),
    ("Content", "JobContent"),
    ("DlqGroups", "Groups"),
    ("Graph", "FlowGraph"),
    ("GraphNode", "FlowGraphNode"),
    ("JobRecord", "JobDetails"),
    ("Limits", "QueueLimits"),
    ("LimitsRecord", "StoredLimits"),
    ("StoreInfo", "StoreName"),
];

#[tokio::test]
async fn the_pages_read_no_field_that_the_api_does_not_have() {
    let document = Rig::new().description().await;
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let types = include_str!("../../types/api.d.ts");
    let mut compared = 0;
    for interface in types.split("export interface ").skip(1) {
        let (head, rest) = interface.split_once("{\n").unwrap();
        let name = head.split([' ', '<']).next().unwrap();
        // Any list, and what workers say about themselves.
        if matches!(name, "Page" | "WorkerInfo") {
            continue;
        }
        let other = OTHER_NAMES.iter().find(|(it, _)| *it == name).map(|(_, other)| *other);
        let schema = schemas.get(other.unwrap_or(name)).unwrap_or_else(|| panic!("{name}"));
        for line in rest.split("\n}").next().unwrap().lines() {
            let Some((field, _)) = line.trim_start().split_once(':') else { continue };
            let field = field.trim_end_matches('?');
            if field.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                assert!(schema["properties"].get(field).is_some(), "{name}.{field}");
                compared += 1;
            }
        }
    }
    assert!(compared > 100, "{compared} fields");
}
