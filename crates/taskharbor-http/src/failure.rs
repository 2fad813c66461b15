//! [`Failure`]: why a call has no usable answer, and the error that the caller of the driver gets.
//!
//! A failure that a retry may cure is `Unavailable`, whether or not the call took effect. Everything else
//! is `Backend` and says what to do. Of an answer, a message contains only the texts of a problem document. No
//! message contains the token.

use std::{io, sync::Arc, time::Duration};

use hyper::{StatusCode, header::HeaderMap, header::LOCATION};
use serde::Deserialize;
use taskharbor_core::{DriverError, wire::CallFailure};

/// How much of a text of the server is shown.
const SHOWN_CHARS: usize = 600;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("cannot connect to {server}: {cause}")]
    NotConnected { server: Arc<str>, cause: String },
    #[error("cannot connect to {server} over TLS: {cause}; {advice}")]
    Tls { server: Arc<str>, cause: rustls::Error, advice: &'static str },
    #[error("the connection to {server} was lost before the answer: {cause}")]
    Lost { server: Arc<str>, cause: String },
    #[error("{server} has not answered within {limit:?}")]
    Timeout { server: Arc<str>, limit: Duration },
    #[error(
        "{server} does not speak HTTP as expected: check the port of the URL, and whether it starts with \
         http or https"
    )]
    NotHttp { server: Arc<str> },
    #[error("{server} is not a valid HTTP address: check the URL")]
    Address { server: Arc<str> },
    #[error("{server} answered {status} ({code}): {title}: {detail}{advice}")]
    Problem {
        server: Arc<str>,
        status: u16,
        code: String,
        title: String,
        detail: String,
        advice: &'static str,
    },
    #[error("{server} answered {status}, but not like a TaskHarbor server{advice}")]
    Foreign { server: Arc<str>, status: u16, advice: &'static str },
    #[error(
        "{server} answered {status}: redirects are not followed, write the address{location} into the URL"
    )]
    Redirect { server: Arc<str>, status: u16, location: String },
    #[error("{server} answered with more than {limit} bytes: ask for less in one call")]
    TooLarge { server: Arc<str>, limit: usize },
}

/// The body of a TaskHarbor server's answer to a request that failed.
#[derive(Debug, Deserialize)]
struct Problem {
    code: String,
    title: String,
    #[serde(default)]
    detail: String,
    failure: Option<CallFailure>,
}

impl Failure {
    pub(crate) fn not_connected(server: Arc<str>, cause: &io::Error) -> Self {
        let tls = cause.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(tls) = tls {
            let advice = match tls {
                rustls::Error::InvalidCertificate(_) => {
                    "check the host of the URL, or name the certificates of its authority with ca=FILE"
                }
                _ => "check the port of the URL, and whether it should start with http",
            };
            return Self::Tls { server, cause: tls.clone(), advice };
        }
        // The system's own words repeat its number.
        let words = match cause.raw_os_error() {
            Some(_) => cause.kind().to_string(),
            None => cause.to_string(),
        };
        Self::NotConnected { server, cause: words }
    }

    pub(crate) fn lost(server: Arc<str>, cause: &hyper::Error) -> Self {
        if cause.is_parse() {
            return Self::NotHttp { server };
        }
        Self::Lost { server, cause: taskharbor_core::error::chain(cause) }
    }

    /// Whether trying again may help.
    fn is_passing(&self) -> bool {
        match self {
            Self::NotConnected { .. } | Self::Lost { .. } | Self::Timeout { .. } => true,
            Self::Problem { status, code, .. } => is_passing(*status) && code != "store_failed",
            Self::Foreign { status, .. } => is_passing(*status),
            Self::Tls { .. }
            | Self::NotHttp { .. }
            | Self::Address { .. }
            | Self::Redirect { .. }
            | Self::TooLarge { .. } => false,
        }
    }
}

impl From<Failure> for DriverError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Problem { status: 403, .. } => Self::not_allowed(failure.to_string()),
            failure if failure.is_passing() => Self::unavailable(failure),
            failure => Self::backend(failure),
        }
    }
}

/// A gateway without its server, or a server that has too much to do.
fn is_passing(status: u16) -> bool {
    matches!(status, 408 | 425 | 429 | 502 | 503 | 504)
}

/// The error for an answer that is not a success.
pub(crate) fn judge(
    server: &Arc<str>,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
) -> DriverError {
    let (server, status) = (Arc::clone(server), status.as_u16());
    if (300..400).contains(&status) {
        return Failure::Redirect { server, status, location: location(headers) }.into();
    }
    let Ok(problem) = serde_json::from_slice::<Problem>(body) else {
        return Failure::Foreign { server, status, advice: advice_on_foreign(status) }.into();
    };
    match problem.failure {
        Some(CallFailure::Invalid(invalid)) => DriverError::Invalid(invalid),
        Some(CallFailure::InvalidLeaseDuration) => DriverError::InvalidLeaseDuration,
        Some(CallFailure::ContractViolation) => {
            DriverError::ContractViolation(format!("the driver behind {server}"))
        }
        None => Failure::Problem {
            server,
            status,
            advice: advice(status, &problem.code),
            code: shown(&problem.code),
            title: shown(&problem.title),
            detail: shown(&problem.detail),
        }
        .into(),
    }
}

/// What to do, if the server's own words do not say it for a program.
fn advice(status: u16, code: &str) -> &'static str {
    match (status, code) {
        (401, _) => "; set TASKHARBOR_TOKEN, or add token=… to the URL",
        (403, "foreign_host") => "; or use a host in the URL that the server answers to",
        (403, _) => "; use a token that may do this",
        (404, "unknown_store") => "; name the store in the URL with store=…",
        (404, _) => "; check the path of the URL, and the version of the server",
        (409, "clock_skew") => "; set the clock of this machine, or leave the time to the server",
        _ => "",
    }
}

fn advice_on_foreign(status: u16) -> &'static str {
    match status {
        401 | 407 => ": a proxy before the server asks for credentials",
        413 => {
            ": a proxy before the server takes no request of this size, raise its limit or send less"
        }
        _ if is_passing(status) => ": a proxy before the server cannot reach it",
        _ => ": check host, port and path of the URL",
    }
}

/// Where a redirect leads to, without what may be a secret.
fn location(headers: &HeaderMap) -> String {
    let location = headers.get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let location = location.split(['?', '#']).next().unwrap_or_default();
    let host = location.split_once("://").map_or(location, |(_, rest)| rest);
    if location.is_empty() || host.contains('@') {
        return String::new();
    }
    format!(" it names ({})", shown(location))
}

/// A text of the server, as one line that is not too long.
fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS).map(|it| if it.is_control() { ' ' } else { it }).collect()
}

/// The answer is no JSON of the type that was asked for. What is in it may be a secret, so the message
/// says only where it ends to make sense.
pub(crate) fn unreadable(server: &str, operation: &str, error: &serde_json::Error) -> DriverError {
    let (line, column) = (error.line(), error.column());
    DriverError::ContractViolation(format!(
        "{server} answered {operation} with JSON of another form (line {line}, column {column}): \
         use the same version of TaskHarbor on both sides"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(status: u16, body: &str) -> DriverError {
        let server = Arc::from("http://h");
        let status = StatusCode::from_u16(status).unwrap();
        judge(&server, status, &HeaderMap::new(), body.as_bytes())
    }

    fn problem(code: &str, more: &str) -> String {
        format!(r#"{{"type":"about:blank","code":"{code}","title":"no","detail":"why"{more}}}"#)
    }

    #[test]
    fn what_may_pass_is_unavailable_and_the_rest_says_what_to_do() {
        for status in [408, 429, 502, 503, 504] {
            for body in ["<html>", &problem("busy", "")] {
                let error = judged(status, body);
                assert!(matches!(error, DriverError::Unavailable(_)), "{error}");
            }
        }
        for (status, code, advice) in [
            (401, "invalid_token", "set TASKHARBOR_TOKEN"),
            (403, "needs_workers", "use a token that may do this"),
            (404, "unknown_store", "store=…"),
            (404, "not_found", "check the path"),
            (409, "clock_skew", "set the clock"),
            (413, "too_large", "why"),
            (502, "store_failed", "why"),
            (500, "internal", "why"),
        ] {
            let error = judged(status, &problem(code, ""));
            assert!(matches!(error, DriverError::Backend(_)), "{error}");
            assert!(error.to_string().contains(advice), "{error}");
            assert_eq!(error.is_not_allowed(), status == 403, "{error}");
        }
    }

    #[test]
    fn an_exact_failure_of_the_server_is_passed_on_exactly() {
        let body = problem("invalid", r#","failure":"invalid_lease_duration""#);
        assert!(matches!(judged(400, &body), DriverError::InvalidLeaseDuration));
        let body = problem("broken", r#","failure":"contract_violation""#);
        assert!(matches!(judged(500, &body), DriverError::ContractViolation(_)));
    }

    #[test]
    fn pages_of_others_are_not_repeated() {
        for (status, advice) in [(413, "raise its limit"), (200, "check host"), (500, "check host")]
        {
            let error = judged(status, "<html>hunter2</html>").to_string();
            assert!(error.contains(advice) && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_redirect_is_named_without_secrets() {
        for (to, shown) in [
            ("https://h/login?next=hunter2", "write the address it names (https://h/login) into"),
            ("https://a:hunter2@h/", "write the address into"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(LOCATION, to.parse().unwrap());
            let server = Arc::from("http://h");
            let error = judge(&server, StatusCode::FOUND, &headers, b"").to_string();
            assert!(error.contains(shown) && !error.contains("hunter2"), "{error}");
        }
    }
}
