//! A server with something in its store, and what every refusal has to keep.

use std::time::Duration;

use axum::{
    body::Body,
    http::{HeaderName, HeaderValue, Method, Request, Uri, header},
};
use serde_json::Value;
use taskharbor::{AnyDriver, Timestamp};
use taskharbor_core::{
    Admin, Driver, JobId, JobType, NewJob, QueueName, Timestamp as Time,
    admin::{Change, Configure, Counts, ListSettings, ListWorkers},
    driver::{Demand, Enqueue, Reserve},
    job::JobSet,
    name::Holder,
};
use taskharbor_memory::MemoryDriver;
use taskharbor_web::{Access, Role, Web};
use tokio::time::timeout;

use crate::{
    openapi::operations,
    rig::{Reply, Rig},
};

/// An endpoint as the description has it.
#[derive(Clone)]
pub(super) struct Endpoint {
    pub(super) path: String,
    pub(super) method: Method,
    /// The schema of the body that it takes.
    pub(super) body: Option<Value>,
    pub(super) body_limit: usize,
    /// `None` if it is open to all.
    pub(super) role: Option<String>,
    pub(super) payloads: bool,
    pub(super) workers: bool,
    parameters: Vec<(String, String)>,
}

impl Endpoint {
    /// The parameters of its query: names and types.
    pub(super) fn parameters(&self) -> &[(String, String)] {
        &self.parameters
    }
}

/// A request on its way.
#[derive(Clone)]
pub(super) struct Try {
    method: Method,
    path: String,
    query: Option<String>,
    headers: Vec<(HeaderName, String)>,
    body: Vec<u8>,
}

impl Try {
    /// One that is as it should be, with an empty body.
    pub(super) fn new(endpoint: &Endpoint) -> Self {
        Self {
            method: endpoint.method.clone(),
            path: endpoint.path.clone(),
            query: None,
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    pub(super) fn method(mut self, method: &str) -> Self {
        self.method = method.parse().unwrap();
        self
    }

    pub(super) fn path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    pub(super) fn query(mut self, query: &str) -> Self {
        self.query = Some(query.to_owned());
        self
    }

    /// With this header; an empty text leaves it out.
    pub(super) fn header(mut self, name: HeaderName, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(super) fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = body.as_ref().to_vec();
        self
    }

    pub(super) fn json(self, body: &Value) -> Self {
        self.body(body.to_string())
    }

    /// `None` if no client can send it.
    fn request(&self) -> Option<Request<Body>> {
        let path = self.path.replacen("{store}", "main", 1);
        let path: String = path
            .split('/')
            .map(|it| if it.starts_with('{') { "x" } else { it })
            .collect::<Vec<_>>()
            .join("/");
        let query = self.query.as_deref().map_or(String::new(), |query| format!("?{query}"));
        let uri: Uri = format!("{path}{query}").parse().ok()?;
        let body = Body::from(self.body.clone());
        let mut request =
            Request::builder().method(self.method.clone()).uri(uri).body(body).ok()?;
        let headers = request.headers_mut();
        headers.insert(header::HOST, HeaderValue::from_static("127.0.0.1:7450"));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in &self.headers {
            match value.is_empty() && *name != "sec-fetch-site" {
                true => drop(headers.remove(name)),
                false => drop(headers.insert(name, HeaderValue::from_str(value).ok()?)),
            }
        }
        Some(request)
    }
}

/// A server, what it says of itself, and what its store holds.
pub(super) struct Site {
    pub(super) rig: Rig,
    pub(super) document: Value,
    /// How long an answer may take: a request may wait for jobs.
    longest_answer: Duration,
}

impl Site {
    pub(super) async fn new() -> Self {
        Self::of(AnyDriver::new(MemoryDriver::new()), Duration::from_secs(45)).await
    }

    /// One whose store has this driver.
    pub(super) async fn of(driver: AnyDriver, longest_answer: Duration) -> Self {
        let access = Access::new("ada", Role::Admin).with_payloads().with_workers();
        let rig = Rig::of(driver, Web::new().anonymous(access).allow_host("127.0.0.1"));
        let now = rig.now();
        let jobs = ["a", "b", "c"].map(|id| {
            let (id, queue) = (JobId::new(id).unwrap(), QueueName::new("mail").unwrap());
            NewJob::new(id, queue, JobType::new("mail:send").unwrap(), b"{}".to_vec())
        });
        rig.driver.enqueue(Enqueue::new(vec![JobSet::plain(jobs.to_vec())], now)).await.unwrap();
        let (demands, holder) =
            (vec![Demand::new(QueueName::new("mail").unwrap(), 1)], Holder::new("h").unwrap());
        let lease_for = Duration::from_secs(600);
        rig.driver.reserve(Reserve::new(demands, holder, now, lease_for)).await.unwrap();
        let pause = Change::PauseQueue(QueueName::new("mail").unwrap());
        rig.driver.configure(Configure::new(vec![pause], now)).await.unwrap();
        let document = rig.description().await;
        Self { rig, document, longest_answer }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.rig.now()
    }

    pub(super) fn endpoints(&self) -> Vec<Endpoint> {
        let all = operations(&self.document).into_iter().map(|(path, method, operation)| {
            let access = &operation["x-access"];
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let parameters = parameters.map(|it| {
                let kind = it["schema"]["type"].as_str().unwrap_or("string").to_owned();
                (it["name"].as_str().unwrap().to_owned(), kind)
            });
            let body = &operation["requestBody"]["content"]["application/json"]["schema"];
            let body_limit = operation["x-body-limit-bytes"].as_u64().unwrap_or(1 << 20);
            Endpoint {
                path: path.to_owned(),
                method: method.to_uppercase().parse().unwrap(),
                body: (!body.is_null()).then(|| body.clone()),
                body_limit: usize::try_from(body_limit).unwrap(),
                role: access["role"].as_str().map(str::to_owned),
                payloads: access["payloads"] == true,
                workers: access["workers"] == true,
                parameters: parameters.collect(),
            }
        });
        let all: Vec<_> = all.collect();
        assert!(all.len() > 30, "the description has all endpoints");
        all
    }

    /// The methods of this path.
    pub(super) fn methods(&self, path: &str) -> Vec<&'static str> {
        let of_path = self.document["paths"][path].as_object().unwrap();
        let known = ["GET", "POST", "DELETE", "PUT", "PATCH"];
        known.into_iter().filter(|it| of_path.contains_key(&it.to_lowercase())).collect()
    }

    /// What the server answers; `None` if no client can send it, or if it waits for jobs. The body of a
    /// stream is left out.
    pub(super) async fn answer(&self, sent: &Try) -> Option<Reply> {
        self.answer_of(&self.rig, sent).await
    }

    async fn answer_of(&self, rig: &Rig, sent: &Try) -> Option<Reply> {
        let request = sent.request()?;
        let answer = timeout(self.longest_answer, rig.open(request)).await.ok()?;
        let (parts, body) = answer.into_parts();
        let is_stream =
            parts.headers.get(header::CONTENT_TYPE).is_some_and(|it| it == "text/event-stream");
        let text = if is_stream {
            String::new()
        } else {
            let bytes = axum::body::to_bytes(body, 64 << 20).await.unwrap();
            String::from_utf8(bytes.to_vec()).unwrap()
        };
        Some(Reply { status: parts.status, headers: parts.headers, text })
    }

    /// Sends what has to be refused with this status, and looks that nothing has changed.
    pub(super) async fn refused(&self, sent: &Try, status: u16) -> Reply {
        self.refused_by(&self.rig, sent, status).await
    }

    pub(super) async fn refused_by(&self, rig: &Rig, sent: &Try, status: u16) -> Reply {
        let before = self.stored().await;
        let at = format!("{} {}", sent.method, sent.path);
        let reply = self.answer_of(rig, sent).await.unwrap_or_else(|| panic!("{at} can be sent"));
        let body = String::from_utf8_lossy(&sent.body[..sent.body.len().min(500)]).into_owned();
        assert_eq!(reply.status, status, "{at} {:?} {body}: {reply:?}", sent.query);
        reply.problem();
        assert_eq!(self.stored().await, before, "{at} {body}");
        reply
    }

    /// Sends what may be valid in some way: it is done, or refused with nothing changed.
    pub(super) async fn harmless(&self, sent: &Try) {
        let before = self.stored().await;
        let at = format!("{} {} {:?}", sent.method, sent.path, sent.query);
        let Some(reply) = self.answer(sent).await else { return };
        let body = String::from_utf8_lossy(&sent.body[..sent.body.len().min(500)]).into_owned();
        assert!(!reply.status.is_server_error(), "{at} {body}: {reply:?}");
        if reply.status.is_client_error() {
            reply.problem();
            assert_eq!(self.stored().await, before, "{at} {body}");
        }
    }

    /// All that the store holds, in words.
    async fn stored(&self) -> String {
        let (driver, now): (_, Time) = (&self.rig.driver, self.now());
        let jobs = driver.export(None, 1_000).await.unwrap();
        let counts = driver.counts(Counts::new(now)).await.unwrap();
        let settings = driver.settings(ListSettings::new(1_000)).await.unwrap();
        let workers = driver.workers(ListWorkers::new(1_000, now)).await.unwrap();
        format!("{jobs:?} {counts:?} {settings:?} {workers:?}")
    }
}
