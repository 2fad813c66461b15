//! In an application of its own, under a prefix.

use axum::{
    Extension, Router,
    body::Body,
    http::{Method, Request, StatusCode, header},
    routing::get as route,
};
use taskharbor::AnyDriver;
use taskharbor_memory::MemoryDriver;
use taskharbor_web::{Access, Role, StoreKind, Stores, Web, router};
use tower::ServiceExt;

use super::{A_JOB, get, post, request, token_file};
use crate::rig::{Reply, Rig};

fn stores() -> Stores {
    let driver = AnyDriver::new(MemoryDriver::new());
    Stores::new().add("main", StoreKind::Memory, &driver).unwrap()
}

async fn send(app: &Router, request: Request<Body>) -> Reply {
    Reply::of(app.clone().oneshot(request).await.unwrap()).await
}

#[tokio::test]
async fn without_access_nothing_is_served_but_the_probe() {
    let rig = Rig::with(Web::new());
    for path in [
        "/",
        "/app.js",
        "/index.html",
        "/nothing/here",
        "/v1/session",
        "/v1/stores",
        "/v1/main/overview",
        "/v1/main/history",
        "/v1/main/events",
        "/v1/main/actions",
        "/v1/none/overview",
        "/v1/nothing",
    ] {
        let reply = rig.send(get(path, &[])).await;
        assert_eq!(reply.problem(), (403, "no_access".to_owned()), "{path}");
    }
    for path in ["/v1/main/work/enqueue", "/v1/main/work/reserve", "/v1/session"] {
        let reply = rig.send(post(path, A_JOB, &[("authorization", "Bearer th_1")])).await;
        assert_eq!(reply.problem(), (403, "no_access".to_owned()), "{path}");
    }
    let probe = rig.send(get("/healthz", &[])).await;
    assert_eq!((probe.status, &*probe.text), (StatusCode::OK, "ok"));
}

/// An application that serves jobs under a prefix, and lets its own user in.
fn application() -> Router {
    let access = Access::new("ada", Role::Viewer);
    let jobs = router(stores(), Web::new()).layer(Extension(access));
    let shop = Router::new().route("/", route(async || "the shop"));
    shop.nest("/nested/jobs", jobs.clone()).nest_service("/admin/jobs", jobs)
}

#[tokio::test]
async fn it_works_under_a_prefix_with_relative_addresses() {
    let app = application();
    for prefix in ["/admin", "/nested"] {
        let reply = send(&app, get(&format!("{prefix}/jobs"), &[])).await;
        assert_eq!(reply.status, StatusCode::PERMANENT_REDIRECT);
        assert_eq!(reply.headers[header::LOCATION], "./jobs/index.html");
        let page = send(&app, get(&format!("{prefix}/jobs/index.html"), &[])).await;
        assert_eq!(page.status, StatusCode::OK, "{prefix}");
        let session = send(&app, get(&format!("{prefix}/jobs/v1/session"), &[])).await.ok();
        assert_eq!(session["name"], "ada");
    }
    let page = send(&app, get("/admin/jobs/", &[])).await;
    assert_eq!(page.status, StatusCode::OK, "{page:?}");
    let mut addresses = Vec::new();
    for part in page.text.split(['<', '>']) {
        for attribute in ["src=\"", "href=\""] {
            let value = part.split_once(attribute).and_then(|(_, rest)| rest.split_once('"'));
            addresses.extend(value.map(|(value, _)| value.to_owned()));
        }
    }
    assert!(addresses.len() > 10, "{addresses:?}");
    for address in addresses {
        assert!(!address.starts_with('/') && !address.contains("://"), "{address}");
        let file = send(&app, get(&format!("/admin/jobs/{address}"), &[])).await;
        assert_eq!(file.status, StatusCode::OK, "{address}");
    }
    let session = send(&app, get("/admin/jobs/v1/session", &[])).await.ok();
    assert_eq!((&session["name"], &session["role"]), (&"ada".into(), &"viewer".into()));
    let overview = send(&app, get("/admin/jobs/v1/main/overview", &[])).await.ok();
    assert_eq!(overview["queues"], serde_json::json!([]));
    // What is beside it belongs to the application.
    assert_eq!(send(&app, get("/", &[])).await.text, "the shop");
    assert_eq!(send(&app, get("/v1/session", &[])).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_access_of_the_application_is_checked_like_any_other() {
    let app = application();
    let reply = send(&app, post("/admin/jobs/v1/main/work/enqueue", A_JOB, &[])).await;
    assert_eq!(reply.problem(), (403, "needs_workers".to_owned()));
    // Signing in is refused if access comes from the application.
    let reply = send(&app, post("/admin/jobs/v1/session", r#"{"token": "th_1"}"#, &[])).await;
    assert_eq!(reply.problem(), (409, "no_tokens".to_owned()));
}

#[tokio::test]
async fn a_session_works_under_a_prefix() {
    let file = token_file();
    let token = super::add(&file, "ada", Role::Viewer);
    let jobs = router(stores(), Web::new().tokens(file));
    let app = Router::new().nest("/admin/jobs", jobs);
    let body = format!(r#"{{"token": "{token}"}}"#);
    let signed_in = send(&app, post("/admin/jobs/v1/session", &body, &[])).await;
    let cookie = signed_in.headers[header::SET_COOKIE].to_str().unwrap().to_owned();
    assert!(!cookie.contains("Path="), "{cookie}");
    let pair = cookie.split(';').next().unwrap();
    let shown = send(&app, get("/admin/jobs/v1/session", &[("cookie", pair)])).await.ok();
    assert_eq!(shown["name"], "ada");
    let ended = request(Method::DELETE, "/admin/jobs/v1/session", &[("cookie", pair)]);
    let ended = send(&app, ended).await;
    let cookie = ended.headers[header::SET_COOKIE].to_str().unwrap().to_owned();
    assert!(cookie.contains("=; Max-Age=0; ") && !cookie.contains("Path="), "{cookie}");
}
