//! [`Call`]: one request, as a handler sees it.

use std::{
    fmt::Display,
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    extract::Query,
    http::{HeaderMap, Uri},
};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use taskharbor::Timestamp;
use tokio::time::Instant;

use crate::{
    access::{Access, Needs},
    app::{App, Named, Store},
    permit::RequestPermit,
    problem::Problem,
};

/// One request whose caller has the access that its endpoint asks for.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) app: Arc<App>,
    /// When its head had been read. Its body may have taken a while.
    pub(crate) arrived_at: Instant,
    pub(crate) access: Access,
    /// The access that the application around the router has given.
    pub(crate) given: Option<Access>,
    /// What the endpoint asks of its callers.
    pub(crate) needs: Needs,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) params: Arc<[(String, String)]>,
    pub(crate) bytes: Bytes,
    pub(crate) noted: Arc<Mutex<Note>>,
    pub(crate) permit: Arc<RequestPermit>,
}

/// What a handler tells the action log beside the parameters of its path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Note {
    /// The first of the things that were acted upon.
    pub(crate) ids: Vec<String>,
    /// How many there were.
    pub(crate) count: Option<usize>,
    /// How it is done, or by which filter the jobs were chosen.
    pub(crate) details: Option<serde_json::Value>,
}

impl Call {
    /// A parameter of the path, as text.
    pub(crate) fn text(&self, name: &str) -> &str {
        let found = self.params.iter().find(|(key, _)| key == name);
        found.map_or("", |(_, value)| value)
    }

    /// A parameter of the path: a name or an id.
    pub(crate) fn param<T>(&self, name: &str) -> Result<T, Problem>
    where
        T: FromStr,
        T::Err: Display,
    {
        self.text(name).parse().map_err(|error: T::Err| Problem {
            code: "invalid_name",
            ..Problem::invalid(error.to_string())
        })
    }

    /// The store that the path names, open or not.
    pub(crate) fn named(&self) -> Result<&Arc<Named>, Problem> {
        self.app.named(self.text("store"))
    }

    /// The store that the path names, which has to be open.
    pub(crate) fn store(&self) -> Result<&Arc<Store>, Problem> {
        self.app.store(self.text("store"))
    }

    /// The name of the store that the path names, which may be its alias; empty if there is none.
    pub(crate) fn store_name(&self) -> &str {
        self.named().map_or("", |store| &store.name)
    }

    /// The store that the path names, and its time.
    pub(crate) async fn store_now(&self) -> Result<(&Arc<Store>, Timestamp), Problem> {
        let store = self.store()?;
        Ok((store, store.driver.now().await?))
    }

    /// The query of the address.
    pub(crate) fn query<Q: DeserializeOwned>(&self) -> Result<Q, Problem> {
        match Query::try_from_uri(&self.uri) {
            Ok(Query(query)) => Ok(query),
            Err(error) => Err(Problem::invalid(format!("invalid query: {error}"))),
        }
    }

    /// The JSON in the body, which is dropped: it may be large. An empty body is an empty object.
    pub(crate) fn take_body<T: DeserializeOwned>(&mut self) -> Result<T, Problem> {
        let bytes = std::mem::take(&mut self.bytes);
        let body: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        // The fields of an object would be taken from a list as well, by their places.
        if body.trim_ascii_start().first().is_some_and(|first| *first == b'[') {
            return Err(Problem::invalid(
                "invalid JSON body: it is a list, and an object is expected",
            ));
        }
        serde_json::from_slice(body)
            .map_err(|error| Problem::invalid(format!("invalid JSON body: {error}")))
    }

    /// Tells the action log more about what is done.
    pub(crate) fn note(&self, tell: impl FnOnce(&mut Note)) {
        tell(&mut self.noted.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
