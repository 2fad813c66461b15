//! The metrics that `ops/` and the guide name are those that the adapter exports.

use std::{collections::BTreeSet, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use taskharbor::{Client, Context, Driver, Handlers, Job, JobResult, Schedule, testing::Harbor};
use taskharbor_core::{
    Blob,
    driver::{Announce, Incarnation},
    name::Holder,
};
use taskharbor_prometheus::Metrics;

const DASHBOARD: &str = include_str!("../../../../ops/grafana/taskharbor.json");
const ALERTS: &str = include_str!("../../../../ops/alerts.yml");
const KEDA: &str = include_str!("../../../../ops/keda.yaml");
const KUBERNETES: &str = include_str!("../../../../ops/kubernetes/worker.yaml");
const GUIDE: &str = include_str!("../../../../docs/guides/observability.md");

#[derive(Serialize, Deserialize, Job)]
#[job(type = "work")]
struct Work;

async fn work(_: Work, _: Context) -> JobResult {
    Ok(())
}

/// What a metric is called in queries: a histogram has three names.
async fn exported() -> BTreeSet<String> {
    let metrics = Metrics::new();
    let observer = metrics.clone();
    let harbor = Harbor::configured(Handlers::new().on(work), |it| it.observer(observer));
    let client = Client::builder(harbor.driver()).observer(metrics.clone()).build().unwrap();
    client.enqueue(Work).await.unwrap();
    let schedule = Schedule::every("tick", Duration::from_secs(60)).job(Work);
    client.schedules().put(schedule).await.unwrap();
    harbor.run_until_idle().await;
    // Workers of this kind of test do not announce themselves.
    let info = Blob::from(br#"{"queues":[{"name":"default","slots":1}]}"#);
    let (holder, now) = (Holder::new("w").unwrap(), harbor.driver().now().await.unwrap());
    let minute = Duration::from_secs(60);
    let announced = Announce::new(holder, Incarnation::from_bits(1), info, minute, now);
    harbor.driver().announce(announced).await.unwrap();
    metrics.queues().refresh(harbor.driver()).await.unwrap();
    let text = metrics.encode();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let names = types.flat_map(|(name, kind)| match kind {
        "counter" => vec![format!("{name}_total")],
        "histogram" => ["bucket", "sum", "count"].map(|it| format!("{name}_{it}")).into(),
        "gauge" => vec![name.to_owned()],
        other => panic!("{name} is a {other}"),
    });
    names.collect()
}

/// Everything that looks like a metric of ours.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let crates = ["taskharbor_prometheus", "taskharbor_otel"];
    let words = words.filter(|word| word.starts_with("taskharbor_") && !crates.contains(word));
    words.map(str::to_owned).collect()
}

/// The queries anywhere below this value.
fn queries<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(query) if ["expr", "query"].contains(&name.as_str()) => found.push(query),
                    _ => queries(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| queries(item, found)),
        _ => {}
    }
}

/// Fails if a metric is named that the adapter does not export.
#[track_caller]
fn assert_exported(file: &str, text: &str, exported: &BTreeSet<String>) -> usize {
    let named = named(text);
    let unknown: Vec<_> = named.iter().filter(|name| !exported.contains(*name)).collect();
    assert!(unknown.is_empty(), "{file} names {unknown:?}; there are {exported:#?}");
    named.len()
}

#[tokio::test(start_paused = true)]
async fn the_dashboard_names_only_what_is_exported() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut found = Vec::new();
    queries(&dashboard, &mut found);
    let panels = dashboard["panels"].as_array().unwrap();
    let rows = panels.iter().filter(|panel| panel["type"] == "row");
    let rows: Vec<_> = rows.map(|panel| panel["title"].as_str().unwrap()).collect();
    assert_eq!(rows, ["Overview", "Queues", "Workers"]);
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        assert!(!panel["targets"].as_array().unwrap().is_empty(), "{panel}");
        assert_ne!(panel["description"], "", "{panel}");
    }
    assert!(found.len() > 20, "{found:?}");
    for query in &found {
        assert!(!named(query).is_empty() || *query == "prometheus", "{query}");
        assert_eq!(query.matches('(').count(), query.matches(')').count(), "{query}");
        assert_eq!(query.matches('{').count(), query.matches('}').count(), "{query}");
    }
    assert!(assert_exported("taskharbor.json", &found.join("\n"), &exported().await) >= 10);
}

/// The rules, each as its lines.
fn rules() -> Vec<&'static str> {
    ALERTS.split("- alert: ").skip(1).collect()
}

#[tokio::test(start_paused = true)]
async fn alerts_name_only_what_is_exported() {
    assert!(assert_exported("alerts.yml", ALERTS, &exported().await) >= 5);
    assert!(rules().len() > 5);
    for rule in rules() {
        for key in ["expr:", "for:", "labels:", "severity:", "annotations:", "summary:"] {
            let lines = rule.lines().filter(|line| line.trim_start().starts_with(key));
            assert_eq!(lines.count(), 1, "{key} in {rule}");
        }
        assert!(!named(rule).is_empty(), "{rule}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_scaler_names_only_what_is_exported() {
    assert_eq!(assert_exported("keda.yaml", KEDA, &exported().await), 2);
}

#[tokio::test(start_paused = true)]
async fn the_guide_has_each_metric_and_each_alert() {
    // In its table a histogram stands under its own name.
    let (of_prometheus, _) = GUIDE.split_once("## OpenTelemetry").unwrap();
    let tables = of_prometheus.lines().filter(|line| line.starts_with("| `taskharbor_"));
    let listed: BTreeSet<_> = tables.filter_map(|line| line.split('`').nth(1)).collect();
    let own = |name: &String| {
        let suffixes = ["_bucket", "_sum", "_count"];
        let of_histogram = suffixes.iter().find_map(|it| name.strip_suffix(it));
        of_histogram.unwrap_or(name).to_owned()
    };
    let exported: BTreeSet<_> = exported().await.iter().map(own).collect();
    assert_eq!(listed, exported.iter().map(String::as_str).collect());
    for rule in rules() {
        let name = rule.lines().next().unwrap();
        assert!(GUIDE.contains(&format!("`{name}`")), "the guide does not say what {name} means");
    }
}

#[tokio::test(start_paused = true)]
async fn a_metric_that_is_not_exported_is_found() {
    let named = named("rate(taskharbor_jobs_lost_total{queue=\"mail\"}[5m])");
    let exported = exported().await;
    assert!(named.iter().all(|name| !exported.contains(name)));
    assert_eq!(named.len(), 1);
    assert!(exported.contains("taskharbor_jobs_finished_total"));
}

/// A container that restarts in its pod would have the name of the worker that died, and its jobs would
/// wait for the ends of their leases.
#[test]
fn workers_in_pods_have_new_names_and_notice_each_others_deaths() {
    let options: Vec<_> =
        KUBERNETES.lines().filter_map(|it| it.trim().strip_prefix("- --")).collect();
    assert!(!options.iter().any(|it| it.starts_with("name")), "{options:?}");
    assert!(options.contains(&"fast-recovery=10s"), "{options:?}");
    assert!(!KUBERNETES.contains("preStop:"));
}
