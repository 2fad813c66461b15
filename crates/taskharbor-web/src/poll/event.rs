//! One stream of events: `overview`, `store` and `sweep`.
//!
//! A stream sends the newest overview, at most once a second. What a slow client does not take meanwhile is
//! left out, so streams need no memory of their own. That the store is away, and that it is back, is told
//! once.

use std::{sync::Arc, time::Duration};

use axum::response::Response;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::overview::Away;
use crate::{
    app::Named,
    call::Call,
    event_stream::{self, HEARTBEAT, HEARTBEAT_EVERY},
    guard,
    problem::Problem,
};

/// The shortest time between two overviews.
const SHORTEST: Duration = Duration::from_secs(1);

/// The data of the event `store`.
#[derive(Debug, Serialize, JsonSchema)]
struct StoreEvent {
    /// Set if the store does not answer; null when it does again.
    away: Option<Away>,
}

/// Starts a stream of the events of a store.
pub(super) fn stream(call: &Call) -> Result<Response, Problem> {
    let store = call.named()?;
    let Some(viewer) = store.poller.view() else {
        return Err(Problem::unavailable(
            "too_many_streams",
            "too many streams of events",
            "the server has as many streams of this store open as it may: close some, or ask for the overview",
        ));
    };
    let (sender, events) = mpsc::channel(1);
    let (store, ended, lost) = (Arc::clone(store), call.app.ended(), guard::access_lost(call));
    tokio::spawn(async move {
        let _viewer = viewer;
        tokio::select! {
            biased;
            () = ended => {}
            () = lost => {}
            () = sender.closed() => {}
            () = send(&store, &sender) => {}
        }
    });
    Ok(event_stream::answer(events))
}

/// Sends events until the client is gone.
async fn send(store: &Named, sender: &mpsc::Sender<Bytes>) {
    let (mut news, mut sweeps) = (store.poller.news(), store.sweeps.news());
    let mut told_away: Option<Away> = None;
    let (mut next_overview, mut last_sent) = (Instant::now(), Instant::now());
    let (mut is_due, mut seen_sweeps) = (true, store.sweeps.revision());
    loop {
        let now = Instant::now();
        let mut out = Vec::new();
        let (overview, away) = store.poller.event();
        if away != told_away {
            out.extend(event_stream::event("store", &StoreEvent { away: away.clone() }).ok());
            told_away = away;
        }
        if is_due
            && now >= next_overview
            && let Some(overview) = overview
        {
            out.push(overview);
            (is_due, next_overview) = (false, now + SHORTEST);
        }
        let changed = store.sweeps.changed_since(&mut seen_sweeps);
        out.extend(changed.iter().filter_map(|sweep| event_stream::event("sweep", sweep).ok()));
        if out.is_empty() && now.duration_since(last_sent) >= HEARTBEAT_EVERY {
            out.push(HEARTBEAT);
        }
        for event in out {
            if sender.send(event).await.is_err() {
                return;
            }
            last_sent = Instant::now();
        }
        let overview_at = next_overview.max(now);
        tokio::select! {
            _ = news.changed() => is_due = true,
            _ = sweeps.changed() => {}
            () = sleep_until(overview_at), if is_due && overview_at > now => {}
            () = sleep_until(last_sent + HEARTBEAT_EVERY) => {}
        }
    }
}
