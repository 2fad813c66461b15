//! Wake-ups as server-sent events: there may be jobs in a queue, or a job may have ended.
//!
//! A wake-up is a flag and no message. What a slow client does not take counts as one, so streams need no
//! memory of their own, and a client that reconnects looks once instead.

use std::{
    future::poll_fn,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::response::Response;
use bytes::{Bytes, BytesMut};
use taskharbor::{AnyDriver, JobId};
use taskharbor_core::{
    Driver, DriverError,
    driver::{Watch, Woken},
    wire::{WakeEvent, WatchRequest},
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::failed;
use crate::{
    call::Call,
    endpoint::Endpoint,
    event_stream::{self, HEARTBEAT, HEARTBEAT_EVERY},
    guard,
    problem::Problem,
};

/// The most queues, and the most jobs, that one stream watches.
const MAX_WATCHED: usize = 1_000;

pub(super) fn endpoint() -> Endpoint {
    let endpoint = Endpoint::post_raw("/v1/{store}/driver/watch", watch)
        .summary("Wake-ups about queues and jobs, as server-sent events: wake")
        .answers::<WakeEvent>()
        .needs_workers();
    Endpoint { media_type: "text/event-stream", ..endpoint }
}

async fn watch(call: Call, request: WatchRequest) -> Result<Response, Problem> {
    for (what, count) in
        [("the number of queues", request.queues.len()), ("the number of jobs", request.jobs.len())]
    {
        if count > MAX_WATCHED {
            return Err(Problem::out_of_range(what, 0, MAX_WATCHED));
        }
    }
    if request.queues.is_empty() && request.jobs.is_empty() {
        return Err(Problem::invalid("nothing is watched: name a queue or a job"));
    }
    let Ok(permit) = Arc::clone(&call.app.watches).try_acquire_owned() else {
        return Err(Problem::unavailable(
            "too_many_streams",
            "too many streams of events",
            "the server has as many streams of wake-ups open as it may: look at intervals instead",
        ));
    };
    let mut watched = Watched::new(&call.store()?.driver, request).await.map_err(failed)?;
    let (sender, events) = mpsc::channel(1);
    let (ended, lost) = (call.app.ended(), guard::access_lost(&call));
    tokio::spawn(async move {
        let _permit = permit;
        tokio::select! {
            biased;
            () = ended => {}
            () = lost => {}
            () = sender.closed() => {}
            () = send(&mut watched, &sender) => {}
        }
    });
    Ok(event_stream::answer(events))
}

/// Sends wake-ups until the client is gone or the store's driver is closed.
async fn send(watched: &mut Watched, sender: &mpsc::Sender<Bytes>) {
    // Tells the client that the watch has begun, so that it can look for what was there before.
    let mut told = watched.reaching();
    watched.log_problem();
    let mut out = text(&[told.clone()]);
    loop {
        if sender.send(out).await.is_err() {
            return;
        }
        let heartbeat = sleep_until(Instant::now() + HEARTBEAT_EVERY);
        out = tokio::select! {
            woken = watched.woken() => {
                let Some(mut events) = woken else { return };
                let reaching = watched.reaching();
                if reaching != told {
                    watched.log_problem();
                    events.push(reaching.clone());
                    told = reaching;
                }
                text(&events)
            }
            () = heartbeat => HEARTBEAT,
        };
    }
}

fn text(events: &[WakeEvent]) -> Bytes {
    let mut out = BytesMut::new();
    for event in events.iter().filter_map(|event| event_stream::event("wake", event).ok()) {
        out.extend_from_slice(&event);
    }
    out.freeze()
}

/// The watches of one stream.
struct Watched {
    queues: Option<Watch>,
    jobs: Vec<(JobId, Watch)>,
}

impl Watched {
    async fn new(driver: &AnyDriver, request: WatchRequest) -> Result<Self, DriverError> {
        let queues = match request.queues {
            queues if queues.is_empty() => None,
            queues => Some(driver.watch(queues).await?),
        };
        let mut jobs = Vec::with_capacity(request.jobs.len());
        for id in request.jobs {
            jobs.push((id.clone(), driver.watch_job(id).await?));
        }
        Ok(Self { queues, jobs })
    }

    /// Whether wake-ups arrive about all that is watched.
    fn reaching(&self) -> WakeEvent {
        let mut all = self.queues.iter().chain(self.jobs.iter().map(|(_, watch)| watch));
        let cut_off = all.find(|watch| !watch.can_wake());
        // What the store says about itself is for the server's log.
        let text = |_| "wake-ups do not reach the server: its log says why".to_owned();
        let problem = cut_off.and_then(Watch::problem).map(text);
        WakeEvent::Reaching { reaching: cut_off.is_none(), problem }
    }

    fn log_problem(&self) {
        let watches = self.queues.iter().chain(self.jobs.iter().map(|(_, watch)| watch));
        if let Some(problem) = watches.filter(|watch| !watch.can_wake()).find_map(Watch::problem) {
            tracing::warn!(%problem, "wake-ups do not arrive");
        }
    }

    /// What has happened since the last time; waits if that is nothing. `None` when the driver is closed.
    async fn woken(&mut self) -> Option<Vec<WakeEvent>> {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Vec<WakeEvent>>> {
        let (mut events, mut all) = (Vec::new(), false);
        let of_queues = self.queues.iter_mut().map(|watch| (None, watch));
        let of_jobs = self.jobs.iter_mut().map(|(id, watch)| (Some(&*id), watch));
        for (job, watch) in of_queues.chain(of_jobs) {
            // A watch has one kind of news at a time, and a second look registers for more.
            while let Poll::Ready(woken) = pin!(watch.woken()).poll(context) {
                match woken {
                    Some(Woken::Queues(queues)) => events.push(WakeEvent::Queues(queues)),
                    Some(Woken::Job) => events.extend(job.cloned().map(WakeEvent::Job)),
                    Some(_) => all = true,
                    None if events.is_empty() => return Poll::Ready(None),
                    None => break,
                }
            }
        }
        if all {
            events.push(WakeEvent::All);
        }
        if events.is_empty() { Poll::Pending } else { Poll::Ready(Some(events)) }
    }
}
