//! [`FlowGraphs`]: the flows that pages show, each read once for all of its pages.
//!
//! A page asks for its flow and its graph every two seconds. However many pages show them, each is read at
//! most once a second and for at most a twentieth of the time. The members of a terminal flow are not
//! listed again. An action through this server shows at once.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::http::StatusCode;
use taskharbor::{Admin, FlowRecord, FlowState, JobId};
use tokio::time::Instant;

use super::{graph::Graph, no_flow, shape::Shape};
use crate::{app::Store, problem::Problem};

/// The most flows that are kept.
const MAX_KEPT: usize = 8;
/// The most members that are kept, of all flows but the one that was asked for last.
const MAX_KEPT_MEMBERS: usize = 200_000;
/// What was read is kept for this long at least, and for this long at most.
const KEPT_FOR: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// For how long it is kept, as a multiple of the time that reading took.
const REST: u32 = 20;

/// The flows that were asked for last.
#[derive(Default)]
pub(crate) struct FlowGraphs {
    /// The one that was asked for last at the end.
    kept: Mutex<Vec<Arc<Watched>>>,
}

/// A flow that some page shows.
struct Watched {
    id: JobId,
    /// How many members are kept of it.
    size: AtomicUsize,
    record: tokio::sync::Mutex<Option<Kept<FlowRecord>>>,
    graph: tokio::sync::Mutex<Drawn>,
}

/// What was read, and until when it is taken for what is stored.
struct Kept<T> {
    value: T,
    until: Instant,
}

#[derive(Default)]
struct Drawn {
    shape: Shape,
    /// The last graph, and the flow when it was drawn.
    last: Option<Kept<(FlowRecord, Arc<Graph>)>>,
}

impl<T: Clone> Kept<T> {
    fn new(value: T, took: Duration) -> Self {
        let (min, max) = KEPT_FOR;
        Self { value, until: Instant::now() + (took * REST).clamp(min, max) }
    }

    fn fresh(&self) -> Option<T> {
        (Instant::now() < self.until).then(|| self.value.clone())
    }
}

impl FlowGraphs {
    /// A flow, at most as old as its size allows.
    pub(super) async fn record(&self, store: &Store, id: &JobId) -> Result<FlowRecord, Problem> {
        let watched = self.watched(id);
        let answer = watched.record(store).await;
        self.settle(&watched, answer.as_ref().err());
        answer
    }

    /// The graph of a flow, at most as old as its size allows.
    pub(super) async fn graph(&self, store: &Store, id: &JobId) -> Result<Arc<Graph>, Problem> {
        let watched = self.watched(id);
        let answer = watched.graph(store).await;
        self.settle(&watched, answer.as_ref().err());
        answer
    }

    /// Has a flow read again, because it was changed through this server.
    pub(super) async fn expire(&self, id: &JobId) {
        let found = self.lock().iter().find(|it| it.id == *id).cloned();
        if let Some(watched) = found {
            *watched.record.lock().await = None;
            if let Some(last) = &mut watched.graph.lock().await.last {
                last.until = Instant::now();
            }
        }
    }

    fn watched(&self, id: &JobId) -> Arc<Watched> {
        let mut kept = self.lock();
        let found = kept.iter().position(|it| it.id == *id).map(|at| kept.remove(at));
        let watched = found.unwrap_or_else(|| Arc::new(Watched::new(id)));
        kept.push(Arc::clone(&watched));
        watched
    }

    /// Makes room after a flow was read, or forgets one that is not stored.
    fn settle(&self, watched: &Arc<Watched>, problem: Option<&Problem>) {
        let mut kept = self.lock();
        let is_gone = problem.is_some_and(|it| it.status == StatusCode::NOT_FOUND);
        if is_gone || (problem.is_some() && watched.size.load(Ordering::Relaxed) == 0) {
            kept.retain(|it| !Arc::ptr_eq(it, watched));
        }
        let size = |kept: &[Arc<Watched>]| -> usize {
            let others = kept.iter().filter(|it| !Arc::ptr_eq(it, watched));
            others.map(|it| it.size.load(Ordering::Relaxed)).sum()
        };
        while kept.len() > MAX_KEPT || size(&kept) > MAX_KEPT_MEMBERS {
            kept.remove(0);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Watched>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    fn new(id: &JobId) -> Self {
        Self {
            id: id.clone(),
            size: AtomicUsize::new(0),
            record: tokio::sync::Mutex::default(),
            graph: tokio::sync::Mutex::default(),
        }
    }

    async fn record(&self, store: &Store) -> Result<FlowRecord, Problem> {
        let mut kept = self.record.lock().await;
        if let Some(record) = kept.as_ref().and_then(Kept::fresh) {
            return Ok(record);
        }
        let began = Instant::now();
        let now = store.driver.now().await?;
        let record = store.driver.flow(self.id.clone(), now).await?;
        let record = record.ok_or_else(|| no_flow(&self.id))?;
        *kept = Some(Kept::new(record.clone(), began.elapsed()));
        Ok(record)
    }

    async fn graph(&self, store: &Store) -> Result<Arc<Graph>, Problem> {
        let mut drawn = self.graph.lock().await;
        if let Some((_, graph)) = drawn.last.as_ref().and_then(Kept::fresh) {
            return Ok(graph);
        }
        let flow = self.record(store).await?;
        let goes_on = drawn.shape.goes_on();
        if let Some(Kept { value: (then, graph), until }) = &mut drawn.last
            && (is_terminal(&flow) && *then == flow && !goes_on)
        {
            *until = Instant::now() + KEPT_FOR.0;
            return Ok(Arc::clone(graph));
        }
        let (began, now) = (Instant::now(), store.driver.now().await?);
        drawn.shape.list(&store.driver, &self.id, now).await?;
        let listed = began.elapsed();
        let read = drawn.shape.read(&store.driver, now).await;
        self.size.store(drawn.shape.len(), Ordering::Relaxed);
        read?;
        let began = Instant::now();
        let graph = Arc::new(drawn.shape.draw());
        // Reading records is done once. If it is not at its end, the next request goes on with it.
        let took = if drawn.shape.goes_on() { Duration::ZERO } else { listed + began.elapsed() };
        drawn.last = Some(Kept::new((flow, Arc::clone(&graph)), took));
        Ok(graph)
    }
}

const fn is_terminal(flow: &FlowRecord) -> bool {
    !matches!(flow.state, FlowState::Running | FlowState::Blocked)
}

impl fmt::Debug for FlowGraphs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowGraphs").finish_non_exhaustive()
    }
}
