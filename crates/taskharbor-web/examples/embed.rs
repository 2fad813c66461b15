//! A shop that shows its jobs to those of its own users who may see them.
//!
//! ```sh
//! cargo run -p taskharbor-web --example embed
//! curl -H 'cookie: user=ada' http://127.0.0.1:7451/admin/jobs/v1/session
//! ```
//!
//! The layer `who` is the whole of the integration: it says who a caller is and what it may do. A request
//! for which it says nothing is refused.

use std::error::Error;

use axum::{
    Router,
    extract::Request,
    http::{HeaderMap, header},
    middleware::{Next, from_fn},
    response::Response,
    routing::get,
};
use taskharbor::AnyDriver;
use taskharbor_memory::MemoryDriver;
use taskharbor_web::{Access, Role, StoreKind, Stores, Web, router};
use tokio::net::TcpListener;

/// The name of the user who has signed in to the shop. A real one checks a session.
fn user(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get(header::COOKIE)?.to_str().ok()?;
    cookies.split(';').find_map(|cookie| cookie.trim().strip_prefix("user="))
}

/// What a user of the shop may do with its jobs.
fn access(user: &str) -> Option<Access> {
    match user {
        "ada" => Some(Access::new(user, Role::Admin).with_payloads()),
        "otto" => Some(Access::new(user, Role::Viewer)),
        _ => None,
    }
}

/// Tells the dashboard who the caller is.
async fn who(mut request: Request, next: Next) -> Response {
    if let Some(access) = user(request.headers()).and_then(access) {
        request.extensions_mut().insert(access);
    }
    next.run(request).await
}

/// The shop with its jobs under a prefix.
fn shop(driver: &AnyDriver) -> Result<Router, Box<dyn Error>> {
    let stores = Stores::new().add("main", StoreKind::Memory, driver)?;
    let jobs = router(stores, Web::new()).layer(from_fn(who));
    Ok(Router::new().route("/", get(async || "the shop")).nest_service("/admin/jobs", jobs))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let driver = AnyDriver::new(MemoryDriver::new());
    let listener = TcpListener::bind("127.0.0.1:7451").await?;
    axum::serve(listener, shop(&driver)?).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::StatusCode};
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn a_user_sees_the_jobs_if_the_shop_says_so() {
        let shop = shop(&AnyDriver::new(MemoryDriver::new())).unwrap();
        for (cookie, status) in [
            ("theme=dark; user=ada", StatusCode::OK),
            ("user=otto", StatusCode::OK),
            ("user=eve", StatusCode::FORBIDDEN),
            ("", StatusCode::FORBIDDEN),
        ] {
            for path in ["/admin/jobs/", "/admin/jobs/v1/main/overview"] {
                let request = Request::get(path).header(header::COOKIE, cookie);
                let request = request.body(Body::empty()).unwrap();
                let answer = shop.clone().oneshot(request).await.unwrap();
                assert_eq!(answer.status(), status, "{cookie} {path}");
            }
        }
        let request = Request::get("/").body(Body::empty()).unwrap();
        assert_eq!(shop.oneshot(request).await.unwrap().status(), StatusCode::OK);
    }
}
