//! Spans of executions, and the context that travels with jobs.

use std::time::Duration;

use opentelemetry::{
    Context, KeyValue,
    trace::{FutureExt, Link, SpanContext, SpanKind, Status, TraceContextExt, Tracer},
};
use taskharbor::{BoxFuture, Call, CallResult, Middleware, Next, Outcome, Propagate};

use crate::{
    Telemetry, header,
    name::{attribute, value},
};

/// A job that runs later than this after it was enqueued gets a trace of its own.
const SOON: Duration = Duration::from_secs(600);

/// How the span of an execution is related to the trace in which its job was enqueued.
///
/// A child is in the same trace. It is sampled if the enqueuer's span is, and the trace shows the
/// total time. A linked span begins a trace of its own, so a retry tomorrow does not make today's
/// trace a day long. Its link refers to the enqueuer's span, but it is sampled independently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tracing {
    /// A child on the first delivery, if that is within ten minutes of the enqueue. Otherwise, and
    /// on each retry, a link.
    #[default]
    Auto,
    /// Always a child.
    Parent,
    /// Always a link.
    Link,
}

impl Tracing {
    fn is_child(self, call: &Call) -> bool {
        match self {
            Self::Auto => call.delivery() == 1 && call.now().since(call.created_at()) <= SOON,
            Self::Parent => true,
            Self::Link => false,
        }
    }
}

impl Propagate for Telemetry {
    fn inject(&self, set: &mut dyn FnMut(&str, String)) {
        let headers = Context::map_current(|cx| header::of(cx.span().span_context()));
        for (name, value) in headers {
            set(name, value);
        }
    }
}

impl Telemetry {
    /// The context of an execution, with a span that has begun.
    fn begin(&self, call: &Call, enqueuer: Option<&SpanContext>) -> Context {
        let waited = self.shared.meters.waited(call);
        let wait_ms = i64::try_from(waited.as_millis()).unwrap_or(i64::MAX);
        let tracer = &self.shared.tracer;
        let span = tracer.span_builder(format!("{} {}", value::PROCESS, call.queue()));
        let mut span = span.with_kind(SpanKind::Consumer).with_attributes([
            KeyValue::new(attribute::SYSTEM, value::SYSTEM),
            KeyValue::new(attribute::OPERATION_NAME, value::PROCESS),
            KeyValue::new(attribute::OPERATION_TYPE, value::PROCESS),
            KeyValue::new(attribute::DESTINATION, call.queue().as_str().to_owned()),
            KeyValue::new(attribute::MESSAGE_ID, call.id().as_str().to_owned()),
            KeyValue::new(attribute::JOB_TYPE, call.job_type().as_str().to_owned()),
            KeyValue::new(attribute::JOB_ATTEMPT, i64::from(call.attempt())),
            KeyValue::new(attribute::JOB_DELIVERY, i64::from(call.delivery())),
            KeyValue::new(attribute::JOB_WAIT_MS, wait_ms),
        ]);
        // Without the ambient context: what runs around the worker is not what this job belongs to.
        let mut parent = Context::new();
        match enqueuer.cloned() {
            Some(enqueuer) if self.tracing.is_child(call) => {
                parent = parent.with_remote_span_context(enqueuer);
            }
            Some(enqueuer) => span = span.with_links(vec![Link::with_context(enqueuer)]),
            None => {}
        }
        parent.with_span(tracer.build_with_context(span, &parent))
    }
}

impl Middleware for Telemetry {
    fn handle(&self, call: Call, next: Next) -> BoxFuture<CallResult> {
        let telemetry = self.clone();
        Box::pin(async move {
            let enqueuer = header::enqueued_in(call.headers());
            let cx = telemetry.begin(&call, enqueuer.as_ref());
            let ending = Ending { cx: cx.clone(), is_told: false };
            let result = next.run(call).with_context(cx.clone()).await;
            ending.tell(&result);
            // The jobs of the flow take the place of this one, so they belong where it belongs.
            let origin = enqueuer.unwrap_or_else(|| cx.span().span_context().clone());
            result.map(|outcome| in_trace(outcome, &origin))
        })
    }
}

fn in_trace<O>(outcome: Outcome<O>, origin: &SpanContext) -> Outcome<O> {
    match outcome {
        Outcome::Continue(flow) => {
            let headers = header::of(origin);
            let headers = headers.iter().map(|(name, value)| (*name, value.as_str()));
            Outcome::Continue(flow.default_headers(headers))
        }
        outcome => outcome,
    }
}

/// Ends the span, also if the execution is dropped because its time has ended or its lease is lost, or if
/// the handler panics.
struct Ending {
    cx: Context,
    is_told: bool,
}

impl Ending {
    fn tell(mut self, result: &CallResult) {
        let outcome = match result {
            Ok(Outcome::Done(_)) => "done",
            Ok(Outcome::Continue(_)) => "expanded",
            Ok(Outcome::Snooze(_)) => "snoozed",
            Ok(_) => "acked",
            Err(_) => "failed",
        };
        if let Err(error) = result {
            self.fail(error.to_string());
        }
        self.end(outcome);
    }

    fn fail(&self, why: impl Into<std::borrow::Cow<'static, str>>) {
        let span = self.cx.span();
        span.set_attribute(KeyValue::new(attribute::ERROR_TYPE, value::OTHER_ERROR));
        span.set_status(Status::error(why));
    }

    fn end(&mut self, outcome: &'static str) {
        self.is_told = true;
        let span = self.cx.span();
        span.set_attribute(KeyValue::new(attribute::JOB_OUTCOME, outcome));
        span.end();
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if self.is_told {
            return;
        }
        let is_panic = std::thread::panicking();
        let (outcome, why) = if is_panic {
            ("panicked", "the handler panicked")
        } else {
            ("stopped", "the execution was stopped")
        };
        self.fail(why);
        self.end(outcome);
    }
}
