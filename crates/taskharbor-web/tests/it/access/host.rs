//! Requests that a page of another site has a browser send.

use axum::http::StatusCode;
use serde_json::json;
use taskharbor_web::{Access, Role, Web};

use super::{A_JOB, add, get, post, token_file};
use crate::rig::Rig;

fn rig() -> Rig {
    let access = Access::new("ada", Role::Admin).with_workers();
    Rig::with(
        Web::new().anonymous(access).allow_host("localhost").allow_host("jobs.example.com:8443"),
    )
}

async fn stored(rig: &Rig) -> usize {
    rig.client.queue("mail").counts().await.unwrap().states.total()
}

#[tokio::test]
async fn other_hosts_are_refused_but_for_probes() {
    let rig = rig();
    for host in ["localhost", "LOCALHOST:7450", "localhost:1", "jobs.example.com:8443"] {
        assert_eq!(rig.send(get("/", &[("host", host)])).await.status, StatusCode::OK, "{host}");
        rig.send(get("/v1/stores", &[("host", host)])).await.ok();
    }
    for host in [
        "evil.example",
        "localhost.evil.example",
        "evil.example:7450",
        "jobs.example.com",
        "jobs.example.com:80",
        "localhost@evil.example",
        "",
    ] {
        for path in ["/", "/app.js", "/v1/stores", "/v1/main/overview", "/nothing"] {
            let reply = rig.send(get(path, &[("host", host)])).await;
            assert_eq!(reply.problem(), (403, "foreign_host".to_owned()), "{host} {path}");
        }
        let probe = rig.send(get("/healthz", &[("host", host)])).await;
        assert_eq!(probe.status, StatusCode::OK);
    }
}

#[tokio::test]
async fn a_program_with_a_token_is_answered_under_any_name() {
    let file = token_file();
    let token = format!("Bearer {}", add(&file, "ada", Role::Viewer));
    let rig = Rig::with(Web::new().tokens(file).allow_host("localhost"));
    let of_program = [("host", "10.0.0.7:7450"), ("authorization", &*token)];
    rig.send(get("/v1/stores", &of_program)).await.ok();
    // Headers that browsers add: the token may be one that a page was given.
    for of_browser in
        [("origin", "http://10.0.0.7:7450"), ("sec-fetch-site", "same-origin"), ("cookie", "a=b")]
    {
        let headers = [&of_program[..], &[of_browser]].concat();
        let reply = rig.send(get("/v1/stores", &headers)).await;
        assert_eq!(reply.problem(), (403, "foreign_host".to_owned()), "{of_browser:?}");
    }
    let wrong = [("host", "10.0.0.7:7450"), ("authorization", "Bearer th_0")];
    assert_eq!(
        rig.send(get("/v1/stores", &wrong)).await.problem(),
        (401, "invalid_token".to_owned())
    );
    for without in ["", "Basic dTpw"] {
        let headers = [("host", "10.0.0.7:7450"), ("authorization", without)];
        for path in ["/", "/v1/stores", "/v1/openapi.json"] {
            let reply = rig.send(get(path, &headers)).await;
            assert_eq!(reply.problem(), (403, "foreign_host".to_owned()), "{path} {without:?}");
        }
    }
    let sign_in = json!({ "token": token.trim_start_matches("Bearer ") }).to_string();
    let reply = rig.send(post("/v1/session", &sign_in, &[("host", "10.0.0.7:7450")])).await;
    assert_eq!(reply.problem(), (403, "foreign_host".to_owned()), "it comes from a browser");
}

#[tokio::test]
async fn without_tokens_a_header_opens_no_other_host() {
    let rig = rig();
    let headers = [("host", "evil.example"), ("authorization", "Bearer th_0")];
    let reply = rig.send(get("/v1/stores", &headers)).await;
    assert_eq!(reply.problem(), (403, "foreign_host".to_owned()));
}

#[tokio::test]
async fn changes_from_other_sites_are_refused_and_change_nothing() {
    let rig = rig();
    let path = "/v1/main/work/enqueue";
    for (headers, expected) in [
        (&[("origin", "https://evil.example")][..], (403, "foreign_origin")),
        (&[("origin", "null")], (403, "foreign_origin")),
        (
            &[("origin", "http://localhost:7451"), ("host", "localhost:7450")],
            (403, "foreign_origin"),
        ),
        (&[("sec-fetch-site", "cross-site")], (403, "foreign_origin")),
        (
            &[("sec-fetch-site", "same-site"), ("origin", "http://localhost")],
            (403, "foreign_origin"),
        ),
        (&[("content-type", "text/plain")], (415, "json_expected")),
        (&[("content-type", "application/x-www-form-urlencoded")], (415, "json_expected")),
        (&[("content-type", "multipart/form-data; boundary=x")], (415, "json_expected")),
    ] {
        let mut headers = headers.to_vec();
        if headers.iter().all(|(name, _)| *name != "host") {
            headers.push(("host", "localhost"));
        }
        let reply = rig.send(post(path, A_JOB, &headers)).await;
        let (status, code) = reply.problem();
        assert_eq!((status, &*code), expected, "{headers:?}");
    }
    assert_eq!(stored(&rig).await, 0);
    let own = [("host", "localhost:7450"), ("origin", "http://localhost:7450")];
    rig.send(post(path, A_JOB, &own)).await.ok();
    let program = [("host", "localhost:7450")];
    rig.send(post(path, A_JOB, &program)).await.ok();
    assert_eq!(stored(&rig).await, 2);
}

#[tokio::test]
async fn no_answer_allows_other_sites_to_read_it() {
    let rig = rig();
    let headers = [("host", "localhost"), ("origin", "https://evil.example")];
    for path in ["/v1/stores", "/v1/main/overview", "/", "/app.js"] {
        let reply = rig.send(get(path, &headers)).await;
        let allowing = reply.headers.keys().filter(|it| it.as_str().starts_with("access-control-"));
        assert_eq!(allowing.count(), 0, "{path}");
    }
}

#[tokio::test]
async fn other_sites_get_no_answers_and_no_streams() {
    let rig = rig();
    let foreign: [&[(&str, &str)]; 4] = [
        &[("origin", "https://evil.example")],
        &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")],
        &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")],
        &[("sec-fetch-site", "same-site"), ("sec-fetch-mode", "no-cors")],
    ];
    for headers in foreign {
        let headers = [headers, &[("host", "localhost")]].concat();
        for path in ["/v1/stores", "/v1/main/jobs", "/v1/main/events", "/v1/openapi.json"] {
            let reply = rig.send(get(path, &headers)).await;
            assert_eq!(reply.problem(), (403, "foreign_origin".to_owned()), "{path} {headers:?}");
        }
        // A link leads to a page.
        assert_eq!(rig.send(get("/", &headers)).await.status, StatusCode::OK);
    }
    for site in ["same-origin", "none"] {
        let headers = [("host", "localhost"), ("sec-fetch-site", site)];
        let stores = rig.send(get("/v1/stores", &headers)).await.ok();
        assert_eq!(stores, json!([{"name": "main", "kind": "memory"}]));
    }
}
