//! The limit of requests at the same time, and the requests that do not count.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes, HttpBody},
    http::{Method, Request, StatusCode, header},
};
use hyper::body::Frame;
use serde_json::json;
use taskharbor_web::{Access, Role, Web};
use tokio::time::timeout;

use super::{add, get, post, request, token_file};
use crate::rig::Rig;

const SECOND: Duration = Duration::from_secs(1);

/// A body that does not come.
struct Missing;

impl HttpBody for Missing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

/// A POST whose body does not come.
fn unfinished(path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = request(Method::POST, path, headers);
    let json = "application/json".parse().unwrap();
    request.headers_mut().insert(header::CONTENT_TYPE, json);
    *request.body_mut() = Body::new(Missing);
    request
}

/// A body that arrives in parts, one every second.
struct Slow {
    parts: Vec<Bytes>,
    next: Pin<Box<tokio::time::Sleep>>,
}

impl HttpBody for Slow {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.next.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        self.next = Box::pin(tokio::time::sleep(SECOND));
        Poll::Ready(self.parts.pop().map(|part| Ok(Frame::data(part))))
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_for_an_answer_begins_when_the_body_has_arrived() {
    let rig = Rig::with_access(Access::new("ada", Role::Operator));
    let mut parts = vec![Bytes::from(r#"{"type": "email:send", "queue": "mail"}"#)];
    parts.extend((0..15).map(|_| Bytes::from(vec![b' '; 256 * 1024 - 10])));
    let mut sent = post("/v1/main/jobs", "", &[]);
    let next = Box::pin(tokio::time::sleep(SECOND));
    *sent.body_mut() = Body::new(Slow { parts, next });
    let began = tokio::time::Instant::now();
    rig.send(sent).await.ok();
    assert!(began.elapsed() > 15 * SECOND, "longer than an answer may take");
}

#[tokio::test(start_paused = true)]
async fn workers_that_wait_for_jobs_keep_no_other_request_out() {
    let access = Access::new("ada", Role::Admin).with_workers();
    let rig = Rig::with(Web::new().anonymous(access).max_requests(1));
    let reserve = |wait: u64| json!({"queues": {"mail": 1}, "worker": "w", "wait_seconds": wait});
    let (long, short) = (reserve(30), reserve(0));
    let mut waiting = Box::pin(rig.post("work/reserve", &long));
    timeout(SECOND, &mut waiting).await.unwrap_err();
    rig.get("history").await.ok();
    assert_eq!(rig.post("work/reserve", &short).await.ok()["jobs"], json!([]));
    let refused = rig.post("work/reserve", &long).await;
    assert_eq!(refused.problem(), (503, "busy".to_owned()), "as many wait as may");
    let job = json!({"jobs": [{"queue": "mail", "type": "email:send"}]});
    rig.post("work/enqueue", &job).await.ok();
    assert_eq!(waiting.await.ok()["jobs"].as_array().unwrap().len(), 1);
    timeout(SECOND, rig.post("work/reserve", &long)).await.unwrap_err();
    // The permit of a dropped request is free.
    timeout(SECOND, rig.post("work/reserve", &long)).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn callers_without_access_keep_no_request_out() {
    let file = token_file();
    let token = add(&file, "ada", Role::Viewer);
    let rig = Rig::with(Web::new().tokens(file).max_requests(1));
    let mut open = Vec::new();
    for _ in 0..5 {
        let mut signing_in = Box::pin(rig.send(unfinished("/v1/session", &[])));
        timeout(SECOND, &mut signing_in).await.unwrap_err();
        open.push(signing_in);
    }
    let refused = rig.send(unfinished("/v1/main/work/enqueue", &[])).await;
    assert_eq!(refused.problem(), (401, "sign_in".to_owned()));
    let bearer = format!("Bearer {token}");
    rig.send(get("/v1/stores", &[("authorization", &bearer)])).await.ok();
    let sign_in = |token: &str| post("/v1/session", &json!({ "token": token }).to_string(), &[]);
    rig.send(sign_in(&token)).await.ok();
    let large = rig.send(sign_in(&"x".repeat(4 * 1024))).await;
    assert_eq!(large.problem(), (413, "too_large".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn the_probe_is_answered_however_many_requests_there_are() {
    let access = Access::new("ada", Role::Admin).with_workers();
    let rig = Rig::with(Web::new().anonymous(access).max_requests(1));
    let mut open = Box::pin(rig.send(unfinished("/v1/main/work/enqueue", &[])));
    timeout(SECOND, &mut open).await.unwrap_err();
    let refused = rig.get("history").await;
    assert_eq!(refused.problem(), (503, "busy".to_owned()));
    assert_eq!(rig.send(get("/healthz", &[])).await.status, StatusCode::OK);
    drop(open);
    rig.get("history").await.ok();
}
