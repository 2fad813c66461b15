//! The number of series is bounded for any number of types and queues.

use taskharbor::{Client, Options};
use taskharbor_prometheus::{MAX_NAMES, Metrics};

use crate::{samples, sum};

#[tokio::test]
async fn ten_thousand_types_do_not_grow_the_registry() {
    let driver = taskharbor::connect("memory:").await.unwrap();
    let metrics = Metrics::new();
    let client = Client::builder(&driver).observer(metrics.clone()).build().unwrap();
    for n in 0..10_000 {
        client.enqueue_raw(format!("type:{n}"), b"{}".as_slice()).await.unwrap();
    }
    let scraped = samples(&metrics.encode());
    let types = scraped.keys().filter(|it| it.contains("type=")).count();
    assert_eq!(types, 2 * (MAX_NAMES + 1), "one for new, one for existing jobs");
    let other = sum(&scraped, "taskharbor_jobs_enqueued_total", &[("type", "other")]);
    assert_eq!(other, 9_800.0);
    assert_eq!(sum(&scraped, "taskharbor_jobs_enqueued_total", &[]), 10_000.0);
}

#[tokio::test]
async fn a_thousand_queues_do_not_grow_the_registry() {
    let driver = taskharbor::connect("memory:").await.unwrap();
    let metrics = Metrics::new();
    let client = Client::builder(&driver).observer(metrics.clone()).build().unwrap();
    for n in 0..1_000 {
        let options = Options::new().queue(format!("queue-{n}"));
        client.enqueue_raw("work", b"{}".as_slice()).options(options).await.unwrap();
    }
    metrics.queues().refresh(&driver).await.unwrap();
    let scraped = samples(&metrics.encode());
    let jobs = |labels: &[_]| sum(&scraped, "taskharbor_queue_jobs", labels);
    assert_eq!(jobs(&[("queue", "other"), ("state", "ready")]), 800.0);
    assert_eq!(jobs(&[]), 1_000.0);
    let enqueued = |labels: &[_]| sum(&scraped, "taskharbor_jobs_enqueued_total", labels);
    assert_eq!(enqueued(&[("queue", "other"), ("type", "work")]), 800.0);
    assert_eq!(enqueued(&[]), 1_000.0);
    let queues = scraped.keys().filter(|it| it.contains("taskharbor_queue_paused{")).count();
    assert_eq!(queues, MAX_NAMES + 1);
}
