//! `--health`: whether the worker lives and consumes jobs, and what it has done, over HTTP.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    routing::get,
};
use taskharbor::Running;
use taskharbor_prometheus::Metrics;
use tokio::net::TcpListener;

use crate::failure::{Exit, Failure, Outcome};

/// The worker, once it has started.
#[derive(Clone, Debug, Default)]
pub(super) struct Watched(Arc<OnceLock<Arc<Running>>>);

impl Watched {
    pub(super) fn set(&self, running: Arc<Running>) {
        let _ = self.0.set(running);
    }
}

/// Listens at an address that an option names.
pub(crate) async fn listen(address: SocketAddr, option: &str) -> Outcome<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        let text = format!("cannot listen on {address}: {error}: choose another port for {option}");
        Failure::new(Exit::Usage, "address", text)
    })
}

/// Answers probes and scrapes from now on.
pub(super) async fn serve(address: SocketAddr, watched: Watched, metrics: Metrics) -> Outcome {
    let listener = listen(address, "--health").await?;
    let scrape =
        async move || ([(CONTENT_TYPE, taskharbor_prometheus::CONTENT_TYPE)], metrics.encode());
    let router = Router::new()
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .route("/metrics", get(scrape))
        .with_state(watched);
    tokio::spawn(async move {
        // It goes on for as long as the process does.
        let _ = axum::serve(listener, router).await;
    });
    Ok(())
}

async fn live(State(watched): State<Watched>) -> (StatusCode, String) {
    // A worker that waits for its store lives.
    let health = watched.0.get().map(|running| running.health());
    answer(health.as_ref().is_none_or(taskharbor::Health::is_live), health)
}

async fn ready(State(watched): State<Watched>) -> (StatusCode, String) {
    let health = watched.0.get().map(|running| running.health());
    answer(health.as_ref().is_some_and(taskharbor::Health::is_ready), health)
}

fn answer(is_well: bool, health: Option<taskharbor::Health>) -> (StatusCode, String) {
    let status = if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let text = health.map_or_else(|| "waiting for the store".to_owned(), |it| it.to_string());
    (status, format!("{text}\n"))
}
