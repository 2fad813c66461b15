//! `taskharbor metrics`: the number of jobs that wait in a store, for Prometheus.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use taskharbor::AnyDriver;
use taskharbor_prometheus::QueueGauges;
use tokio::{sync::Mutex, time::Instant};

use super::worker::health::listen;
use crate::{
    failure::{Failure, Outcome, chain},
    screen::Screen,
    stderr::tell,
    store::{Missing, Url},
};

/// The store is asked no more often than this, however many scrape.
const FRESH: Duration = Duration::from_secs(5);

/// Print the gauges of all queues for Prometheus, or serve them
///
/// The gauges are the depth of each queue, the age of its oldest ready job, pauses and late
/// schedules. Run this command once for a store, not beside each worker, because sums over
/// processes would count each job more than once. Counters of workers are served by `taskharbor
/// worker --health`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor metrics
  taskharbor metrics --bind 0.0.0.0:9465")]
pub(crate) struct Args {
    /// Serve GET /metrics on this address until interrupted
    #[arg(long, value_name = "ADDRESS:PORT")]
    bind: Option<SocketAddr>,
}

/// The gauges of a store, and when they were read.
struct Exporter {
    driver: AnyDriver,
    gauges: QueueGauges,
    read_at: Mutex<Option<Instant>>,
}

pub(crate) async fn run(args: &Args, url: &Url, screen: &mut Screen) -> Outcome {
    let listener = match args.bind {
        Some(address) => Some(listen(address, "--bind").await?),
        None => None,
    };
    let driver = url.open(Missing::Refuse).await?;
    let gauges = QueueGauges::new();
    let Some(listener) = listener else {
        gauges.refresh(&driver).await?;
        return screen.bytes(gauges.encode().as_bytes());
    };
    if let Some(address) = args.bind {
        tell(&format!("serving http://{address}/metrics until interrupted"));
    }
    let exporter = Arc::new(Exporter { driver, gauges, read_at: Mutex::new(None) });
    let router = Router::new().route("/metrics", get(scrape)).with_state(exporter);
    axum::serve(listener, router)
        .await
        .map_err(|error| Failure::error("metrics", format!("cannot serve: {}", chain(&error))))
}

async fn scrape(State(exporter): State<Arc<Exporter>>) -> Response {
    let mut read_at = exporter.read_at.lock().await;
    if read_at.is_none_or(|at| at.elapsed() >= FRESH) {
        // What the store says of itself is for its operators, and not for a scraper.
        if let Err(error) = exporter.gauges.refresh(&exporter.driver).await {
            tell(&format!("the queues cannot be counted: {}", chain(&error)));
            let text = "the store does not answer\n";
            return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
        }
        *read_at = Some(Instant::now());
    }
    drop(read_at);
    ([(CONTENT_TYPE, taskharbor_prometheus::CONTENT_TYPE)], exporter.gauges.encode())
        .into_response()
}
