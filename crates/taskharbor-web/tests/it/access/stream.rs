//! Streams end with the access of their callers.

use std::{fs, future::poll_fn, pin::Pin, time::Duration};

use axum::{
    body::{Body, HttpBody},
    http::{Method, Request, StatusCode, header},
};
use taskharbor_web::{Access, Role};
use tokio::time::{Instant, advance, timeout};

use super::{add, get, post, request, token_file, with_tokens};
use crate::rig::Rig;

const SECOND: Duration = Duration::from_secs(1);
const EVENTS: &str = "/v1/main/events";
const WATCHED: &str = r#"{"queues": ["mail"]}"#;

async fn open(rig: &Rig, request: Request<Body>) -> Body {
    let response = rig.open(request).await;
    assert_eq!(response.status(), StatusCode::OK);
    response.into_body()
}

/// Reads a stream until it ends.
async fn end(body: &mut Body) {
    while poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await.is_some() {}
}

async fn is_open(body: &mut Body, seconds: u32) -> bool {
    timeout(SECOND * seconds, end(body)).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_when_its_token_is_removed() {
    let file = token_file();
    let worker = file.add(&Access::new("w", Role::Viewer).with_workers(), String::new()).unwrap();
    let other = add(&file, "otto", Role::Viewer);
    let rig = with_tokens(&file);
    let bearer = [("authorization", &*format!("Bearer {worker}"))];
    let mut events = open(&rig, get(EVENTS, &bearer)).await;
    let mut watch = open(&rig, post("/v1/main/driver/watch", WATCHED, &bearer)).await;
    let bearer = [("authorization", &*format!("Bearer {other}"))];
    let mut others = open(&rig, get(EVENTS, &bearer)).await;
    assert!(is_open(&mut events, 60).await && is_open(&mut watch, 60).await);
    file.remove("w").unwrap();
    let removed = Instant::now();
    end(&mut events).await;
    end(&mut watch).await;
    assert!(removed.elapsed() <= 15 * SECOND, "{:?}", removed.elapsed());
    assert!(is_open(&mut others, 60).await, "the other token is valid");
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_when_its_caller_loses_the_permission_for_it() {
    let file = token_file();
    let worker = file.add(&Access::new("w", Role::Viewer).with_workers(), String::new()).unwrap();
    let rig = with_tokens(&file);
    let bearer = [("authorization", &*format!("Bearer {worker}"))];
    let mut watch = open(&rig, post("/v1/main/driver/watch", WATCHED, &bearer)).await;
    let mut events = open(&rig, get(EVENTS, &bearer)).await;
    let text = fs::read_to_string(file.path()).unwrap();
    let less = text.replace("\"workers\": true", "\"workers\": false");
    assert_ne!(text, less);
    fs::write(file.path(), less).unwrap();
    assert!(!is_open(&mut watch, 16).await);
    assert!(is_open(&mut events, 60).await, "this one takes no permission");
}

/// A session: what the browser sends with each request.
async fn sign_in(rig: &Rig, token: &str) -> String {
    let body = format!(r#"{{"token": "{token}"}}"#);
    let reply = rig.send(post("/v1/session", &body, &[])).await;
    let cookie = reply.headers[header::SET_COOKIE].to_str().unwrap();
    cookie.split(';').next().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_its_session() {
    let file = token_file();
    let token = add(&file, "ada", Role::Viewer);
    let rig = with_tokens(&file);
    let pair = sign_in(&rig, &token).await;
    let cookie = [("cookie", &*pair)];
    let mut events = open(&rig, get(EVENTS, &cookie)).await;
    assert!(is_open(&mut events, 60).await);
    rig.send(request(Method::DELETE, "/v1/session", &cookie)).await.ok();
    assert!(!is_open(&mut events, 16).await);
}

#[tokio::test(start_paused = true)]
async fn a_stream_does_not_keep_its_session_open() {
    let file = token_file();
    let token = add(&file, "ada", Role::Viewer);
    let rig = with_tokens(&file);
    let pair = sign_in(&rig, &token).await;
    let cookie = [("cookie", &*pair)];
    let mut events = open(&rig, get(EVENTS, &cookie)).await;
    advance(11 * 3_600 * SECOND).await;
    assert!(is_open(&mut events, 60).await);
    advance(3_600 * SECOND).await;
    assert!(!is_open(&mut events, 16).await);
    assert_eq!(rig.send(get("/v1/session", &cookie)).await.problem().0, 401);
}
