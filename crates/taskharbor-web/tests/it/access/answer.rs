//! The headers that every answer has.

use axum::{
    body::Body,
    http::{Method, Request, StatusCode, header},
};
use taskharbor_web::{Access, Role, Web};

use super::{A_JOB, get, post, request, token_file, with_tokens};
use crate::rig::{Reply, Rig};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

fn check(reply: &Reply, what: &str) {
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("x-frame-options", "DENY"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        assert_eq!(reply.headers.get(name).unwrap(), value, "{what}");
    }
    assert!(reply.headers.contains_key(header::CACHE_CONTROL), "{what}");
    assert!(!reply.headers.contains_key(header::SERVER), "{what}");
}

#[tokio::test]
async fn every_answer_has_them() {
    let rig = Rig::new();
    let page = rig.send(get("/", &[])).await;
    let etag = page.headers[header::ETAG].to_str().unwrap().to_owned();
    let long = format!("/v1/main/overview?{}", "x".repeat(9_000));
    let cases: [(Request<Body>, u16); 14] = [
        (get("/", &[]), 200),
        (get("/", &[("if-none-match", &etag)]), 304),
        (get("/app.js", &[]), 200),
        (get("/vendor/preact.js", &[]), 200),
        (get("/style.css", &[]), 200),
        (request(Method::POST, "/app.js", &[]), 405),
        (get("/nothing", &[]), 404),
        (get("/../Cargo.toml", &[]), 404),
        (get("/v1/nothing", &[]), 404),
        (get("/v1/none/overview", &[]), 404),
        (get("/v1/stores", &[]), 200),
        (request(Method::PUT, "/v1/stores", &[]), 405),
        (post("/v1/main/work/enqueue", A_JOB, &[("origin", "null")]), 403),
        (get(&long, &[]), 414),
    ];
    for (request, status) in cases {
        let what = format!(
            "{} {}",
            request.method(),
            &request.uri().to_string()[..12.min(request.uri().to_string().len())]
        );
        let reply = rig.send(request).await;
        assert_eq!(reply.status, StatusCode::from_u16(status).unwrap(), "{what}");
        check(&reply, &what);
    }
    check(&rig.send(get("/healthz", &[])).await, "the probe");
    let closed = with_tokens(&token_file());
    check(&closed.send(get("/v1/stores", &[])).await, "no token");
    let foreign = Rig::with(Web::new().anonymous(Access::new("a", Role::Viewer)).allow_host("b"));
    check(&foreign.send(get("/", &[])).await, "another host");
    check(&Rig::with(Web::new()).send(get("/", &[])).await, "no access");
}

#[tokio::test]
async fn what_the_api_answers_is_kept_nowhere() {
    let rig = Rig::new();
    for path in ["/v1/stores", "/v1/session", "/v1/main/overview", "/v1/nothing", "/healthz"] {
        let reply = rig.send(get(path, &[])).await;
        assert_eq!(reply.headers[header::CACHE_CONTROL], "no-store", "{path}");
    }
    for path in ["/", "/app.js"] {
        let reply = rig.send(get(path, &[])).await;
        assert_eq!(reply.headers[header::CACHE_CONTROL], "no-cache", "{path}: it has an etag");
    }
}

#[tokio::test]
async fn a_wrong_method_is_answered_with_the_right_ones() {
    let rig = Rig::new();
    for (method, path, allowed) in [
        (Method::POST, "/v1/stores", "GET,HEAD"),
        (Method::PATCH, "/v1/main/overview", "GET,HEAD"),
        (Method::GET, "/v1/main/work/enqueue", "POST"),
    ] {
        let reply = rig.send(request(method, path, &[])).await;
        assert_eq!(reply.problem(), (405, "method_not_allowed".to_owned()), "{path}");
        assert_eq!(reply.headers[header::ALLOW], allowed, "{path}");
    }
}
