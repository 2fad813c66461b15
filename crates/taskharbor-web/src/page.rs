//! The pages: files that are part of the program, under relative addresses, so that they work under any
//! prefix.

use std::sync::{Arc, LazyLock};

use axum::{
    extract::{OriginalUri, Request},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};

use crate::{problem::Problem, token};

/// Every file of the pages: its path, its bytes, and these compressed with gzip.
const FILES: &[(&str, &[u8], &[u8])] = include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// A file, as it is answered.
struct Page {
    path: &'static str,
    bytes: &'static [u8],
    compressed: &'static [u8],
    media_type: HeaderValue,
    etag: HeaderValue,
}

static PAGES: LazyLock<Arc<[Page]>> = LazyLock::new(|| {
    let page = |(path, bytes, compressed): &(&'static str, &'static [u8], &'static [u8])| {
        let digest = token::hex(&token::digest(bytes)[..16]);
        Page {
            path,
            bytes,
            compressed,
            media_type: HeaderValue::from_static(media_type(path)),
            // Hexadecimal digits in quotes are a valid header.
            // Weak, because it stands for the file with and without compression.
            etag: HeaderValue::try_from(format!("W/\"{digest}\""))
                .unwrap_or(HeaderValue::from_static("W/\"0\"")),
        }
    };
    FILES.iter().map(page).collect()
});

fn media_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "json" => "application/json",
        "woff2" => "font/woff2",
        _ => "text/plain; charset=utf-8",
    }
}

/// Answers what no endpoint answers: a file of the pages, or that nothing is here.
pub(crate) async fn answer(request: Request) -> Response {
    let path = request.uri().path();
    if path.starts_with("/v1/") {
        return nothing_here().into_response();
    }
    let path = path.trim_start_matches('/');
    let path = if path.is_empty() { "index.html" } else { path };
    let Some(page) = PAGES.iter().find(|page| page.path == path) else {
        return nothing_here().into_response();
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Problem::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method_not_allowed",
            "the method is not allowed",
            "a page answers GET and HEAD only",
        )
        .into_response();
    }
    if path == "index.html"
        && let Some(OriginalUri(uri)) = request.extensions().get()
        && let Some(redirect) = with_file(uri.path())
    {
        return redirect;
    }
    if is_known(request.headers(), &page.etag) {
        return (StatusCode::NOT_MODIFIED, [(header::ETAG, page.etag.clone())]).into_response();
    }
    let headers = [
        (header::CONTENT_TYPE, page.media_type.clone()),
        (header::ETAG, page.etag.clone()),
        // The browser asks each time, and mostly hears that nothing has changed.
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::VARY, HeaderValue::from_static("accept-encoding")),
    ];
    if takes_gzip(request.headers()) {
        let encoding = [(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"))];
        return (headers, encoding, page.compressed).into_response();
    }
    (headers, page.bytes).into_response()
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|accepted| {
        accepted.split(',').any(|it| {
            let (name, quality) = it.split_once(';').unwrap_or((it, ""));
            name.trim() == "gzip" && !matches!(quality.trim(), "q=0" | "q=0.0")
        })
    })
}

/// Relative addresses need the page under an address with a slash after the prefix. `Router::nest` does not
/// pass the prefix and a slash on, so the file is named.
fn with_file(path: &str) -> Option<Response> {
    if path.ends_with('/') || path.ends_with("/index.html") {
        return None;
    }
    // The last part alone, relative: it cannot lead to another host.
    let last = path.rsplit('/').next()?;
    let location = HeaderValue::try_from(format!("./{last}/index.html")).ok()?;
    Some((StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, location)]).into_response())
}

fn is_known(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let given = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    given.is_some_and(|given| given.split(',').any(|it| it.trim().as_bytes() == etag.as_bytes()))
}

fn nothing_here() -> Problem {
    Problem::not_found(
        "not_found",
        "nothing is here",
        "no page and no endpoint has this address: v1/openapi.json lists the endpoints",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_compressed_for_clients_that_accept_it() {
        let takes = |accepted: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(accepted));
            takes_gzip(&headers)
        };
        assert!(takes("gzip") && takes("deflate, gzip;q=0.5, br"));
        assert!(!takes("") && !takes("br") && !takes("gzip;q=0, identity"));
        assert!(!takes_gzip(&HeaderMap::new()));
    }
}
