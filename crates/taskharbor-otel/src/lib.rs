//! OpenTelemetry for [TaskHarbor](taskharbor): traces that follow a job from the request that enqueued it
//! to its last retry, and metrics by the messaging conventions.
//!
//! Pass a [`Telemetry`] to clients and workers:
//!
//! ```
//! # use taskharbor::{AnyDriver, BoxError, Client, Handlers, Worker};
//! use opentelemetry::global;
//! use taskharbor_otel::Telemetry;
//!
//! # fn build(driver: &AnyDriver, handlers: Handlers) -> Result<(), BoxError> {
//! let telemetry = Telemetry::new(&*global::meter_provider(), &global::tracer_provider());
//! let client = Client::builder(driver)
//!     .observer(telemetry.clone())
//!     .propagate(telemetry.clone())
//!     .build()?;
//! let worker = Worker::builder(driver)
//!     .handlers(handlers)
//!     .observer(telemetry.clone())
//!     .middleware(telemetry);
//! # let _ = (client, worker);
//! # Ok(())
//! # }
//! ```
//!
//! - As [`Propagate`](taskharbor::Propagate) it writes the headers `traceparent` and `tracestate`
//!   of the current span into the jobs that a client enqueues.
//! - As [`Middleware`](taskharbor::Middleware) it opens a span for each execution. [`Tracing`]
//!   decides which of them are part of the trace of the enqueuer. Jobs that the handler enqueues
//!   are part of the trace of the execution. The jobs of a flow that the handler returns are part
//!   of the trace of the job itself.
//! - As [`Observer`](taskharbor::Observer) it records metrics.
//!
//! Metrics have the name of the queue and the type of the job as attributes, of [`MAX_NAMES`] each at
//! most. Payloads and headers are not recorded; the id of a job is an attribute of spans only.

mod header;
mod meter;
mod name;
mod trace;

use std::{fmt, sync::Arc};

use opentelemetry::{
    global::BoxedTracer,
    metrics::MeterProvider,
    trace::{Span, Tracer, TracerProvider},
};

use meter::Meters;

pub use header::{TRACEPARENT, TRACESTATE, enqueued_in};
pub use trace::Tracing;

/// This many queues and job types have attributes of their own on metrics. The others share `other`.
pub const MAX_NAMES: usize = 200;

/// Traces and metrics of clients and workers. Clones share their instruments.
///
/// It is an [`Observer`](taskharbor::Observer), a [`Propagate`](taskharbor::Propagate) and a
/// [`Middleware`](taskharbor::Middleware). Each of them works without the others.
///
/// ```
/// use opentelemetry::global;
/// use taskharbor_otel::{Telemetry, Tracing};
///
/// // Set up an exporter first; without one, nothing is recorded.
/// let telemetry = Telemetry::new(&*global::meter_provider(), &global::tracer_provider())
///     .tracing(Tracing::Link);
/// # use taskharbor::{AnyDriver, BoxError, Client, Worker};
/// # fn build(driver: &AnyDriver, telemetry: Telemetry) -> Result<(), BoxError> {
/// let client = Client::builder(driver)
///     .observer(telemetry.clone()) // metrics
///     .propagate(telemetry.clone()) // trace context in each job
///     .build()?;
/// let worker = Worker::builder(driver)
///     .observer(telemetry.clone()) // metrics
///     .middleware(telemetry); // a span for each execution
/// # drop((client, worker));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Telemetry {
    shared: Arc<Shared>,
    tracing: Tracing,
}

struct Shared {
    tracer: BoxedTracer,
    meters: Meters,
}

impl Telemetry {
    /// Records metrics with this meter provider and spans with this tracer provider.
    #[must_use]
    pub fn new<P, T, S>(meters: &(impl MeterProvider + ?Sized), tracers: &P) -> Self
    where
        P: TracerProvider<Tracer = T>,
        T: Tracer<Span = S> + Send + Sync + 'static,
        S: Span + Send + Sync + 'static,
    {
        let tracer = BoxedTracer::new(Box::new(tracers.tracer(name::SCOPE)));
        let meters = Meters::new(&meters.meter(name::SCOPE));
        Self { shared: Arc::new(Shared { tracer, meters }), tracing: Tracing::default() }
    }

    /// How an execution belongs to the trace of the enqueuer. Defaults to [`Tracing::Auto`].
    #[must_use]
    pub const fn tracing(mut self, tracing: Tracing) -> Self {
        self.tracing = tracing;
        self
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").field("tracing", &self.tracing).finish_non_exhaustive()
    }
}
