//! [`Link`]: one request and its answer.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use hyper::{Method, Response, StatusCode, body::Incoming};
use taskharbor_core::{
    DriverError,
    wire::{Bounds, Operation},
};
use tokio::time::timeout;

use crate::{
    Config, ConfigError,
    body::{self, ReadError},
    connection::{Sender, Target},
    failure::{self, Failure},
    pool::Pool,
};

/// How long an operation may take that looks at everything that is stored. Servers allow them as much.
const LONG_TIMEOUT: Duration = Duration::from_secs(600);
/// The largest answer that is read. An answer of the contract has at most 256 MiB of payloads.
const MAX_ANSWER_BYTES: usize = 512 * 1024 * 1024;
/// How much is read of an answer that is no success.
const MAX_PROBLEM_BYTES: usize = 64 * 1024;

/// Connections to a server, and requests over them.
pub(crate) struct Link {
    pub(crate) target: Arc<Target>,
    pub(crate) pool: Pool,
}

impl Link {
    pub(crate) fn new(config: Config) -> Result<Self, ConfigError> {
        let pool = Pool::new(config.connections);
        Ok(Self { target: Arc::new(Target::new(config)?), pool })
    }

    /// The same server over connections of its own.
    pub(crate) fn detached(&self) -> Self {
        let target = Arc::clone(&self.target);
        Self { pool: Pool::new(target.config.connections), target }
    }

    /// What the server takes.
    pub(crate) async fn bounds(&self) -> Result<Bounds, DriverError> {
        let name = "driver/limits";
        let answer = self.exchange(Method::GET, name, Bytes::new(), self.timeout()).await?;
        self.read(name, &answer)
    }

    /// Makes a call whose request is written already.
    pub(crate) async fn call<O: Operation>(&self, json: Bytes) -> Result<O::Answer, DriverError> {
        let name = format!("{}/{}", O::FACE, O::NAME);
        let limit = match O::NAME {
            "migrate" | "counts" | "check" | "export" | "import" => {
                self.timeout().max(LONG_TIMEOUT)
            }
            _ => self.timeout(),
        };
        let answer = self.exchange(Method::POST, &name, json, limit).await?;
        self.read(&name, &answer)
    }

    fn timeout(&self) -> Duration {
        self.target.config.timeout
    }

    fn read<T: serde::de::DeserializeOwned>(
        &self,
        name: &str,
        answer: &[u8],
    ) -> Result<T, DriverError> {
        serde_json::from_slice(answer)
            .map_err(|error| failure::unreadable(&self.target.shown, name, &error))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        limit: Duration,
    ) -> Result<Bytes, DriverError> {
        match timeout(limit, self.exchange_without_a_limit(method, path, body)).await {
            Ok(answer) => answer,
            Err(_) => {
                Err(Failure::Timeout { server: Arc::clone(&self.target.shown), limit }.into())
            }
        }
    }

    async fn exchange_without_a_limit(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Bytes, DriverError> {
        let _permit = self.pool.enter().await;
        let (response, sender) = self.send(method, path, body).await?;
        let (head, mut body) = response.into_parts();
        let is_json = head.headers.get(hyper::header::CONTENT_TYPE).is_some_and(is_json);
        let is_answer = head.status == StatusCode::OK && is_json;
        let limit = if is_answer { MAX_ANSWER_BYTES } else { MAX_PROBLEM_BYTES };
        let server = &self.target.shown;
        let answer = match body::read(&mut body, limit).await {
            Ok(answer) => {
                self.pool.put(sender);
                answer
            }
            Err(ReadError::Lost(error)) => return Err(self.target.lost(&error).into()),
            Err(ReadError::TooLarge) if is_answer => {
                let server = Arc::clone(server);
                return Err(Failure::TooLarge { server, limit }.into());
            }
            // A page of another server, of which nothing is shown.
            Err(ReadError::TooLarge) => Bytes::new(),
        };
        if is_answer {
            return Ok(answer);
        }
        Err(failure::judge(server, head.status, &head.headers, &answer))
    }

    /// Sends a request over a connection that stands, or over a new one.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(Response<Incoming>, Sender), Failure> {
        while let Some(mut sender) = self.pool.take() {
            if sender.ready().await.is_err() {
                continue;
            }
            let request = self.target.request(method.clone(), path, body.clone())?;
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, sender)),
                Err(mut error) => {
                    // It comes back only if nothing of it was sent.
                    if error.take_message().is_none() {
                        return Err(self.target.lost(&error.into_error()));
                    }
                }
            }
        }
        let mut sender = self.target.dial().await?;
        let request = self.target.request(method, path, body)?;
        match sender.send_request(request).await {
            Ok(response) => Ok((response, sender)),
            Err(error) => Err(self.target.lost(&error)),
        }
    }
}

fn is_json(kind: &hyper::header::HeaderValue) -> bool {
    let kind = kind.to_str().unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("config", &self.target.config).finish_non_exhaustive()
    }
}
