//! The metrics of the messaging conventions.

use std::time::Duration;

use opentelemetry::trace::noop::NoopTracerProvider;
use opentelemetry_sdk::metrics::{
    InMemoryMetricExporter, SdkMeterProvider,
    data::{AggregatedMetrics, MetricData, ResourceMetrics, ScopeMetrics},
};
use serde::{Deserialize, Serialize};
use taskharbor::{Client, Context, Handlers, Job, JobError, JobResult, testing::Harbor};
use taskharbor_otel::{MAX_NAMES, Telemetry};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "work", queue = "busy")]
struct Work(bool);

async fn work(Work(succeeds): Work, _: Context) -> JobResult {
    tokio::time::sleep(Duration::from_secs(2)).await;
    if succeeds { Ok(()) } else { Err(JobError::unrecoverable("no")) }
}

/// A data point: the metric, the attributes as text, and the number or count.
type Point = (String, String, u64);

fn points(exporter: &InMemoryMetricExporter) -> Vec<Point> {
    let mut points = Vec::new();
    let exported = exporter.get_finished_metrics().unwrap();
    let scopes = exported.iter().flat_map(ResourceMetrics::scope_metrics);
    for metric in scopes.flat_map(ScopeMetrics::metrics) {
        let mut add = |attributes: Vec<String>, count| {
            points.push((metric.name().to_owned(), attributes.join(" "), count));
        };
        match metric.data() {
            AggregatedMetrics::U64(MetricData::Sum(sum)) => sum.data_points().for_each(|it| {
                add(
                    it.attributes().map(|it| format!("{}={}", it.key, it.value)).collect(),
                    it.value(),
                );
            }),
            AggregatedMetrics::F64(MetricData::Histogram(it)) => it.data_points().for_each(|it| {
                add(
                    it.attributes().map(|it| format!("{}={}", it.key, it.value)).collect(),
                    it.count(),
                );
            }),
            other => panic!("{}: {other:?}", metric.name()),
        }
    }
    points
}

fn count(points: &[Point], name: &str, attributes: &[&str]) -> u64 {
    let has = |found: &str| attributes.iter().all(|it| found.split(' ').any(|one| one == *it));
    let wanted = points.iter().filter(|(metric, found, _)| metric == name && has(found));
    wanted.map(|(_, _, count)| count).sum()
}

#[tokio::test(start_paused = true)]
async fn metrics_have_the_names_and_attributes_of_the_conventions() {
    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
    let telemetry = Telemetry::new(&provider, &NoopTracerProvider::new());
    let (observer, middleware) = (telemetry.clone(), telemetry.clone());
    let harbor = Harbor::configured(Handlers::new().on(work), |worker| {
        worker.observer(observer).middleware(middleware)
    });
    let client = Client::builder(harbor.driver()).observer(telemetry).build().unwrap();
    client.enqueue_many((0..30).map(|_| Work(true))).await.unwrap();
    client.enqueue_many((0..10).map(|_| Work(false))).await.unwrap();
    harbor.run_until_idle().await;
    provider.force_flush().unwrap();

    let points = points(&exporter);
    let count = |name, attributes: &[&str]| count(&points, name, attributes);
    let common = ["messaging.system=taskharbor", "messaging.destination.name=busy"];
    assert_eq!(count("messaging.client.sent.messages", &common), 40);
    assert_eq!(count("messaging.client.consumed.messages", &common), 40);
    let process = "messaging.process.duration";
    assert_eq!(count(process, &["messaging.operation.name=process"]), 40);
    assert_eq!(count(process, &["error.type=_OTHER", "taskharbor.job.type=work"]), 10);
    assert_eq!(count("taskharbor.jobs.finished", &["taskharbor.job.outcome=done"]), 30);
    assert_eq!(count("taskharbor.jobs.finished", &["taskharbor.job.outcome=dead"]), 10);
    assert_eq!(count("taskharbor.job.wait", &common), 40);
    let operation = "messaging.client.operation.duration";
    assert_eq!(count(operation, &["messaging.operation.type=send"]), 2);
    assert!(count(operation, &["messaging.operation.type=settle"]) > 0);
    assert!(count(operation, &["messaging.operation.name=reserve"]) > 0);
}

#[tokio::test]
async fn a_thousand_types_do_not_grow_the_series() {
    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
    let telemetry = Telemetry::new(&provider, &NoopTracerProvider::new());
    let driver = taskharbor::connect("memory:").await.unwrap();
    let client = Client::builder(&driver).observer(telemetry).build().unwrap();
    for n in 0..1_000 {
        client.enqueue_raw(format!("type:{n}"), b"{}".as_slice()).await.unwrap();
    }
    provider.force_flush().unwrap();
    let points = points(&exporter);
    let sent = "messaging.client.sent.messages";
    assert_eq!(points.iter().filter(|(name, ..)| name == sent).count(), MAX_NAMES + 1);
    assert_eq!(count(&points, sent, &["taskharbor.job.type=other"]), 800);
    assert_eq!(count(&points, sent, &[]), 1_000);
}
