//! Flows as a user writes them: each step takes what the one before it produced, or it does not compile.
#![allow(dead_code)]
use serde::{Deserialize, Serialize};
use std::time::Duration;
use taskharbor::{Client, Context, Error, Flow, Handlers, Job, JobResult, Options};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "photo:fetch", output = Vec<u8>)]
struct Fetch {
    url: String,
}

#[derive(Serialize, Deserialize, Job)]
#[job(type = "photo:resize", input = Vec<u8>, output = Thumb)]
struct Resize {
    width: u32,
}

#[derive(Serialize, Deserialize, Job)]
#[job(type = "photo:album", input = Vec<Thumb>, output = String)]
struct Album {
    title: String,
}

#[derive(Serialize, Deserialize)]
struct Thumb {
    width: u32,
    bytes: usize,
}

async fn fetch(job: Fetch, _: Context) -> JobResult<Vec<u8>> {
    Ok(job.url.into_bytes())
}
async fn resize(job: Resize, cx: Context) -> JobResult<Thumb> {
    let original = cx.input(&job)?; // Vec<u8>
    Ok(Thumb { width: job.width, bytes: original.len() })
}
async fn album(job: Album, cx: Context) -> JobResult<String> {
    let thumbs = cx.input(&job)?; // Vec<Thumb>, in the order of the group
    Ok(format!("{}: {} sizes", job.title, thumbs.len()))
}

/// Chain and chord: each step takes what the one before it produced, or this does not compile.
async fn publish(client: &Client, url: String) -> Result<String, Error> {
    let slow = Options::new().queue("images").timeout(Duration::from_secs(60));
    let sizes = [64, 256, 1024].map(|width| Resize { width }.with(slow.clone()));
    let flow = Flow::first(Fetch { url: url.clone() })
        .then(Flow::group(sizes))
        .then(Album { title: "cats".into() });
    client.start(flow).idempotency_key(url).await?.wait().await
}

#[derive(Serialize, Deserialize, Job)]
#[job(type = "csv:import", output = u64)]
struct Import {
    csv: String,
}
#[derive(Serialize, Deserialize, Job)]
#[job(type = "csv:row", output = u64)]
struct Row {
    line: String,
}
#[derive(Serialize, Deserialize, Job)]
#[job(type = "csv:total", input = Vec<u64>, output = u64)]
struct Total {}

/// Expansion: a handler returns its output, or a flow that will produce it. A caller that waits for the import gets the total.
async fn import(job: Import, _: Context) -> JobResult<Flow<u64>> {
    Ok(Flow::chord(job.csv.lines().map(|line| Row { line: line.into() }), Total {}))
}
async fn row(job: Row, _: Context) -> anyhow::Result<u64> {
    Ok(job.line.trim().parse()?)
}
async fn total(job: Total, cx: Context) -> JobResult<u64> {
    Ok(cx.input(&job)?.into_iter().sum())
}

fn handlers() -> Handlers {
    Handlers::new().on(fetch).on(resize).on(album).on(import).on(row).on(total)
}

/// Runs it, on any store.
pub(crate) mod run;
