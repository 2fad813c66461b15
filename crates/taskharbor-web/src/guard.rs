//! What every request passes before its handler: host, origin, size, time, access; and the headers of every
//! answer.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{RawPathParams, Request},
    response::{IntoResponse, Response},
};

use crate::{access::Access, app::App, call::Call, endpoint::Endpoint, problem::Problem};

/// Answers a request to this endpoint.
pub(crate) async fn answer(
    app: Arc<App>,
    endpoint: Arc<Endpoint>,
    params: RawPathParams,
    request: Request,
) -> Response {
    match pass(app, &endpoint, &params, request).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

async fn pass(
    app: Arc<App>,
    endpoint: &Endpoint,
    params: &RawPathParams,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let access = parts.extensions.get::<Access>().or_else(|| app.anonymous()).cloned();
    let Some(access) = access else {
        return Err(Problem::forbidden(
            "no_access",
            "no access",
            "you have no access to this server",
        ));
    };
    endpoint.needs.check(&access)?;
    let bytes = read(body, endpoint.body_limit).await?;
    let params = params.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let call = Call {
        app,
        access,
        uri: parts.uri,
        headers: parts.headers,
        params,
        bytes,
        noted: Arc::default(),
    };
    (endpoint.handler)(call).await
}

async fn read(body: Body, limit: usize) -> Result<bytes::Bytes, Problem> {
    let too_large = |_| {
        Problem::new(
            axum::http::StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            "the request is too large",
            format!("the body is larger than {limit} bytes: send less in one request"),
        )
    };
    axum::body::to_bytes(body, limit).await.map_err(too_large)
}
