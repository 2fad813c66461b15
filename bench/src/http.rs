//! The HTTP driver beside the driver behind the server: the same drain on the same kind of store, in turns.
//!
//! The server runs in this process, so both sides of HTTP compete for the same processors, as they do on a
//! machine that has both.

use std::{error::Error, net::SocketAddr, sync::Arc};

use taskharbor::{AnyDriver, Driver, JobId, JobType, QueueName, Timestamp};
use taskharbor_core::{
    NewJob,
    driver::{Demand, Enqueue, Leased, Reserve, Settle, Settlement, Transition},
    job::JobSet,
    name::Holder,
};
use taskharbor_http::HttpDriver;
use taskharbor_memory::MemoryDriver;
use taskharbor_web::{Access, Role, StoreKind, Stores, Web, serve};
use tokio::net::TcpListener;

use crate::{
    choice::{set_sizes, split},
    finding::{Bound, Rounds, head, per_second, rate, ratio},
    postgres, sqlite,
    stopwatch::now,
    worker::runtime,
};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const PARTS: [&str; 3] = ["memory", "sqlite", "postgres"];
const QUEUE: &str = "default";
const LEASE: std::time::Duration = std::time::Duration::from_secs(60);
/// How many loops reserve and settle at once, as a worker has several calls in flight.
const LOOPS: usize = 2;

struct Sizes {
    jobs: usize,
    batch: usize,
    payload: usize,
    rounds: usize,
}

/// Runs the chosen parts, or all of them: names of parts and sizes such as `jobs=20000`.
pub(crate) fn run(arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    runtime()?.block_on(choose(arguments)).map_err(|error| error as Box<dyn Error>)
}

async fn choose(arguments: &[&str]) -> Outcome {
    let (given, chosen) = split(arguments, &PARTS)?;
    let mut sizes = Sizes { jobs: 50_000, batch: 500, payload: 100, rounds: 3 };
    let mut places = [
        ("jobs", &mut sizes.jobs),
        ("batch", &mut sizes.batch),
        ("payload", &mut sizes.payload),
        ("rounds", &mut sizes.rounds),
    ];
    set_sizes(&given, &mut places)?;
    let sizes = Arc::new(sizes);
    for part in chosen {
        let sizes = Arc::clone(&sizes);
        // As a task, because that is where applications have their loops.
        let measured = tokio::spawn(async move {
            match part.as_str() {
                "memory" => measure("memory", &sizes, Bound::None, memory).await,
                "sqlite" => measure("SQLite", &sizes, Bound::None, sqlite::fresh).await,
                _ => {
                    let server = postgres::Fresh::start()?;
                    let open = || server.store("http");
                    measure("PostgreSQL", &sizes, Bound::AtLeast(0.5), open).await
                }
            }
        });
        measured.await??;
    }
    Ok(())
}

/// A store and what has to be kept for as long as it is used.
pub(crate) type Kept = (AnyDriver, Box<dyn std::any::Any + Send + Sync>);

async fn memory() -> Outcome<Kept> {
    Ok((AnyDriver::new(MemoryDriver::new()), Box::new(())))
}

async fn measure<F: Future<Output = Outcome<Kept>>>(
    name: &str,
    sizes: &Sizes,
    bound: Bound,
    open: impl Fn() -> F,
) -> Outcome {
    let (jobs, batch) = (sizes.jobs, sizes.batch);
    head(&format!("http over {name}: {jobs} jobs that do nothing, {batch} in a call"));
    let [mut direct, mut http] = [Rounds::default(), Rounds::default()];
    let [mut stored, mut sent] = [Rounds::default(), Rounds::default()];
    for _ in 0..sizes.rounds {
        let (store, _kept) = open().await?;
        stored.push(fill(&store, sizes).await?);
        direct.push(drain(&store, sizes).await?);
        let (store, _kept) = open().await?;
        let driver = AnyDriver::new(
            HttpDriver::connect(&format!("http://{}", served(&store).await?)).await?,
        );
        sent.push(fill(&driver, sizes).await?);
        http.push(drain(&driver, sizes).await?);
        driver.close().await?;
    }
    rate("direct: enqueue", &stored);
    rate("http: enqueue", &sent);
    rate(&format!("direct: reserve + ack, {LOOPS} loops"), &direct);
    rate(&format!("http: reserve + ack, {LOOPS} loops"), &http);
    ratio("http / direct: enqueue", &sent.over(&stored), Bound::None);
    ratio("http / direct: reserve + ack", &http.over(&direct), bound);
    Ok(())
}

/// Serves the store on a socket for the rest of the run.
async fn served(store: &AnyDriver) -> Outcome<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let stores = Stores::new().add("main", StoreKind::Other, store)?;
    let access = Access::new("bench", Role::Admin).with_payloads().with_workers();
    let web = Web::new().anonymous(access);
    tokio::spawn(serve(listener, stores, web, std::future::pending()));
    Ok(address)
}

/// Stores the jobs; how many a second.
async fn fill(driver: &AnyDriver, sizes: &Sizes) -> Outcome<f64> {
    let payload = format!("{{\"pad\":\"{}\"}}", "x".repeat(sizes.payload.saturating_sub(10)));
    let (queue, job_type) = (QueueName::new(QUEUE)?, JobType::new("noop")?);
    let mut calls = Vec::new();
    for start in (0..sizes.jobs).step_by(sizes.batch) {
        let now = driver.now().await?;
        let ids = JobId::generate_many(now, sizes.batch.min(sizes.jobs - start))?;
        let job = |id| NewJob::new(id, queue.clone(), job_type.clone(), payload.as_bytes());
        calls.push(Enqueue::new(ids.into_iter().map(job).map(JobSet::from).collect(), now));
    }
    let started = now();
    for call in calls {
        driver.enqueue(call).await?;
    }
    Ok(per_second(sizes.jobs, started.elapsed()))
}

/// Reserves and acks until nothing is left; how many jobs a second.
async fn drain(driver: &AnyDriver, sizes: &Sizes) -> Outcome<f64> {
    let started = now();
    let loops = (0..LOOPS).map(|_| tokio::spawn(empty(driver.clone(), sizes.batch)));
    let mut done = 0;
    for running in loops.collect::<Vec<_>>() {
        done += running.await??;
    }
    let took = started.elapsed();
    if done != sizes.jobs {
        return Err(format!("{done} of {} jobs were drained", sizes.jobs).into());
    }
    Ok(per_second(done, took))
}

async fn empty(driver: AnyDriver, batch: usize) -> Outcome<usize> {
    let (queue, holder) = (QueueName::new(QUEUE)?, Holder::new("bench")?);
    let mut done = 0;
    loop {
        let now: Timestamp = driver.now().await?;
        let demands = vec![Demand::new(queue.clone(), batch)];
        let reserved = driver.reserve(Reserve::new(demands, holder.clone(), now, LEASE)).await?;
        if reserved.jobs.is_empty() {
            return Ok(done);
        }
        let ack = |it: Leased| {
            Settlement::new(it.job.id, it.lease.token, Transition::Ack { output: None })
        };
        let items: Vec<_> = reserved.jobs.into_iter().map(ack).collect();
        done += items.len();
        let answers = driver.settle(Settle::new(items, driver.now().await?)).await?;
        if let Some(refusal) = answers.iter().find_map(|answer| answer.as_ref().err()) {
            return Err(format!("an ack was refused: {refusal}").into());
        }
    }
}
