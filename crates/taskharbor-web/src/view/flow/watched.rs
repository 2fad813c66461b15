//! [`FlowGraphs`]: the graphs that are being looked at, read once for all who look.
//!
//! A page asks for its graph every two seconds. However many pages show a flow, it is listed at most once
//! a second and for at most a twentieth of the time; one that is over is not listed again.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use taskharbor::{Admin, FlowRecord, FlowState, JobId};
use tokio::time::Instant;

use super::{graph::Graph, no_flow, shape::Shape};
use crate::{app::Store, problem::Problem};

/// The most flows that are kept.
const MAX_KEPT: usize = 8;
/// The most members that are kept, of all flows but the one that was asked for last.
const MAX_KEPT_MEMBERS: usize = 200_000;
/// A graph is as old as this at least before it is read again, and as this at most.
const PERIOD: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Time without reading, as a multiple of the time that reading took.
const REST: u32 = 20;

/// The graphs that were asked for last.
#[derive(Default)]
pub(crate) struct FlowGraphs {
    /// The one that was asked for last at the end.
    kept: Mutex<Vec<Arc<Watched>>>,
}

/// A flow that is looked at.
struct Watched {
    id: JobId,
    /// How many members its reading keeps.
    size: AtomicUsize,
    reading: tokio::sync::Mutex<Reading>,
}

#[derive(Default)]
struct Reading {
    shape: Shape,
    last: Option<Last>,
}

/// What was read last.
struct Last {
    flow: FlowRecord,
    graph: Arc<Graph>,
    fresh_until: Instant,
}

impl FlowGraphs {
    /// The graph of a flow, at most as old as its size allows.
    pub(super) async fn graph(&self, store: &Store, id: &JobId) -> Result<Arc<Graph>, Problem> {
        let watched = self.watched(id);
        let mut reading = watched.reading.lock().await;
        let answer = reading.graph(store, id).await;
        watched.size.store(reading.shape.len(), Ordering::Relaxed);
        if answer.is_err() && reading.last.is_none() {
            self.forget(id);
        }
        answer
    }

    fn watched(&self, id: &JobId) -> Arc<Watched> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().position(|it| it.id == *id).map(|at| kept.remove(at));
        let watched = found.unwrap_or_else(|| {
            let (size, reading) = (AtomicUsize::new(0), tokio::sync::Mutex::default());
            Arc::new(Watched { id: id.clone(), size, reading })
        });
        let members = |kept: &[Arc<Watched>]| -> usize {
            kept.iter().map(|it| it.size.load(Ordering::Relaxed)).sum()
        };
        while kept.len() >= MAX_KEPT || members(&kept) > MAX_KEPT_MEMBERS {
            kept.remove(0);
        }
        kept.push(Arc::clone(&watched));
        watched
    }

    fn forget(&self, id: &JobId) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).retain(|it| it.id != *id);
    }
}

impl Reading {
    async fn graph(&mut self, store: &Store, id: &JobId) -> Result<Arc<Graph>, Problem> {
        if let Some(last) = self.last.as_ref().filter(|last| Instant::now() < last.fresh_until) {
            return Ok(Arc::clone(&last.graph));
        }
        let now = store.driver.now().await?;
        let Some(flow) = store.driver.flow(id.clone(), now).await? else {
            *self = Self::default();
            return Err(no_flow(id));
        };
        let goes_on = self.shape.goes_on();
        if let Some(last) = self.last.as_mut().filter(|last| last.flow == flow && is_over(&flow))
            && !goes_on
        {
            last.fresh_until = Instant::now() + PERIOD.0;
            return Ok(Arc::clone(&last.graph));
        }
        let began = Instant::now();
        self.shape.list(&store.driver, id, now).await?;
        let listed = began.elapsed();
        self.shape.read(&store.driver, now).await?;
        let began = Instant::now();
        let graph = Arc::new(self.shape.draw());
        let took = listed + began.elapsed();
        let (min, max) = PERIOD;
        let rest = if self.shape.goes_on() { min } else { (took * REST).clamp(min, max) };
        let fresh_until = Instant::now() + rest;
        self.last = Some(Last { flow, graph: Arc::clone(&graph), fresh_until });
        Ok(graph)
    }
}

const fn is_over(flow: &FlowRecord) -> bool {
    !matches!(flow.state, FlowState::Running | FlowState::Blocked)
}

impl fmt::Debug for FlowGraphs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowGraphs").finish_non_exhaustive()
    }
}
