//! The checks that every request passes before its handler: host, access, origin, load, size, time; and the
//! headers of every answer.
//!
//! The order matters. A request for a foreign host learns nothing, a caller without access learns only that,
//! and a body is read only if its sender may send it. A caller without access takes no permit from one that
//! has it.

mod body;

use std::{future::Future, sync::Arc, time::Duration};

use axum::{
    extract::{RawPathParams, Request, rejection::RawPathParamsRejection},
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header, uri::Authority},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use taskharbor::Timestamp;
use tokio::time::{Instant, sleep, timeout};

use self::body::Room;
use crate::{
    access::{Access, Needs},
    app::App,
    call::Call,
    config::Callers,
    endpoint::Endpoint,
    problem::Problem,
    session::{self, Seen},
    shared_answer::Key,
};

/// The longest address that is looked at.
const MAX_URI_BYTES: usize = 8 * 1024;

/// How often to look whether a caller still has access while a stream is open.
const LOOK_AGAIN_EVERY: Duration = Duration::from_secs(15);

/// Where a supervisor asks whether the server runs.
const PROBE: &str = "/healthz";

/// Nothing but the server's own files, and nothing inline.
const CONTENT_SECURITY_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
);

/// Answers a request to this endpoint.
pub(crate) async fn answer(
    app: Arc<App>,
    endpoint: Arc<Endpoint>,
    params: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
) -> Response {
    let Ok(params) = params else {
        return Problem::invalid("the address is not text: encode it as UTF-8").into_response();
    };
    let passed = async {
        let (call, room) = admit(&app, &endpoint, &params, request).await?;
        // The body has a time limit of its own, which grows with its size.
        let time = endpoint.time_limit;
        let answered = timeout(time, answered(&endpoint, call, room)).await;
        answered.unwrap_or_else(|_| Err(took_too_long(time)))
    };
    match passed.await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

/// The call that a request makes, and the room that its body takes, once it has passed all checks.
async fn admit(
    app: &Arc<App>,
    endpoint: &Endpoint,
    params: &RawPathParams,
    request: Request,
) -> Result<(Call, Room), Problem> {
    let arrived_at = Instant::now();
    let (parts, body) = request.into_parts();
    let access = match endpoint.needs {
        // It does nothing in the name of its caller.
        Needs::NOTHING => Access::new("", crate::Role::Viewer),
        needs => {
            let given = parts.extensions.get();
            let access = caller(app, given, &parts.headers, Seen::InRequest)?;
            let access = access.ok_or_else(|| no_access(app))?;
            needs.check(&access)?;
            access
        }
    };
    if endpoint.path.starts_with("/v1/") {
        check_origin(&parts.headers)?;
    }
    check_media_type(&parts.method, &parts.headers)?;
    let is_public = endpoint.needs == Needs::NOTHING;
    // The body of a public request is small, and slow senders must not take the permits of others.
    let permit = if is_public { None } else { Some(app.permits.take()?) };
    let (bytes, room) = body::read(app, &parts.headers, body, endpoint.body_limit).await?;
    let permit = match permit {
        Some(permit) => permit,
        None if endpoint.path == PROBE => app.permits.beside(),
        None => app.permits.take()?,
    };
    let params = params.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let call = Call {
        app: Arc::clone(app),
        arrived_at,
        access,
        given: parts.extensions.get().cloned(),
        needs: endpoint.needs,
        uri: parts.uri,
        headers: parts.headers,
        params,
        bytes,
        noted: Arc::default(),
        permit: Arc::new(permit),
    };
    Ok((call, room))
}

async fn answered(endpoint: &Arc<Endpoint>, call: Call, room: Room) -> Result<Response, Problem> {
    if endpoint.is_shared {
        let key = Key::new(call.store_name(), call.uri.to_string(), &call.access);
        let app = Arc::clone(&call.app);
        return app.answers.get(key, (endpoint.handler)(call)).await;
    }
    if endpoint.action.is_none() {
        let answer = (endpoint.handler)(call).await;
        drop(room);
        return answer;
    }
    // On a task of its own it ends, and is recorded, also when the client goes away.
    let task = act(Arc::clone(endpoint), call);
    let task = tokio::spawn(async move {
        let answer = task.await;
        drop(room);
        answer
    });
    task.await.unwrap_or_else(|error| Err(Problem::internal(&error)))
}

/// Does what goes into the action log, and records it.
async fn act(endpoint: Arc<Endpoint>, asked: Call) -> Result<Response, Problem> {
    let at = time_of(&asked).await;
    let call = Call { bytes: Bytes::new(), ..asked.clone() };
    let answer = (endpoint.handler)(asked).await;
    // Also after a failure, which may have changed something.
    call.app.answers.forget(call.store_name());
    let result = answer.as_ref().map(|_| ());
    call.app.actions.record(&call, &endpoint, at, result).await;
    answer
}

async fn time_of(call: &Call) -> Option<Timestamp> {
    let store = call.store().ok()?;
    store.driver.now().await.ok()
}

/// The access of the caller; `None` if it has none.
fn caller(
    app: &App,
    extension: Option<&Access>,
    headers: &HeaderMap,
    seen: Seen,
) -> Result<Option<Access>, Problem> {
    if let Some(access) = extension {
        return Ok(Some(access.clone()));
    }
    match &app.config.callers {
        Callers::Embedded => Ok(None),
        Callers::Anonymous(access) => Ok(Some(access.clone())),
        Callers::Tokens(file) => match session::bearer(headers, file)? {
            Some(access) => Ok(Some(access)),
            None => app.sessions.access(headers, &app.config.callers, seen),
        },
    }
}

/// Completes when the caller has lost the access that the endpoint takes, or the server is gone. What outlives
/// its request, such as a stream of events, ends with it.
pub(crate) fn access_lost(call: &Call) -> impl Future<Output = ()> + Send + 'static {
    let (app, needs) = (Arc::downgrade(&call.app), call.needs);
    let (given, headers) = (call.given.clone(), call.headers.clone());
    async move {
        loop {
            sleep(LOOK_AGAIN_EVERY).await;
            let Some(app) = app.upgrade() else { return };
            // An access that cannot be checked is none.
            let access = caller(&app, given.as_ref(), &headers, Seen::Again).ok().flatten();
            if access.is_none_or(|access| needs.check(&access).is_err()) {
                return;
            }
        }
    }
}

/// Completes when there is no token of the caller's name any more, or it does not allow this. What outlives
/// the caller's session, such as a sweep, ends with it. Never completes where the access does not come from
/// a token.
pub(crate) fn token_lost(
    call: &Call,
    is_allowed: impl Fn(&Access) -> bool + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    let file = match &call.app.config.callers {
        Callers::Tokens(file) if call.given.is_none() => Some(file.clone()),
        _ => None,
    };
    let name = call.access.name.clone();
    async move {
        let Some(file) = file else { return std::future::pending().await };
        loop {
            sleep(LOOK_AGAIN_EVERY).await;
            let tokens = file.tokens();
            let token = tokens.iter().flat_map(|all| all.iter()).find(|token| token.name == name);
            if !token.is_some_and(|token| is_allowed(&token.access())) {
                return;
            }
        }
    }
}

fn no_access(app: &App) -> Problem {
    match &app.config.callers {
        Callers::Tokens(_) => session::no_credentials(),
        Callers::Embedded | Callers::Anonymous(_) => Problem::forbidden(
            "no_access",
            "you have no access",
            "the application that serves this has given you no access to jobs",
        ),
    }
}

/// Refuses a host that is not in the list: a page of another site can send a browser here under the
/// page's own name. What such a page can use is access that a browser adds by itself, or that needs no token.
/// So a program that brings a token is answered under any name.
fn check_host(app: &App, headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
    let Some(allowed) = &app.config.hosts else { return Ok(()) };
    let header = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = uri.authority().map(Authority::as_str).or(header);
    let is_allowed = |host: &str| {
        let name = without_port(host);
        let matches = |it: &String| it.eq_ignore_ascii_case(host) || it.eq_ignore_ascii_case(name);
        allowed.iter().any(matches)
    };
    if host.is_some_and(is_allowed) {
        return Ok(());
    }
    if let Callers::Tokens(file) = &app.config.callers
        && !is_of_browser(headers)
        && session::bearer(headers, file)?.is_some()
    {
        return Ok(());
    }
    Err(Problem::forbidden(
        "foreign_host",
        "this host is not served here",
        "the server does not answer under this name: allow it with --allow-host; a program with a token \
         may use any name",
    ))
}

/// Whether a request has headers that browsers add.
fn is_of_browser(headers: &HeaderMap) -> bool {
    [header::COOKIE.as_str(), header::ORIGIN.as_str(), "sec-fetch-site"]
        .iter()
        .any(|name| headers.contains_key(*name))
}

/// Refuses everything, pages too, where the application has given no access.
fn check_embedded(app: &App, access: Option<&Access>) -> Result<(), Problem> {
    let is_closed = matches!(app.config.callers, Callers::Embedded) && access.is_none();
    if is_closed { Err(no_access(app)) } else { Ok(()) }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        // A colon inside brackets belongs to the address.
        Some((name, port)) if port.bytes().all(|it| it.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Refuses what a page of another site has a browser send: it comes with the user's cookies. That page could
/// not read an answer, but it could open streams and ask for what is costly.
fn check_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let is_own = match (text("sec-fetch-site"), text("origin")) {
        (Some(site), _) => matches!(site, "same-origin" | "none"),
        (None, None) => true,
        (None, Some(origin)) => {
            let host = origin.split_once("://").map(|(_, host)| host);
            host.is_some() && host == text("host")
        }
    };
    if is_own {
        return Ok(());
    }
    Err(Problem::forbidden(
        "foreign_origin",
        "the request comes from another site",
        "requests are taken from this server's own pages, and from programs that are not browsers",
    ))
}

/// Refuses changes that a form of another site can send.
fn check_media_type(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    let kind = headers.get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap_or("?"));
    let kind = kind.unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    // A form cannot send this type, and a DELETE carries nothing.
    if *method == Method::POST && !essence.eq_ignore_ascii_case("application/json") {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "json_expected",
            "the body must be JSON",
            "send the header content-type: application/json",
        ));
    }
    Ok(())
}

/// The store has taken too long.
pub(crate) fn took_too_long(time: Duration) -> Problem {
    let detail = format!("the request took longer than {time:?}: it may take effect all the same");
    Problem {
        status: StatusCode::GATEWAY_TIMEOUT,
        ..Problem::unavailable("timeout", "the request took too long", detail)
    }
}

/// Refuses what no endpoint should see, and writes the headers that every answer has.
pub(crate) async fn around(
    app: Arc<App>,
    request: Request,
    next: axum::middleware::Next,
) -> Response {
    let is_probe = request.uri().path() == PROBE;
    let is_api = is_probe || request.uri().path().starts_with("/v1/");
    let passed =
        if request.uri().path().len() + request.uri().query().map_or(0, str::len) > MAX_URI_BYTES {
            Err(Problem::new(
                StatusCode::URI_TOO_LONG,
                "address_too_long",
                "the address is too long",
                format!("it is longer than {MAX_URI_BYTES} bytes: ask for less"),
            ))
        } else if is_probe {
            // A probe comes under the address of a machine, and learns nothing.
            Ok(())
        } else {
            check_host(&app, request.headers(), request.uri())
                .and_then(|()| check_embedded(&app, request.extensions().get()))
        };
    let mut response = match passed {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    if is_api || !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_told_from_an_address() {
        for (host, name) in [
            ("localhost:7450", "localhost"),
            ("localhost", "localhost"),
            ("[::1]:7450", "[::1]"),
            ("[::1]", "[::1]"),
            ("127.0.0.1:80", "127.0.0.1"),
        ] {
            assert_eq!(without_port(host), name);
        }
    }

    #[test]
    fn requests_are_taken_from_own_pages_and_programs() {
        let check = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            headers.insert("host", HeaderValue::from_static("jobs:7450"));
            headers.insert("content-type", HeaderValue::from_static("application/json"));
            for (name, value) in pairs {
                headers.insert(*name, HeaderValue::from_static(value));
            }
            let checked = check_origin(&headers);
            checked.and_then(|()| check_media_type(&Method::POST, &headers)).map_err(|it| it.code)
        };
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&[("origin", "http://jobs:7450")]), Ok(()));
        assert_eq!(check(&[("sec-fetch-site", "same-origin"), ("origin", "https://a")]), Ok(()));
        assert_eq!(check(&[("sec-fetch-site", "none")]), Ok(()));
        assert_eq!(check(&[("content-type", "application/json; charset=utf-8")]), Ok(()));
        for foreign in [
            ("origin", "http://evil"),
            ("origin", "null"),
            ("origin", "jobs:7450"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert_eq!(check(&[foreign]), Err("foreign_origin"), "{foreign:?}");
        }
        for kind in ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"] {
            assert_eq!(check(&[("content-type", kind)]), Err("json_expected"), "{kind}");
        }
    }
}
