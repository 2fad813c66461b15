//! A web application on PostgreSQL: people sign up, and get a welcome mail in the background.
//!
//! The new user and the job that sends the mail are stored in one transaction. If the process dies in between, or the
//! transaction is rolled back, there is neither a user without a mail nor a mail without a user.
//!
//! # What happens once, and what may happen again
//!
//! Delivery is at least once: if a worker dies after its work and before it has acked the job, the job runs again. So
//! the mail may be sent twice. What the handler writes to this database is written exactly once: it acks its job in the
//! same transaction (`cx.ack_in`) and commits. Either both have happened, or neither has and the job runs again.
//!
//! # Run it
//!
//! ```sh
//! cargo xtask pg                # a PostgreSQL server for trying things out; it prints its URL
//! DATABASE_URL=postgres://… cargo run -p taskharbor --example axum --features postgres
//! curl localhost:3000/users -H 'content-type: application/json' -d '{"email": "ada@example.com"}'
//! curl localhost:3000/mails/ID  # the id of the job, from the answer above
//! ```
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

const TABLES: &str = "CREATE TABLE IF NOT EXISTS users (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    email text NOT NULL UNIQUE,
    mails bigint NOT NULL DEFAULT 0)";

struct App {
    db: Pool,
    client: Client,
}

/// Sends the welcome mail to a user. Its output is the number of mails that the user got.
#[derive(Serialize, Deserialize, Job)]
#[job(type = "user:welcome", queue = "mail", max_attempts = 8, output = i64)]
struct Welcome {
    user: i64,
}

#[derive(Deserialize)]
struct NewUser {
    email: String,
}

#[derive(Serialize)]
struct SignedUp {
    user: i64,
    job: String,
}

async fn sign_up(
    State(app): State<Arc<App>>,
    Json(new): Json<NewUser>,
) -> Result<Json<SignedUp>, Failed> {
    let mut db = app.db.get().await?;
    let tx = db.transaction().await?;
    let insert = "INSERT INTO users (email) VALUES ($1) RETURNING id";
    let user = tx.query_one(insert, &[&new.email]).await?.get(0);
    let job = app.client.enqueue(Welcome { user }).within(&tx).await?;
    tx.commit().await?;
    Ok(Json(SignedUp { user, job: job.id().to_string() }))
}

/// Stands for a call to a mail server.
async fn send(to: &str) -> Result<(), BoxError> {
    tokio::task::yield_now().await;
    println!("a mail to {to}: welcome!");
    Ok(())
}

/// The handler of the job. It shares nothing with the web routes but the pool.
async fn welcome(job: Welcome, cx: Context<Arc<App>>) -> JobResult<Outcome<i64>> {
    let mut db = cx.state().db.get().await?;
    let email = "SELECT email FROM users WHERE id = $1";
    let email: String = db.query_one(email, &[&job.user]).await?.get(0);
    send(&email).await?;
    let tx = db.transaction().await?;
    let count = "UPDATE users SET mails = mails + 1 WHERE id = $1 RETURNING mails";
    let mails = tx.query_one(count, &[&job.user]).await?.get(0);
    let done = cx.ack_in(&tx, mails).await?;
    tx.commit().await?;
    Ok(done)
}

/// Waits until the mail is sent, and answers the output of its job.
async fn mail(State(app): State<Arc<App>>, Path(job): Path<String>) -> Result<Json<i64>, Failed> {
    Ok(Json(app.client.handle::<Welcome>(JobId::new(job)?).wait().await?))
}

/// Serves until `stop` completes, with a worker in the same process.
async fn run(
    url: &str,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), BoxError> {
    // This comes first, because its error says why the server cannot be reached.
    let driver = taskharbor::connect(url).await?;
    driver.migrate().await?;
    let db = Pool::builder(Manager::new(url.parse()?, NoTls)).max_size(10).build()?;
    db.get().await?.batch_execute(TABLES).await?;
    let app = Arc::new(App { db, client: Client::new(&driver) });

    let handlers = Handlers::new().on(welcome).with_state(Arc::clone(&app));
    let worker = Worker::builder(&driver).handlers(handlers).queue("mail", 5).build()?.start();
    let routes = Router::new()
        .route("/users", post(sign_up))
        .route("/mails/{job}", get(mail))
        .with_state(app);
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, routes).with_graceful_shutdown(stop).await?;
    worker.shutdown().await?;
    Ok(())
}

#[taskharbor::main]
async fn main() -> Result<(), BoxError> {
    let advice = "set DATABASE_URL to the URL of a database; `cargo xtask pg` starts a server";
    let url = env::var("DATABASE_URL").map_err(|_| advice)?;
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    let interrupted = async { drop(tokio::signal::ctrl_c().await) };
    run(&url, listener, interrupted).await
}

/// An error, as the browser sees it.
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
