//! Access to the server, and the security headers of every answer.

mod answer;
mod embedded;
mod host;
mod permit;
mod role;
mod secret;
mod session;
mod stream;
mod token;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use axum::{
    body::Body,
    http::{Method, Request, header},
};
use taskharbor_web::{Access, Role, TokenFile, Web};

use crate::rig::Rig;

/// A file of tokens that is not there yet.
fn token_file() -> TokenFile {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path: PathBuf =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("access-{number}.json"));
    // They may be left from an earlier run.
    let _ = fs::remove_file(&path);
    let _ = fs::remove_file(path.with_extension("json.new"));
    TokenFile::new(path)
}

/// Adds a token for this name and role.
fn add(file: &TokenFile, name: &str, role: Role) -> String {
    file.add(&Access::new(name, role), "2026-01-01T00:00:00Z".to_owned()).unwrap()
}

/// A server that takes the tokens in this file.
fn with_tokens(file: &TokenFile) -> Rig {
    Rig::with(Web::new().tokens(file.clone()))
}

/// A request with these headers, beside the host.
fn request(method: Method, path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let mut builder = Request::builder().method(method).uri(path);
    if headers.iter().all(|(name, _)| *name != "host") {
        builder = builder.header(header::HOST, "127.0.0.1:7450");
    }
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(Body::empty()).unwrap()
}

fn get(path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    request(Method::GET, path, headers)
}

/// A POST of this JSON.
fn post(path: &str, json: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let mut sent = request(Method::POST, path, headers);
    if !sent.headers().contains_key(header::CONTENT_TYPE) {
        sent.headers_mut().insert(header::CONTENT_TYPE, "application/json".parse().unwrap());
    }
    *sent.body_mut() = Body::from(json.to_owned());
    sent
}

/// The body of a request that stores a job through the worker face.
const A_JOB: &str =
    r#"{"jobs": [{"queue": "mail", "type": "email:send", "payload": {"to": "ada"}}]}"#;
