//! The spans for `tracing`.
//!
//! A program of its own: whether a span is wanted is decided once for a whole process, when it is
//! first met, and in a process with other tests that may be before there is a subscriber.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fmt::Debug,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

use serde::{Deserialize, Serialize};
use taskharbor::{Context, Handlers, Job, JobResult, testing::Harbor};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "work", queue = "shop")]
struct Work;

async fn work(_: Work, cx: Context) -> JobResult {
    tokio::task::yield_now().await;
    tracing::info!("in the handler");
    if cx.attempt() == 1 {
        Err("once")?;
    }
    Ok(())
}

/// Writes down spans with their fields, and events with the span they happened in.
#[derive(Clone, Default)]
struct Recorder {
    lines: Arc<Mutex<Vec<String>>>,
    next: Arc<AtomicU64>,
    entered: Arc<Mutex<Vec<u64>>>,
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push_str(&format!(" {}={value:?}", field.name()));
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.name() == "job" || metadata.target() == "span"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields(span.metadata().name().to_owned());
        span.record(&mut fields);
        self.lines.lock().unwrap().push(fields.0);
        Id::from_u64(self.next.fetch_add(1, Ordering::SeqCst) + 1)
    }

    fn event(&self, event: &Event<'_>) {
        let inside = !self.entered.lock().unwrap().is_empty();
        let mut fields = Fields(format!("event inside={inside}"));
        event.record(&mut fields);
        self.lines.lock().unwrap().push(fields.0);
    }

    fn enter(&self, span: &Id) {
        self.entered.lock().unwrap().push(span.into_u64());
    }

    fn exit(&self, _: &Id) {
        self.entered.lock().unwrap().pop();
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
}

#[tokio::test(start_paused = true)]
async fn every_execution_is_a_span_with_id_type_queue_and_attempt() {
    let recorder = Recorder::default();
    let _default = tracing::subscriber::set_default(recorder.clone());
    let harbor = Harbor::new(Handlers::new().on(work));
    let handle = harbor.client().enqueue(Work).await.unwrap();
    handle.wait().await.unwrap();
    let id = handle.id();
    let span = |attempt| format!("job id={id} type=work queue=shop attempt={attempt}");
    let event = || "event inside=true message=in the handler".to_owned();
    let lines = recorder.lines.lock().unwrap().clone();
    assert_eq!(lines, [span(1), event(), span(2), event()]);
}
