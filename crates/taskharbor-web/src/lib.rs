//! The HTTP server of TaskHarbor: the dashboard, a JSON API, and access for workers and drivers over HTTP.
//!
//! [`router`] makes an axum router from [`Stores`] and a configuration, [`Web`]. Mount it under any prefix of
//! an application, or run it as a server of its own with [`serve`].

mod access;
mod action_log;
mod app;
mod call;
mod config;
mod contract;
mod description;
mod endpoint;
mod event_stream;
mod filter;
mod guard;
mod page;
mod permit;
mod poll;
mod problem;
mod server;
mod session;
mod shared_answer;
mod sweep;
mod token;
mod view;
mod work;

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Router,
    extract::{RawPathParams, Request, rejection::RawPathParamsRejection},
    http::{Method, StatusCode},
    middleware::Next,
    response::IntoResponse,
    routing::{MethodFilter, MethodRouter, on},
};

use app::App;
use endpoint::Endpoint;
use problem::Problem;

pub use access::{Access, Role};
pub use action_log::ActionRecord;
pub use app::{InvalidStore, LateStore, StoreKind, Stores};
pub use config::Web;
pub use server::{ServeError, serve};
pub use token::{StoredToken, TokenFile, TokenFileError};

/// The program in the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/dashboard.md")]
struct Guide;

/// The pages, the JSON API and the faces for drivers and workers, of these stores.
///
/// An application mounts it under any prefix, behind a layer of its own that says who each caller is: see
/// [`Access`]. Without that layer nothing is served. `Router::nest_service` also matches the prefix with a
/// slash at its end, which `Router::nest` does not.
///
/// ```
/// use axum::{Extension, Router};
/// use taskharbor_web::{Access, Role, Stores, Web, router};
///
/// # fn mount(stores: Stores) -> Router {
/// let jobs = router(stores, Web::new()).layer(Extension(Access::new("ada", Role::Viewer)));
/// Router::new().nest_service("/admin/jobs", jobs)
/// # }
/// ```
pub fn router(stores: Stores, config: Web) -> Router {
    routes(&App::new(stores, config))
}

fn routes(app: &Arc<App>) -> Router {
    let mut paths: BTreeMap<String, MethodRouter> = BTreeMap::new();
    for endpoint in endpoint::table() {
        let path = endpoint.path.to_string();
        let routed = paths.remove(&path).unwrap_or_else(|| {
            MethodRouter::new().fallback(|| async {
                Problem::new(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "method_not_allowed",
                    "the method is not allowed",
                    "this address has other methods: the header \"allow\" names them",
                )
                .into_response()
            })
        });
        paths.insert(path, add(routed, endpoint, app));
    }
    let routes = paths
        .into_iter()
        .fold(Router::new(), |router, (path, methods)| router.route(&path, methods));
    let app = Arc::clone(app);
    let around = move |request: Request, next: Next| guard::around(Arc::clone(&app), request, next);
    routes.fallback(page::answer).layer(axum::middleware::from_fn(around))
}

fn add(routed: MethodRouter, endpoint: Endpoint, app: &Arc<App>) -> MethodRouter {
    let filter = match endpoint.method {
        Method::POST => MethodFilter::POST,
        Method::DELETE => MethodFilter::DELETE,
        _ => MethodFilter::GET,
    };
    let (endpoint, app) = (Arc::new(endpoint), Arc::clone(app));
    routed.merge(on(
        filter,
        move |params: Result<RawPathParams, RawPathParamsRejection>, request: Request| {
            guard::answer(Arc::clone(&app), Arc::clone(&endpoint), params, request)
        },
    ))
}
