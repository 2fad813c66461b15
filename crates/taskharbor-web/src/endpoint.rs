//! [`Endpoint`]: the one table that the router, the checks of access and the description of the API are
//! made from.
//!
//! A module declares its endpoints with `pub(crate) fn endpoints() -> Vec<Endpoint>`. A handler gets the
//! [`Call`] and what the request carries, already read and typed: the query of a GET, the JSON body of a
//! POST. What it answers is typed, too, so the description cannot say anything else.

use std::{borrow::Cow, future::Future, pin::Pin, sync::Arc, time::Duration};

use axum::{
    http::{HeaderValue, Method, header},
    response::{IntoResponse, Response},
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    access::{Needs, Role},
    call::Call,
    problem::Problem,
};

type Handled = Pin<Box<dyn Future<Output = Result<Response, Problem>> + Send>>;
type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// The body limit of an endpoint that does not say otherwise.
const BODY_LIMIT: usize = 1024 * 1024;
/// The body limit of an endpoint that is open to all.
const PUBLIC_BODY_LIMIT: usize = 4 * 1024;
/// How long an answer may take if its endpoint does not say otherwise.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// One method at one path.
pub(crate) struct Endpoint {
    pub(crate) method: Method,
    pub(crate) path: Cow<'static, str>,
    pub(crate) summary: Cow<'static, str>,
    pub(crate) needs: Needs,
    pub(crate) takes: SchemaOf,
    /// `None` if what is answered is no JSON.
    pub(crate) answers: Option<SchemaOf>,
    pub(crate) media_type: &'static str,
    pub(crate) body_limit: usize,
    pub(crate) time_limit: Duration,
    /// Whether callers with the same access get the same answer for a moment.
    pub(crate) is_shared: bool,
    /// What the action log calls it, if it changes anything that people care about.
    pub(crate) action: Option<Cow<'static, str>>,
    pub(crate) handler: Arc<dyn Fn(Call) -> Handled + Send + Sync>,
}

/// A request that carries nothing, or an answer that says nothing.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct Nothing {}

impl Endpoint {
    fn new<F>(
        method: Method,
        path: impl Into<Cow<'static, str>>,
        takes: SchemaOf,
        handler: F,
    ) -> Self
    where
        F: Fn(Call) -> Handled + Send + Sync + 'static,
    {
        Self {
            method,
            path: path.into(),
            summary: Cow::Borrowed(""),
            needs: Needs::VIEWER,
            takes,
            answers: None,
            media_type: "application/json",
            body_limit: BODY_LIMIT,
            time_limit: TIME_LIMIT,
            is_shared: false,
            action: None,
            handler: Arc::new(handler),
        }
    }

    /// A GET, whose handler takes the query and answers JSON. It changes nothing.
    pub(crate) fn get<Q, U, F>(
        path: impl Into<Cow<'static, str>>,
        handler: impl Fn(Call, Q) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        Q: DeserializeOwned + JsonSchema + Send + 'static,
        U: Serialize + JsonSchema + 'static,
        F: Future<Output = Result<U, Problem>> + Send + 'static,
    {
        let handle = move |call: Call| -> Handled {
            let handler = handler.clone();
            Box::pin(async move {
                let query = call.query()?;
                json(&handler(call, query).await?)
            })
        };
        let endpoint = Self::new(Method::GET, path, schema_of::<Q>, handle);
        Self { answers: Some(schema_of::<U>), ..endpoint }
    }

    /// A GET, whose handler takes the query and answers something that is no JSON, such as a stream of
    /// events (`text/event-stream`).
    pub(crate) fn get_raw<Q, F>(
        path: impl Into<Cow<'static, str>>,
        media_type: &'static str,
        handler: impl Fn(Call, Q) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        Q: DeserializeOwned + JsonSchema + Send + 'static,
        F: Future<Output = Result<Response, Problem>> + Send + 'static,
    {
        let handle = move |call: Call| -> Handled {
            let handler = handler.clone();
            Box::pin(async move {
                let query = call.query()?;
                handler(call, query).await
            })
        };
        Self { media_type, ..Self::new(Method::GET, path, schema_of::<Q>, handle) }
    }

    /// A POST, whose handler takes the JSON body and answers JSON.
    pub(crate) fn post<T, U, F>(
        path: impl Into<Cow<'static, str>>,
        handler: impl Fn(Call, T) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        T: DeserializeOwned + JsonSchema + Send + 'static,
        U: Serialize + JsonSchema + 'static,
        F: Future<Output = Result<U, Problem>> + Send + 'static,
    {
        Self::with_body(Method::POST, path, handler)
    }

    /// A POST, whose handler answers with headers of its own; [`Endpoint::answers`] says what the body is.
    pub(crate) fn post_raw<T, F>(
        path: impl Into<Cow<'static, str>>,
        handler: impl Fn(Call, T) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        T: DeserializeOwned + JsonSchema + Send + 'static,
        F: Future<Output = Result<Response, Problem>> + Send + 'static,
    {
        Self::with_raw_answer(Method::POST, path, handler)
    }

    /// As [`Endpoint::post_raw`], for a DELETE.
    pub(crate) fn delete_raw<F>(
        path: impl Into<Cow<'static, str>>,
        handler: impl Fn(Call, Nothing) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Response, Problem>> + Send + 'static,
    {
        Self::with_raw_answer(Method::DELETE, path, handler)
    }

    fn with_raw_answer<T, F>(
        method: Method,
        path: impl Into<Cow<'static, str>>,
        handler: impl Fn(Call, T) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        T: DeserializeOwned + JsonSchema + Send + 'static,
        F: Future<Output = Result<Response, Problem>> + Send + 'static,
    {
        let handle = move |mut call: Call| -> Handled {
            let handler = handler.clone();
            Box::pin(async move {
                let body = call.take_body()?;
                handler(call, body).await
            })
        };
        Self::new(method, path, schema_of::<T>, handle)
    }

    /// The JSON that a handler with an answer of its own writes.
    pub(crate) fn answers<U: JsonSchema>(mut self) -> Self {
        self.answers = Some(schema_of::<U>);
        self
    }

    /// A DELETE, whose handler takes nothing and answers JSON.
    pub(crate) fn delete<U, F>(
        path: impl Into<Cow<'static, str>>,
        handler: impl Fn(Call, Nothing) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        U: Serialize + JsonSchema + 'static,
        F: Future<Output = Result<U, Problem>> + Send + 'static,
    {
        Self::with_body(Method::DELETE, path, handler)
    }

    fn with_body<T, U, F>(
        method: Method,
        path: impl Into<Cow<'static, str>>,
        handler: impl Fn(Call, T) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        T: DeserializeOwned + JsonSchema + Send + 'static,
        U: Serialize + JsonSchema + 'static,
        F: Future<Output = Result<U, Problem>> + Send + 'static,
    {
        let handle = move |mut call: Call| -> Handled {
            let handler = handler.clone();
            Box::pin(async move {
                let body = call.take_body()?;
                json(&handler(call, body).await?)
            })
        };
        let endpoint = Self::new(method, path, schema_of::<T>, handle);
        Self { answers: Some(schema_of::<U>), ..endpoint }
    }

    /// What it does, in one line without a full stop.
    pub(crate) fn summary(mut self, summary: impl Into<Cow<'static, str>>) -> Self {
        self.summary = summary.into();
        self
    }

    /// Takes this role at least. Defaults to [`Role::Viewer`].
    pub(crate) fn needs(mut self, role: Role) -> Self {
        self.needs.role = Some(role);
        self
    }

    /// Takes the permission to see payloads, too.
    pub(crate) fn needs_payloads(mut self) -> Self {
        self.needs.payloads = true;
        self
    }

    /// Takes the permission to act as a worker, too.
    pub(crate) fn needs_workers(mut self) -> Self {
        self.needs.workers = true;
        self
    }

    /// Open to all, also to callers without credentials, whose bodies are small.
    pub(crate) fn public(mut self) -> Self {
        self.needs = Needs::NOTHING;
        self.body_limit = PUBLIC_BODY_LIMIT;
        self
    }

    /// Goes into the action log under this name, with the parameters of its path and what the handler
    /// notes ([`Call::note`]). It runs to its end even if the client goes away meanwhile, so nothing is
    /// done that the log does not show.
    pub(crate) fn acts(mut self, action: impl Into<Cow<'static, str>>) -> Self {
        self.action = Some(action.into());
        self
    }

    /// Callers that ask the same within a moment share one answer
    /// ([`SharedAnswers`](crate::shared_answer::SharedAnswers)). It must not depend on who asks beside their
    /// role and permissions, nor on anything but the address.
    pub(crate) const fn shared(mut self) -> Self {
        self.is_shared = true;
        self
    }

    /// Takes bodies of this many bytes. Defaults to 1 MiB.
    pub(crate) fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = bytes;
        self
    }

    /// May take this long to answer once the body has been read. Defaults to 10 s.
    pub(crate) fn time_limit(mut self, time: Duration) -> Self {
        self.time_limit = time;
        self
    }

    /// Whether it changes nothing.
    pub(crate) fn is_read(&self) -> bool {
        self.method == Method::GET
    }
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// A JSON answer.
pub(crate) fn json(answer: &impl Serialize) -> Result<Response, Problem> {
    let body = serde_json::to_vec(answer).map_err(|error| Problem::internal(&error))?;
    let kind = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, kind)], body).into_response())
}

/// Every endpoint there is.
pub(crate) fn table() -> Vec<Endpoint> {
    [
        crate::session::endpoints(),
        crate::action_log::endpoints(),
        crate::view::endpoints(),
        crate::contract::endpoints(),
        crate::work::endpoints(),
        crate::poll::endpoints(),
        crate::sweep::endpoints(),
        crate::description::endpoints(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
