//! Signing in from a browser.

use std::time::Duration;

use axum::http::{Method, StatusCode, header};
use taskharbor_web::{Access, Role, TokenFile, Web};

use super::{add, get, post, request, token_file, with_tokens};
use crate::rig::{Reply, Rig};

const HOUR: Duration = Duration::from_secs(3_600);

async fn sign_in(rig: &Rig, token: &str, headers: &[(&str, &str)]) -> Reply {
    rig.send(post("/v1/session", &format!(r#"{{"token": "{token}"}}"#), headers)).await
}

fn set_cookie(reply: &Reply) -> String {
    reply.headers[header::SET_COOKIE].to_str().unwrap().to_owned()
}

/// What the browser sends from then on.
fn pair(reply: &Reply) -> String {
    set_cookie(reply).split(';').next().unwrap().to_owned()
}

async fn who(rig: &Rig, cookie: &str) -> Reply {
    rig.send(get("/v1/session", &[("cookie", cookie)])).await
}

fn rig_of_ada() -> (TokenFile, String, Rig) {
    let file = token_file();
    let token = add(&file, "ada", Role::Operator);
    let rig = with_tokens(&file);
    (file, token, rig)
}

#[tokio::test]
async fn a_person_signs_in_and_out() {
    let (_file, token, rig) = rig_of_ada();
    let signed_in = sign_in(&rig, &token, &[]).await;
    let session = signed_in.ok();
    assert_eq!((&session["name"], &session["signed_in"]), (&"ada".into(), &true.into()));
    let cookie = set_cookie(&signed_in);
    let attributes = cookie.split_once(';').unwrap().1;
    // A proxy may have stripped a prefix from the path, so the browser takes that of its own request.
    assert_eq!(attributes, " Max-Age=43200; HttpOnly; SameSite=Strict");
    assert!(!cookie.contains(token.strip_prefix("th_").unwrap()));
    let pair = pair(&signed_in);
    assert!(pair.starts_with("taskharbor_session_7450="), "ports share cookies: {pair}");
    let shown = who(&rig, &format!("theme=dark; {pair}; other=1")).await.ok();
    assert_eq!((&shown["role"], &shown["signed_in"]), (&"operator".into(), &true.into()));
    let out = rig.send(request(Method::DELETE, "/v1/session", &[("cookie", &pair)])).await;
    assert_eq!(out.status, StatusCode::OK);
    let cookie = set_cookie(&out);
    assert_eq!(cookie.split_once(';').unwrap().1, " Max-Age=0; HttpOnly; SameSite=Strict");
    assert_eq!(who(&rig, &pair).await.problem(), (401, "sign_in".to_owned()));
}

#[tokio::test]
async fn the_cookie_is_secure_where_the_browser_came_over_https() {
    let (_file, token, rig) = rig_of_ada();
    let secure: [&[(&str, &str)]; 2] = [
        &[("origin", "https://127.0.0.1:7450")],
        &[("x-forwarded-proto", "https"), ("sec-fetch-site", "same-origin")],
    ];
    for headers in secure {
        let cookie = set_cookie(&sign_in(&rig, &token, headers).await);
        assert!(cookie.ends_with("; Secure"), "{headers:?}: {cookie}");
    }
    let plain = set_cookie(&sign_in(&rig, &token, &[("origin", "http://127.0.0.1:7450")]).await);
    assert!(!plain.contains("Secure"), "{plain}");
}

#[tokio::test]
async fn credentials_for_a_proxy_are_not_in_the_way() {
    let (_file, token, rig) = rig_of_ada();
    let basic = ("authorization", "Basic dTpw");
    let cookie = pair(&sign_in(&rig, &token, &[basic]).await);
    let shown = rig.send(get("/v1/session", &[("cookie", &cookie), basic])).await.ok();
    assert_eq!(shown["name"], "ada");
    // What is open to all is so with credentials of any kind.
    for authorization in [basic, ("authorization", "Bearer th_0")] {
        assert_eq!(rig.send(get("/healthz", &[authorization])).await.status, StatusCode::OK);
        sign_in(&rig, &token, &[authorization]).await.ok();
    }
    let out = request(Method::DELETE, "/v1/session", &[("cookie", &cookie), basic]);
    assert_eq!(rig.send(out).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_wrong_token_begins_no_session() {
    let (_file, token, rig) = rig_of_ada();
    for wrong in ["", "th_", "th_0", &token[1..], "\\u0000"] {
        let reply = sign_in(&rig, wrong, &[]).await;
        assert_eq!(reply.problem(), (401, "invalid_token".to_owned()), "{wrong}");
        assert!(!reply.headers.contains_key(header::SET_COOKIE));
    }
    for body in ["{}", "[]", "{\"token\": 1}", "{\"token\": \"a\", \"role\": \"admin\"}", "x"] {
        let reply = rig.send(post("/v1/session", body, &[])).await;
        assert_eq!(reply.problem(), (400, "invalid_request".to_owned()), "{body}");
    }
    for cookie in
        ["taskharbor_session_7450=", "taskharbor_session_7450=0", "taskharbor_session_7450"]
    {
        assert_eq!(who(&rig, cookie).await.problem(), (401, "sign_in".to_owned()), "{cookie}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_ends_after_twelve_hours_without_a_request() {
    let (_file, token, rig) = rig_of_ada();
    let cookie = pair(&sign_in(&rig, &token, &[]).await);
    for _ in 0..3 {
        tokio::time::advance(11 * HOUR).await;
        who(&rig, &cookie).await.ok();
    }
    tokio::time::advance(12 * HOUR).await;
    assert_eq!(who(&rig, &cookie).await.problem(), (401, "sign_in".to_owned()));
}

#[tokio::test]
async fn a_session_ends_with_its_token_also_if_the_name_is_given_again() {
    let (file, token, rig) = rig_of_ada();
    let cookie = pair(&sign_in(&rig, &token, &[]).await);
    file.remove("ada").unwrap();
    assert_eq!(who(&rig, &cookie).await.status, StatusCode::UNAUTHORIZED);
    add(&file, "ada", Role::Admin);
    assert_eq!(who(&rig, &cookie).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn another_site_cannot_sign_a_browser_in_or_out() {
    let (_file, token, rig) = rig_of_ada();
    let cookie = pair(&sign_in(&rig, &token, &[]).await);
    let foreign = [("origin", "https://evil.example"), ("cookie", &cookie)];
    let reply = sign_in(&rig, &token, &foreign).await;
    assert_eq!(reply.problem(), (403, "foreign_origin".to_owned()));
    let reply = rig.send(request(Method::DELETE, "/v1/session", &foreign)).await;
    assert_eq!(reply.problem(), (403, "foreign_origin".to_owned()));
    who(&rig, &cookie).await.ok();
}

#[tokio::test]
async fn there_is_nothing_to_sign_in_with_where_all_have_one_access() {
    let rig = Rig::with(Web::new().anonymous(Access::new("local", Role::Viewer)));
    let reply = sign_in(&rig, "th_0", &[]).await;
    assert_eq!(reply.problem(), (409, "no_tokens".to_owned()));
    let shown = who(&rig, "taskharbor_session_7450=1").await.ok();
    assert_eq!((&shown["name"], &shown["signed_in"]), (&"local".into(), &false.into()));
}
