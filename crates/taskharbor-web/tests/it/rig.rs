//! A server without a socket: requests go straight to its router.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Method, Request, StatusCode, header},
    response::Response,
};
use serde_json::Value;
use taskharbor::{AnyDriver, Client, Timestamp};
use taskharbor_core::clock::{Clock, ManualClock};
use taskharbor_memory::MemoryDriver;
use taskharbor_web::{Access, Role, StoreKind, Stores, Web, router};
use tower::ServiceExt;

/// A server with one store, `main`, whose time a test moves.
pub(crate) struct Rig {
    pub(crate) driver: AnyDriver,
    pub(crate) client: Client,
    pub(crate) clock: ManualClock,
    router: Router,
}

/// What the server answered.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    /// Reads an answer to its end.
    pub(crate) async fn of(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, 64 * 1024 * 1024).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Self { status: parts.status, headers: parts.headers, text }
    }

    /// The body, which has to be JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The body of an answer that has to be a success.
    pub(crate) fn ok(&self) -> Value {
        assert!(self.status.is_success(), "{self:?}");
        self.json()
    }

    /// The status and the code of a problem document.
    pub(crate) fn problem(&self) -> (u16, String) {
        let kind = self.headers.get(header::CONTENT_TYPE).map(|it| it.to_str().unwrap());
        assert_eq!(kind, Some("application/problem+json"), "{self:?}");
        let document = self.json();
        assert_eq!(document["status"], self.status.as_u16());
        (self.status.as_u16(), document["code"].as_str().unwrap().to_owned())
    }
}

impl Rig {
    /// One whose callers may do everything.
    pub(crate) fn new() -> Self {
        Self::with_access(Access::new("ada", Role::Admin).with_payloads().with_workers())
    }

    /// One whose callers have this access.
    pub(crate) fn with_access(access: Access) -> Self {
        Self::with(Web::new().anonymous(access))
    }

    /// One with this configuration.
    pub(crate) fn with(web: Web) -> Self {
        Self::of(AnyDriver::new(MemoryDriver::new()), web)
    }

    /// One whose store has this driver.
    pub(crate) fn of(driver: AnyDriver, web: Web) -> Self {
        let clock = ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000).unwrap());
        let driver = driver.with_clock(Arc::new(clock.clone()));
        Self { clock, ..Self::on(driver, web) }
    }

    /// One with this driver and configuration, whose time is the driver's.
    pub(crate) fn on(driver: AnyDriver, web: Web) -> Self {
        let stores = Stores::new().add("main", StoreKind::Memory, &driver).unwrap();
        let (client, clock) = (Client::new(&driver), ManualClock::new(Timestamp::EPOCH));
        Self { driver, client, clock, router: unshared(stores, web) }
    }

    /// Sends a request as it is.
    pub(crate) async fn send(&self, request: Request<Body>) -> Reply {
        Reply::of(self.open(request).await).await
    }

    /// What the clock shows.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The same store, served to callers with this access.
    pub(crate) fn served_to(&self, access: Access) -> Self {
        self.served(Web::new().anonymous(access))
    }

    /// The same store, served with this configuration.
    pub(crate) fn served(&self, web: Web) -> Self {
        let (driver, clock) = (self.driver.clone(), self.clock.clone());
        let stores = Stores::new().add("main", StoreKind::Memory, &driver).unwrap();
        Self { client: self.client.clone(), driver, clock, router: unshared(stores, web) }
    }

    /// Sends a request, and answers before the body is there: for streams.
    pub(crate) async fn open(&self, request: Request<Body>) -> Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    /// The description of the API.
    pub(crate) async fn description(&self) -> Value {
        let request = Request::get("/v1/openapi.json").header(header::HOST, "127.0.0.1:7450");
        self.send(request.body(Body::empty()).unwrap()).await.ok()
    }

    /// A GET of `/v1/main/` and this path.
    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(request(Method::GET, path, Body::empty())).await
    }

    /// A POST of JSON to `/v1/main/` and this path.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(request(Method::POST, path, Body::from(body.to_string()))).await
    }

    /// A DELETE of `/v1/main/` and this path.
    pub(crate) async fn delete(&self, path: &str) -> Reply {
        self.send(request(Method::DELETE, path, Body::empty())).await
    }
}

/// A router that asks the store each time: tests change the store behind the server.
fn unshared(stores: Stores, web: Web) -> Router {
    router(stores, web.share_answers(Duration::ZERO))
}

/// A request as a program sends it.
pub(crate) fn request(method: Method, path: &str, body: Body) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(format!("/v1/main/{path}"))
        .header(header::HOST, "127.0.0.1:7450")
        .header(header::CONTENT_TYPE, "application/json")
        .body(body)
        .unwrap()
}
