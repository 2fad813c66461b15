//! An order as a saga: pay, reserve, ship, one after the other. If a step fails permanently, the steps before it are
//! undone.
//!
//! Run it with `cargo run -p taskharbor --example saga`. One of its two orders has no address, so it fails.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use taskharbor::{
    Client, Context, Failure, Flow, Handlers, Job, JobError, JobResult, WaitError, Worker,
};

#[derive(Serialize, Deserialize, Job)]
#[job(type = "order:pay", output = Payment)]
struct Pay {
    order: u32,
    cents: u64,
}

#[derive(Serialize, Deserialize)]
struct Payment {
    order: u32,
    cents: u64,
}

#[derive(Serialize, Deserialize, Job)]
#[job(type = "order:reserve", input = Payment, output = u32)]
struct Reserve {
    item: String,
}

#[derive(Serialize, Deserialize, Job)]
#[job(type = "order:ship", input = u32, output = String, max_attempts = 2)]
struct Ship {
    address: String,
}

/// Undoes the steps of an order. It may run twice, so undoing must be idempotent.
#[derive(Serialize, Deserialize, Job)]
#[job(type = "order:undo", input = Failure)]
struct Undo {
    order: u32,
}

/// The bank and the warehouse, which record what they did.
#[derive(Default)]
struct World {
    log: Mutex<Vec<String>>,
}

impl World {
    fn note(&self, line: String) {
        println!("{line}");
        self.log.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(line);
    }
}

type Shared = Arc<World>;

async fn pay(job: Pay, cx: Context<Shared>) -> JobResult<Payment> {
    cx.state().note(format!("order {}: {} cents taken", job.order, job.cents));
    Ok(Payment { order: job.order, cents: job.cents })
}

async fn reserve(job: Reserve, cx: Context<Shared>) -> JobResult<u32> {
    let payment = cx.input(&job)?;
    if payment.cents == 0 {
        return Err(JobError::unrecoverable("nothing was paid"));
    }
    cx.state().note(format!("order {}: {} reserved", payment.order, job.item));
    Ok(payment.order)
}

async fn ship(job: Ship, cx: Context<Shared>) -> JobResult<String> {
    let order = cx.input(&job)?;
    if job.address.is_empty() {
        return Err(JobError::unrecoverable("there is no address"));
    }
    cx.state().note(format!("order {order}: shipped to {}", job.address));
    Ok(format!("parcel {order}"))
}

async fn undo(job: Undo, cx: Context<Shared>) -> JobResult {
    let why = cx.input(&job)?;
    cx.state().note(format!("order {}: money back, items back ({why})", job.order));
    Ok(())
}

/// The steps of an order. If one fails permanently, those after it are cancelled and `Undo` runs.
fn saga(order: u32, address: &str) -> Flow<String> {
    Flow::first(Pay { order, cents: 1999 })
        .then(Reserve { item: "teapot".into() })
        .then(Ship { address: address.into() })
        .on_failure(Undo { order })
}

#[taskharbor::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let driver = taskharbor::connect("memory:").await?;
    let client = Client::new(&driver);
    let world = Shared::default();
    let handlers = Handlers::new().on(pay).on(reserve).on(ship).on(undo);
    let handlers = handlers.with_state(Arc::clone(&world));
    let worker = Worker::builder(&driver).handlers(handlers).queue("default", 4).build()?.start();

    let good =
        client.start(saga(1, "12 Tea Street")).name("order").idempotency_key("order-1").await?;
    assert_eq!(good.wait().await?, "parcel 1");

    let bad = client.start(saga(2, "")).name("order").idempotency_key("order-2").await?;
    let error = bad.wait().await;
    assert!(matches!(error, Err(WaitError::DeadLettered { .. })), "{error:?}");
    // The flow is terminal when its last job is, and that is the one that undoes the order.
    while bad.status().await?.finished_at.is_none() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    println!("{}", bad.tree(100).await?);
    worker.shutdown().await?;

    let log = world.log.lock().map_err(|_| "a handler panicked")?;
    let undone: Vec<_> = log.iter().filter(|line| line.contains("money back")).collect();
    assert_eq!(undone, ["order 2: money back, items back (dead-lettered: there is no address)"]);
    Ok(())
}

#[test]
fn it_runs() {
    main().unwrap();
}
