//! Signing in from a browser: a token once, a cookie from then on.
//!
//! The cookie has a random number, and the server remembers its token. A session ends after 12 hours without
//! a request, when its token is removed, and with the server.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use axum::{
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::{
    access::{Access, Role},
    call::Call,
    config::Callers,
    endpoint::{Endpoint, Nothing},
    problem::Problem,
    token::{StoredToken, TokenFile, digest, hex},
};

/// A session ends when it has not been used for this long.
const IDLE: Duration = Duration::from_secs(12 * 3_600);
/// The most sessions at once; the one that was not used for longest makes room.
const MAX_SESSIONS: usize = 1_000;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/v1/session", show).summary("Who you are and what you may do"),
        Endpoint::post_raw("/v1/session", sign_in)
            .public()
            .answers::<Session>()
            .summary("Sign in with a token: sets a cookie"),
        Endpoint::delete_raw("/v1/session", sign_out)
            .public()
            .answers::<Nothing>()
            .summary("Sign out: ends the session and removes its cookie"),
    ]
}

/// A token to sign in with.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SignIn {
    /// The token, `th_` and 64 digits.
    token: String,
}

/// Who a caller is and what it may do.
#[derive(Debug, Serialize, JsonSchema)]
struct Session {
    /// The caller's name, as the action log shows it.
    name: String,
    /// What the caller may do.
    role: Role,
    /// Whether it may see payloads and outputs.
    payloads: bool,
    /// Whether it may use the worker face.
    workers: bool,
    /// Whether it can sign out.
    signed_in: bool,
}

impl Session {
    fn of(access: &Access, signed_in: bool) -> Self {
        let Access { name, role, payloads, workers } = access.clone();
        Self { name, role, payloads, workers, signed_in }
    }
}

async fn show(call: Call, _: Nothing) -> Result<Session, Problem> {
    let callers = &call.app.config.callers;
    let signed_in = call.app.sessions.access(&call.headers, callers, Seen::Again)?.is_some();
    Ok(Session::of(&call.access, signed_in))
}

async fn sign_in(call: Call, SignIn { token }: SignIn) -> Result<Response, Problem> {
    let Callers::Tokens(file) = &call.app.config.callers else {
        return Err(Problem::conflict(
            "no_tokens",
            "this server takes no tokens",
            "there is nothing to sign in with: access is given in another way",
        ));
    };
    let Some(stored) = find(file, &token)? else { return Err(wrong_token()) };
    let id = call.app.sessions.begin(&stored)?;
    let age = IDLE.as_secs();
    let secure = if is_https(&call.headers) { "; Secure" } else { "" };
    let name = cookie_name(&call.headers);
    let cookie = format!("{name}={id}; Max-Age={age}; HttpOnly; SameSite=Strict{secure}");
    with_cookie(&Session::of(&stored.access(), true), &cookie)
}

async fn sign_out(call: Call, _: Nothing) -> Result<Response, Problem> {
    call.app.sessions.end(&call.headers);
    let name = cookie_name(&call.headers);
    let cookie = format!("{name}=; Max-Age=0; HttpOnly; SameSite=Strict");
    with_cookie(&Nothing {}, &cookie)
}

/// Without a path of its own the cookie is for the directory of this request as the browser knows it, which
/// is `…/v1`. So it is for the API alone, also behind a proxy that strips a prefix.
fn with_cookie(answer: &impl Serialize, cookie: &str) -> Result<Response, Problem> {
    let mut response = crate::endpoint::json(answer)?.into_response();
    let cookie = HeaderValue::from_str(cookie).map_err(|error| Problem::internal(&error))?;
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

/// The sessions of a server.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    // By the SHA-256 of their numbers, so that looking one up tells nothing about others.
    open: Mutex<HashMap<[u8; 32], Open>>,
}

#[derive(Debug)]
struct Open {
    name: String,
    sha256: String,
    used: Instant,
}

/// Why the access of a session is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// There is a request, which keeps the session open.
    InRequest,
    /// To see whether the session is still open, which does not keep it open.
    Again,
}

impl Sessions {
    fn begin(&self, token: &StoredToken) -> Result<String, Problem> {
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(|error| Problem::internal(&error))?;
        let (id, now) = (hex(&random), Instant::now());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, session| now.duration_since(session.used) < IDLE);
        if open.len() >= MAX_SESSIONS {
            let oldest = open.iter().min_by_key(|(_, session)| session.used);
            if let Some(oldest) = oldest.map(|(id, _)| *id) {
                open.remove(&oldest);
            }
        }
        let (name, sha256) = (token.name.clone(), token.sha256.clone());
        open.insert(digest(&id), Open { name, sha256, used: now });
        Ok(id)
    }

    fn end(&self, headers: &HeaderMap) {
        if let Some(id) = cookie(headers) {
            self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&digest(id));
        }
    }

    /// The access of the session that these headers name, as its token has it now.
    pub(crate) fn access(
        &self,
        headers: &HeaderMap,
        callers: &Callers,
        seen: Seen,
    ) -> Result<Option<Access>, Problem> {
        let Callers::Tokens(file) = callers else { return Ok(None) };
        let Some(id) = cookie(headers).map(digest) else { return Ok(None) };
        let now = Instant::now();
        let session = {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            let session = open.get_mut(&id).filter(|it| now.duration_since(it.used) < IDLE);
            session.map(|session| {
                if seen == Seen::InRequest {
                    session.used = now;
                }
                (session.name.clone(), session.sha256.clone())
            })
        };
        let Some((name, sha256)) = session else { return Ok(None) };
        let tokens = file.tokens().map_err(|error| unusable(&error))?;
        let token = tokens.iter().find(|token| token.name == name && token.sha256 == sha256);
        Ok(token.map(StoredToken::access))
    }
}

/// The access of the token in the header `Authorization`, if there is one. A proxy may have put credentials
/// of another kind there, which are for itself.
pub(crate) fn bearer(headers: &HeaderMap, file: &TokenFile) -> Result<Option<Access>, Problem> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let text = String::from_utf8_lossy(value.as_bytes());
    let (scheme, token) = text.split_once(' ').unwrap_or((&text, ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Ok(None);
    }
    match find(file, token.trim())? {
        Some(stored) => Ok(Some(stored.access())),
        None => Err(wrong_token()),
    }
}

fn find(file: &TokenFile, token: &str) -> Result<Option<StoredToken>, Problem> {
    file.find(token).map_err(|error| unusable(&error))
}

/// Refuses all callers while the file cannot be read: their tokens may have been removed from it.
fn unusable(error: &crate::TokenFileError) -> Problem {
    tracing::error!(%error, "no token can be checked");
    Problem::unavailable(
        "tokens_unreadable",
        "tokens cannot be checked",
        "the server cannot read its token file: the cause is in the server's log",
    )
}

fn wrong_token() -> Problem {
    Problem::new(
        StatusCode::UNAUTHORIZED,
        "invalid_token",
        "the token is not valid",
        "this server does not know the token, or it was removed: make one with taskharbor token add",
    )
}

pub(crate) fn no_credentials() -> Problem {
    Problem::new(
        StatusCode::UNAUTHORIZED,
        "sign_in",
        "sign in first",
        "send a token (authorization: Bearer th_…), or sign in with POST v1/session",
    )
}

/// Cookies of one host are shared by all its ports, so the port is part of the name.
fn cookie_name(headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let port = host.rsplit_once(':').map_or("", |(_, port)| port);
    match port.parse::<u16>() {
        Ok(port) => format!("taskharbor_session_{port}"),
        Err(_) => "taskharbor_session".to_owned(),
    }
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let name = cookie_name(headers);
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|it| it.to_str().ok());
    let mut pairs = cookies.flat_map(|it| it.split(';')).filter_map(|it| it.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// Whether the browser came over https. A caller that says so falsely only keeps its own cookie from
/// being sent without.
fn is_https(headers: &HeaderMap) -> bool {
    let starts = |name: &str, with: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.is_some_and(|value| value.starts_with(with))
    };
    starts("origin", "https://") || starts("x-forwarded-proto", "https")
}
