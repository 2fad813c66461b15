//! The spans of jobs, and the traces they belong to.

use std::time::Duration;

use opentelemetry::{
    Context as TraceContext, Value,
    metrics::noop::NoopMeterProvider,
    trace::{FutureExt, SpanId, SpanKind, Status, TraceContextExt, Tracer, TracerProvider},
};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use serde::{Deserialize, Serialize};
use taskharbor::{
    Admin, AnyDriver, Client, Context, Filter, Flow, Handlers, IntoFlow, Job, JobId, JobRecord,
    JobResult, List, Options, Outcome, Schedule, State, testing::Harbor,
};
use taskharbor_otel::{TRACEPARENT, TRACESTATE, Telemetry, Tracing};

const SECOND: Duration = Duration::from_secs(1);

/// What a test looks at.
struct Rig {
    spans: InMemorySpanExporter,
    provider: SdkTracerProvider,
    harbor: Harbor,
    client: Client,
}

impl Rig {
    /// An installation whose handlers have the client as their state.
    fn new(tracing: Tracing, handlers: impl FnOnce(Client) -> Handlers) -> Self {
        let spans = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(spans.clone()).build();
        let telemetry = Telemetry::new(&NoopMeterProvider::new(), &provider).tracing(tracing);
        let harbor = Harbor::new(Handlers::new());
        let client = Client::builder(harbor.driver()).propagate(telemetry.clone());
        let client = client.build().unwrap();
        let harbor =
            harbor.start_configured(handlers(client.clone()), |it| it.middleware(telemetry));
        Self { spans, provider, harbor, client }
    }

    /// Does this in a span, as the handler of a request would.
    async fn in_request<T>(&self, work: impl Future<Output = T>) -> T {
        let span = self.provider.tracer("http").start("POST /orders");
        work.with_context(TraceContext::new().with_span(span)).await
    }

    fn spans(&self) -> Vec<SpanData> {
        self.spans.get_finished_spans().unwrap()
    }

    /// The only span of this name and job type.
    fn only(&self, name: &str, job_type: &str, attempt: i64) -> SpanData {
        let all = self.spans().into_iter();
        let mut found = all.filter(|span| {
            span.name == name
                && text(span, "taskharbor.job.type") == job_type
                && attribute(span, "taskharbor.job.attempt") == Some(Value::I64(attempt))
        });
        let span = found.next().unwrap_or_else(|| panic!("no span {name} {job_type} {attempt}"));
        assert!(found.next().is_none(), "more than one span {name} {job_type} {attempt}");
        span
    }

    fn root(&self) -> SpanData {
        self.spans().into_iter().find(|span| span.name == "POST /orders").unwrap()
    }
}

fn attribute(span: &SpanData, name: &str) -> Option<Value> {
    span.attributes.iter().find(|it| it.key.as_str() == name).map(|it| it.value.clone())
}

fn text(span: &SpanData, name: &str) -> String {
    attribute(span, name).map(|it| it.to_string()).unwrap_or_default()
}

fn is_child(span: &SpanData, of: &SpanData) -> bool {
    span.span_context.trace_id() == of.span_context.trace_id()
        && span.parent_span_id == of.span_context.span_id()
}

async fn record(driver: &AnyDriver, id: &JobId) -> JobRecord {
    let now = driver.now().await.unwrap();
    driver.inspect(id.clone(), now).await.unwrap().unwrap()
}

#[derive(Serialize, Deserialize, Job)]
#[job(type = "order:confirm", queue = "orders")]
struct Confirm;

#[derive(Serialize, Deserialize, Job)]
#[job(type = "mail:send", queue = "mail", output = u32)]
struct Mail;

#[derive(Serialize, Deserialize, Job)]
#[job(type = "order:failed")]
struct OrderFailed;

#[derive(Serialize, Deserialize, Job)]
#[job(type = "batch", output = u32)]
struct Batch;

async fn confirm(_: Confirm, cx: Context<Client>) -> JobResult {
    if cx.attempt() == 1 {
        cx.state().enqueue(Mail).idempotency_key("mail").await?;
        Err("the first attempt fails")?;
    }
    Ok(())
}

async fn mail(_: Mail, _: Context) -> JobResult<u32> {
    Ok(1)
}

async fn batch(_: Batch, _: Context) -> JobResult<Outcome<u32>> {
    Ok(Outcome::Continue(Flow::chord([Mail, Mail], Sum).on_failure(OrderFailed)))
}

#[derive(Serialize, Deserialize, Job)]
#[job(type = "sum", input = Vec<u32>, output = u32)]
struct Sum;

async fn sum(job: Sum, cx: Context) -> JobResult<u32> {
    Ok(cx.input(&job)?.iter().sum())
}

async fn order_failed(_: OrderFailed, _: Context) -> JobResult {
    Ok(())
}

fn confirming(client: Client) -> Handlers {
    Handlers::new().on(confirm).with_state(client).on(mail)
}

#[tokio::test(start_paused = true)]
async fn one_trace_leads_from_the_request_to_the_retry() {
    let rig = Rig::new(Tracing::Auto, confirming);
    let job = rig.in_request(async { rig.client.enqueue(Confirm).await.unwrap() }).await;
    rig.harbor.advance(SECOND * 60).await;
    assert_eq!(rig.harbor.state(job.id()).await, State::Done);

    let root = rig.root();
    let first = rig.only("process orders", "order:confirm", 1);
    assert!(is_child(&first, &root), "the first delivery is a child of the request");
    assert_eq!(first.span_kind, SpanKind::Consumer);
    assert!(
        matches!(&first.status, Status::Error { description } if description.contains("fails"))
    );
    assert_eq!(text(&first, "messaging.system"), "taskharbor");
    assert_eq!(text(&first, "messaging.operation.type"), "process");
    assert_eq!(text(&first, "messaging.destination.name"), "orders");
    assert_eq!(text(&first, "messaging.message.id"), job.id().as_str());
    assert_eq!(text(&first, "taskharbor.job.outcome"), "failed");

    let child = rig.only("process mail", "mail:send", 1);
    assert!(is_child(&child, &first), "what the handler enqueues belongs to its execution");
    assert_eq!(child.status, Status::Unset);
    assert_eq!(text(&child, "taskharbor.job.outcome"), "done");

    let retry = rig.only("process orders", "order:confirm", 2);
    assert_ne!(retry.span_context.trace_id(), root.span_context.trace_id());
    assert_eq!(retry.parent_span_id, SpanId::INVALID, "a retry begins a trace");
    let links: Vec<_> = retry.links.iter().map(|link| link.span_context.span_id()).collect();
    assert_eq!(links, [root.span_context.span_id()], "and links to the request");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_runs_much_later_is_linked() {
    let rig = Rig::new(Tracing::Auto, confirming);
    rig.in_request(async {
        rig.client.enqueue(Mail).delay(SECOND * 599).await.unwrap();
        rig.client.enqueue(Mail).delay(SECOND * 601).queue("orders").await.unwrap();
    })
    .await;
    rig.harbor.advance(SECOND * 3_600).await;
    let soon = rig.only("process mail", "mail:send", 1);
    assert!(is_child(&soon, &rig.root()));
    let late = rig.only("process orders", "mail:send", 1);
    assert_eq!((late.parent_span_id, late.links.len()), (SpanId::INVALID, 1));
}

#[tokio::test(start_paused = true)]
async fn parent_and_link_hold_for_every_delivery() {
    for tracing in [Tracing::Parent, Tracing::Link] {
        let rig = Rig::new(tracing, confirming);
        rig.in_request(async { rig.client.enqueue(Confirm).await.unwrap() }).await;
        rig.harbor.advance(SECOND * 3_600).await;
        for attempt in [1, 2] {
            let span = rig.only("process orders", "order:confirm", attempt);
            assert_eq!(is_child(&span, &rig.root()), tracing == Tracing::Parent, "{tracing:?}");
            assert_eq!(span.links.len(), usize::from(tracing == Tracing::Link), "{tracing:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn flows_and_their_expansions_belong_to_the_enqueuer() {
    let handlers = |_| Handlers::new().on(mail).on(batch).on(sum).on(order_failed);
    let rig = Rig::new(Tracing::Auto, handlers);
    let flow = Mail.into_flow().discard().then(Batch);
    rig.in_request(async { rig.client.start(flow).await.unwrap() }).await;
    rig.harbor.advance(SECOND * 60).await;
    let (root, driver) = (rig.root(), rig.harbor.driver());
    let processed: Vec<_> =
        rig.spans().into_iter().filter(|span| span.name.starts_with("process")).collect();
    assert_eq!(processed.len(), 5, "a step, the batch, its two members and their sum");
    assert!(processed.iter().all(|span| is_child(span, &root)), "{processed:#?}");
    let list = List::new(Filter::all(), 100, driver.now().await.unwrap());
    let mut jobs = driver.list(list).await.unwrap().items.into_iter();
    let failure_job = jobs.find(|job| job.job_type.as_str() == "order:failed").unwrap();
    assert_eq!(failure_job.state, State::Cancelled, "it was not needed");
    let record = record(driver, &failure_job.id).await;
    let trace = root.span_context.trace_id().to_string();
    assert!(record.job.headers.get(TRACEPARENT).unwrap().contains(&trace));
}

#[tokio::test(start_paused = true)]
async fn a_job_without_a_trace_begins_one_for_its_expansion() {
    let handlers = |_| Handlers::new().on(mail).on(batch).on(sum).on(order_failed);
    let rig = Rig::new(Tracing::Auto, handlers);
    let schedule = Schedule::every("nightly", SECOND * 60).job(Batch);
    rig.client.schedules().put(schedule).await.unwrap();
    rig.harbor.advance(SECOND * 60).await;
    let batch = rig.only("process default", "batch", 1);
    assert_eq!((batch.parent_span_id, batch.links.len()), (SpanId::INVALID, 0));
    let total = rig.only("process default", "sum", 1);
    assert!(is_child(&total, &batch));
}

#[tokio::test(start_paused = true)]
async fn headers_that_are_set_by_hand_stay() {
    let rig = Rig::new(Tracing::Auto, confirming);
    let by_hand = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let (driver, client) = (rig.harbor.driver(), &rig.client);
    let (own, many) = rig
        .in_request(async {
            let own = client.enqueue(Mail).header(TRACEPARENT, by_hand).await.unwrap();
            let tagged = Mail.with(Options::new().header("tenant", "acme"));
            let many = [Mail.with(Options::new()), tagged];
            (own, client.enqueue_many(many).await.unwrap())
        })
        .await;
    assert_eq!(record(driver, own.id()).await.job.headers.get(TRACEPARENT), Some(by_hand));
    let trace = rig.root().span_context.trace_id().to_string();
    for handle in &many {
        let headers = record(driver, handle.id()).await.job.headers;
        assert!(headers.get(TRACEPARENT).unwrap().contains(&trace));
        assert_eq!(headers.get(TRACESTATE), None);
    }
    assert_eq!(record(driver, many[1].id()).await.job.headers.get("tenant"), Some("acme"));
    let outside = client.enqueue(Mail).await.unwrap();
    assert_eq!(record(driver, outside.id()).await.job.headers.get(TRACEPARENT), None);
}

#[derive(Serialize, Deserialize, Job)]
#[job(type = "slow")]
struct Slow;

#[derive(Serialize, Deserialize, Job)]
#[job(type = "broken")]
struct Broken;

async fn slow(_: Slow, cx: Context) -> JobResult {
    if cx.attempt() == 1 {
        std::future::pending::<()>().await;
    }
    Ok(())
}

async fn broken(_: Broken, cx: Context) -> JobResult {
    assert!(cx.attempt() > 1, "the first attempt panics");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_execution_that_is_stopped_or_panics_ends_its_span() {
    let rig = Rig::new(Tracing::Auto, |_| Handlers::new().on(slow).on(broken));
    rig.client.enqueue(Slow).timeout(SECOND * 5).await.unwrap();
    rig.client.enqueue(Broken).await.unwrap();
    rig.harbor.advance(SECOND * 600).await;
    for (job_type, outcome) in [("slow", "stopped"), ("broken", "panicked")] {
        let span = rig.only("process default", job_type, 1);
        assert_eq!(text(&span, "taskharbor.job.outcome"), outcome);
        assert!(matches!(span.status, Status::Error { .. }));
        assert_eq!(
            text(&rig.only("process default", job_type, 2), "taskharbor.job.outcome"),
            "done"
        );
    }
}
