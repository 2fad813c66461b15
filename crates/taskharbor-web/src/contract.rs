//! The driver and admin faces: the contract of a driver, one endpoint for each operation.
//!
//! The endpoints are made from the list of operations in [`taskharbor_core::wire`], so a new operation is
//! served as soon as it exists. Requests and answers are the types of the contract, and an item that is
//! refused is part of the answer. A call that fails as a whole answers a problem document with the member
//! `failure`, from which a caller makes the error that the store's own driver would give.

pub(crate) mod note;
mod permission;
mod watch;

use std::{any::Any, sync::Arc, time::Duration};

use axum::http::StatusCode;
use taskharbor::{AnyDriver, Counts, DriverError, Timestamp};
use taskharbor_core::{
    Driver,
    wire::{Bounds, CallFailure, Operation, Visitor, operation},
};
use tokio::time::timeout;

use crate::{
    app::Store,
    call::Call,
    endpoint::{Endpoint, Nothing},
    problem::Problem,
};

/// The greatest size of a request that carries payloads or outputs. They are up to 256 MiB, which are 342 MiB
/// as Base64, and there are names, numbers and edges beside them.
const REQUEST_BYTES: usize = 512 * 1024 * 1024;
/// The greatest size of a request that names many jobs, queues or settings.
const LIST_BYTES: usize = 16 * 1024 * 1024;
/// The greatest size of any other request.
const SMALL_BYTES: usize = 1024 * 1024;
/// How long a call may take, once its request has been read.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// How long an operation may take that looks at everything that is stored.
const LONG_TIME_LIMIT: Duration = Duration::from_secs(600);
/// How long a call that reads everything waits for the one before it.
const TURN: Duration = Duration::from_secs(10);
/// Counts up to this number per queue and state read little.
const SMALL_COUNT: usize = 20_000;
/// How far a caller's time may be from the store's.
const MAX_SKEW: Duration = Duration::from_secs(5);

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let mut operations = Operations(vec![
        Endpoint::get("/v1/{store}/driver/limits", limits)
            .summary("The bounds of the store's driver and of requests"),
        watch::endpoint(),
    ]);
    operation::visit(&mut operations);
    operations.0
}

/// The endpoints so far.
struct Operations(Vec<Endpoint>);

impl Visitor for Operations {
    fn visit<O: Operation>(&mut self) {
        let path = format!("/v1/{{store}}/{}/{}", O::FACE, O::NAME);
        let time = match O::NAME {
            "migrate" | "counts" | "check" | "export" | "import" => LONG_TIME_LIMIT,
            _ => TIME_LIMIT,
        };
        // JSON takes several times its size while it is read, so a call takes no more than it needs.
        let bytes = match O::NAME {
            "enqueue" | "fire" | "settle" | "import" => REQUEST_BYTES,
            "reserve" | "extend_leases" | "outputs" | "manage" | "configure" => LIST_BYTES,
            _ => SMALL_BYTES,
        };
        let endpoint = Endpoint::post(path, call::<O>)
            .summary(O::SUMMARY.trim_end_matches('.'))
            .body_limit(bytes)
            .time_limit(time);
        let needs = permission::needs(O::FACE, O::NAME);
        let endpoint = Endpoint { needs, ..endpoint };
        self.0.push(match permission::is_action(O::FACE, O::NAME) {
            true => endpoint.acts(format!("admin.{}", O::NAME)),
            false => endpoint,
        });
    }
}

async fn limits(call: Call, _: Nothing) -> Result<Bounds, Problem> {
    let limits = call.store()?.driver.limits();
    Ok(Bounds { limits, request_bytes: REQUEST_BYTES })
}

/// Makes one call of the contract.
async fn call<O: Operation>(call: Call, request: O::Request) -> Result<O::Answer, Problem> {
    let store = call.store()?;
    let driver = &store.driver;
    let asked: &dyn Any = &request;
    note::tell(&call, asked);
    permission::check(&call.access, asked)?;
    let is_large = is_large_read(O::NAME, asked);
    if let Some(now) = O::now(&request).filter(|_| !call.app.config.any_clock) {
        check_clock(driver, now, call.arrived_at.elapsed()).await?;
    }
    match is_large {
        true => in_turn::<O>(store, request).await,
        false => O::make(driver, request).await.map_err(failed),
    }
}

/// Whether a call that every caller may make reads everything that is stored.
fn is_large_read(name: &str, request: &dyn Any) -> bool {
    let is_small = |counts: &Counts| counts.at_most.is_some_and(|at_most| at_most <= SMALL_COUNT);
    name == "check" || request.downcast_ref().is_some_and(|counts| !is_small(counts))
}

/// Makes one large call at a time. It keeps its turn until the store has answered, also if its caller goes
/// away: otherwise callers that disconnect could occupy all connections of the store.
async fn in_turn<O: Operation>(
    store: &Arc<Store>,
    request: O::Request,
) -> Result<O::Answer, Problem> {
    let turn = timeout(TURN, Arc::clone(&store.large_reads).acquire_owned()).await;
    let Ok(Ok(turn)) = turn else {
        return Err(Problem::unavailable(
            "busy",
            "the server is busy",
            "another call reads the whole store, and there is one at a time: try again",
        ));
    };
    let driver = store.driver.clone();
    let made = tokio::spawn(async move {
        let _turn = turn;
        timeout(LONG_TIME_LIMIT, O::make(&driver, request)).await
    });
    match made.await {
        Ok(Ok(answer)) => answer.map_err(failed),
        Ok(Err(_)) => Err(crate::guard::took_too_long(LONG_TIME_LIMIT)),
        Err(error) => Err(Problem::internal(&error)),
    }
}

/// Refuses a time that is far from the store's: it would end leases too early, or too late. The request may have
/// been written when it arrived, and its body may have taken longer than the clocks may differ.
async fn check_clock(
    driver: &AnyDriver,
    now: Timestamp,
    since_arrival: Duration,
) -> Result<(), Problem> {
    let own = driver.now().await.map_err(failed)?;
    let earliest = own.saturating_sub(since_arrival).saturating_sub(MAX_SKEW);
    if (earliest..=own.saturating_add(MAX_SKEW)).contains(&now) {
        return Ok(());
    }
    Err(Problem::conflict(
        "clock_skew",
        "the clocks differ",
        format!(
            "the request has the time {now}, and the store's clock shows {own}: they may differ by at most \
             {MAX_SKEW:?}; use the time of driver/store_time"
        ),
    ))
}

/// What a caller is told if the whole call failed.
fn failed(error: DriverError) -> Problem {
    let failure = CallFailure::of(&error).map(Box::new);
    let problem = Problem::from(error);
    // A proxy in between answers 502 on its own; what the store answered is told apart from that.
    let status = match problem.status {
        StatusCode::BAD_GATEWAY => StatusCode::INTERNAL_SERVER_ERROR,
        status => status,
    };
    Problem { status, failure, ..problem }
}
