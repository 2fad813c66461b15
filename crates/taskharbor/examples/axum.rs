//! A web application on PostgreSQL that takes orders and confirms them in the background.
//!
//! The order and the job that confirms it are stored in one transaction: no order stays unconfirmed because the process
//! died between the two, and no job looks for an order that was rolled back.
//!
//! # Exactly once, for handlers that only write to this database
//!
//! A job is run at least once: a worker may die after its work and before it has said so, and the job is run again. A
//! handler that writes to the database of its jobs can have more than that. It writes in a transaction, completes its
//! job in the same one with `cx.ack_in`, and commits: both have happened, or neither has and the job is run again. So
//! what it writes is written exactly once, whichever process dies and when. Mail that it sends, or a call to another
//! service, is outside of the transaction, and is still done at least once.
//!
//! Run it with `DATABASE_URL=postgres://… cargo run --example axum --features postgres`, and then
//! `curl localhost:3000/orders -H 'content-type: application/json' -d '{"item": "lamp"}'`.
#![allow(clippy::print_stdout, reason = "printing is what this example does")]

use std::{env, future::Future, sync::Arc};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::{Deserialize, Serialize};
use taskharbor::{
    BoxError, Client, Context, Handlers, Job, JobId, JobResult, Outcome, Worker,
    postgres::{
        deadpool_postgres::{Manager, Pool},
        tokio_postgres::NoTls,
    },
};
use tokio::net::TcpListener;

const TABLES: &str = "CREATE TABLE IF NOT EXISTS orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    item text NOT NULL,
    confirmations bigint NOT NULL DEFAULT 0)";

struct App {
    db: Pool,
    client: Client,
}

/// Confirms an order; its output says how often that one was confirmed.
#[derive(Serialize, Deserialize, Job)]
#[job(type = "order:confirm", output = i64)]
struct Confirm {
    order: i64,
}

#[derive(Deserialize)]
struct Order {
    item: String,
}

#[derive(Serialize)]
struct Placed {
    order: i64,
    job: String,
}

async fn place(
    State(app): State<Arc<App>>,
    Json(order): Json<Order>,
) -> Result<Json<Placed>, Failed> {
    let mut db = app.db.get().await?;
    let tx = db.transaction().await?;
    let insert = "INSERT INTO orders (item) VALUES ($1) RETURNING id";
    let order = tx.query_one(insert, &[&order.item]).await?.get(0);
    let job = app.client.enqueue(Confirm { order }).within(&tx).await?;
    tx.commit().await?;
    Ok(Json(Placed { order, job: job.id().to_string() }))
}

/// The handler of the job. It has nothing to do with the web, but for the pool that both use.
async fn confirm(job: Confirm, cx: Context<Arc<App>>) -> JobResult<Outcome<i64>> {
    let mut db = cx.state().db.get().await?;
    let tx = db.transaction().await?;
    let update =
        "UPDATE orders SET confirmations = confirmations + 1 WHERE id = $1 RETURNING confirmations";
    let confirmations = tx.query_one(update, &[&job.order]).await?.get(0);
    let done = cx.ack_in(&tx, confirmations).await?;
    tx.commit().await?;
    Ok(done)
}

/// Waits until the job is done and answers its output.
async fn confirmation(
    State(app): State<Arc<App>>,
    Path(job): Path<String>,
) -> Result<Json<i64>, Failed> {
    Ok(Json(app.client.handle::<Confirm>(JobId::new(job)?).wait().await?))
}

/// Serves until it is told to stop, with a worker beside it.
async fn run(
    url: &str,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), BoxError> {
    // First, since its error says why a server cannot be reached.
    let driver = taskharbor::connect(url).await?;
    driver.migrate().await?;
    let db = Pool::builder(Manager::new(url.parse()?, NoTls)).max_size(10).build()?;
    db.get().await?.batch_execute(TABLES).await?;
    let app = Arc::new(App { db, client: Client::new(&driver) });

    let handlers = Handlers::new().on(confirm).with_state(Arc::clone(&app));
    let worker = Worker::builder(&driver).handlers(handlers).queue("default", 5).build()?.start();
    let routes = Router::new()
        .route("/orders", post(place))
        .route("/confirmations/{job}", get(confirmation))
        .with_state(app);
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, routes).with_graceful_shutdown(stop).await?;
    worker.shutdown().await?;
    Ok(())
}

#[taskharbor::main]
async fn main() -> Result<(), BoxError> {
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    let interrupted = async { drop(tokio::signal::ctrl_c().await) };
    run(&env::var("DATABASE_URL")?, listener, interrupted).await
}

/// What went wrong, as the browser is told.
struct Failed(BoxError);

impl<E: Into<BoxError>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.0.to_string()).into_response()
    }
}

#[cfg(test)]
#[path = "axum/test.rs"]
mod test;
