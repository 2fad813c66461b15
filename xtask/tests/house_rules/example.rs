//! The rule that the main items of the published crates have an example in their documentation. Each is a doctest, so it
//! compiles.

use std::io;

use crate::tree::{File, assert_clean, files};

/// The files in `crates/`, and the beginnings of the items.
const MAIN_ITEMS: [(&str, &str); 56] = [
    ("taskharbor/src/lib.rs", "pub use taskharbor_macros::Job;"),
    ("taskharbor/src/client.rs", "pub struct Client "),
    ("taskharbor/src/client/enqueue.rs", "pub struct EnqueueBuilder<"),
    ("taskharbor/src/client/enqueue.rs", "pub struct EnqueueMany<"),
    ("taskharbor/src/client/handle.rs", "pub struct Handle<"),
    ("taskharbor/src/client/manage.rs", "pub struct Dlq<"),
    ("taskharbor/src/client/manage.rs", "pub struct JobAdmin<"),
    ("taskharbor/src/client/manage.rs", "pub struct JobsAdmin<"),
    ("taskharbor/src/client/queue.rs", "pub struct QueueAdmin<"),
    ("taskharbor/src/client/schedules.rs", "pub struct ScheduleAdmin<"),
    ("taskharbor/src/client/start.rs", "pub struct Start<"),
    ("taskharbor/src/codec.rs", "pub trait Codec:"),
    ("taskharbor/src/codec.rs", "pub struct MessagePack;"),
    ("taskharbor/src/connect.rs", "pub async fn connect("),
    ("taskharbor/src/context.rs", "pub struct Context<"),
    ("taskharbor/src/flow.rs", "pub struct Flow<"),
    ("taskharbor/src/flow/each.rs", "pub struct Each<"),
    ("taskharbor/src/flow/failure.rs", "pub struct Failure "),
    ("taskharbor/src/handler.rs", "pub struct Handlers<"),
    ("taskharbor/src/job.rs", "pub trait Job:"),
    ("taskharbor/src/job.rs", "pub struct Options "),
    ("taskharbor/src/job.rs", "pub struct Step<"),
    ("taskharbor/src/limits.rs", "pub struct DeclaredLimits "),
    ("taskharbor/src/middleware.rs", "pub trait Middleware:"),
    ("taskharbor/src/observe.rs", "pub trait Observer:"),
    ("taskharbor/src/outcome.rs", "pub enum Outcome<"),
    ("taskharbor/src/outcome.rs", "pub struct JobError "),
    ("taskharbor/src/propagate.rs", "pub trait Propagate:"),
    ("taskharbor/src/retry.rs", "pub struct Exponential "),
    ("taskharbor/src/retry.rs", "pub trait RetryPolicy:"),
    ("taskharbor/src/schedule.rs", "pub struct Schedule "),
    ("taskharbor/src/schedule/declaration.rs", "pub struct Schedules "),
    ("taskharbor/src/testing/call.rs", "pub fn call<"),
    ("taskharbor/src/testing/harbor.rs", "pub struct Harbor "),
    ("taskharbor/src/worker.rs", "pub struct Worker "),
    ("taskharbor/src/worker/builder.rs", "pub struct WorkerBuilder "),
    ("taskharbor/src/worker/caretaker.rs", "pub struct Caretaker "),
    ("taskharbor/src/worker/retention.rs", "pub struct Retention "),
    ("taskharbor/src/worker/running.rs", "pub struct Running "),
    ("taskharbor-core/src/admin.rs", "pub trait Admin:"),
    ("taskharbor-http/src/config.rs", "pub struct Config "),
    ("taskharbor-http/src/driver.rs", "pub struct HttpDriver "),
    ("taskharbor-memory/src/driver.rs", "pub struct MemoryDriver "),
    ("taskharbor-otel/src/lib.rs", "pub struct Telemetry "),
    ("taskharbor-postgres/src/config.rs", "pub struct Config "),
    ("taskharbor-postgres/src/driver.rs", "pub struct PostgresDriver "),
    ("taskharbor-prometheus/src/lib.rs", "pub struct Metrics("),
    ("taskharbor-prometheus/src/queue.rs", "pub struct QueueGauges("),
    ("taskharbor-sqlite/src/config.rs", "pub struct Config "),
    ("taskharbor-sqlite/src/driver.rs", "pub struct SqliteDriver "),
    ("taskharbor-sqlx/src/lib.rs", "pub fn tx<"),
    ("taskharbor-web/src/access.rs", "pub struct Access "),
    ("taskharbor-web/src/app.rs", "pub struct Stores "),
    ("taskharbor-web/src/config.rs", "pub struct Web "),
    ("taskharbor-web/src/lib.rs", "pub fn router("),
    ("taskharbor-web/src/server.rs", "pub async fn serve("),
];

/// The lines of the comment and the attributes above an item.
fn above<'a>(text: &'a str, item: &str) -> Option<Vec<&'a str>> {
    let (before, _) = text.split_once(&format!("\n{item}"))?;
    Some(before.lines().rev().take_while(|line| !line.is_empty() && *line != "}").collect())
}

fn has_example(comment: &[&str]) -> bool {
    comment.iter().any(|line| line.starts_with("/// ```"))
}

fn complaint(files: &[File], (file, item): (&str, &str)) -> Option<String> {
    let path = format!("crates/{file}");
    let text = files.iter().find(|file| file.path == path).map(|file| file.text.as_str());
    match text.and_then(|text| above(text, item)) {
        None => Some(format!("{path}: has no `{item}`: correct the list of main items")),
        Some(comment) if has_example(&comment) => None,
        Some(_) => Some(format!("{path}: `{item}` needs an example in its documentation")),
    }
}

#[test]
fn every_main_item_has_an_example() -> io::Result<()> {
    let files = files()?;
    assert_clean(MAIN_ITEMS.into_iter().filter_map(|item| complaint(&files, item)));
    Ok(())
}

#[test]
fn a_main_item_without_an_example_is_found() {
    let check =
        |text: &str| complaint(&[File::new("crates/a.rs", text)], ("a.rs", "pub struct A "));
    let example = "/// ```\n/// a();\n/// ```\n";
    assert_eq!(check(&format!("//! Text.\n\n/// An A.\n///\n{example}pub struct A {{}}\n")), None);
    let (other, plain) = ("pub struct B;\n\n", "/// An A.\n#[derive(Debug)]\npub struct A {}\n");
    let found = check(&format!("{example}{other}{plain}"));
    assert!(found.is_some_and(|text| text.contains("needs an example")));
    assert!(check("\npub struct C;\n").is_some_and(|text| text.contains("has no `pub struct A `")));
}
