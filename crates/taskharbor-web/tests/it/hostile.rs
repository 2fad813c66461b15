//! Bad input at every endpoint of the API: it is refused with a problem document, and changes nothing.
//!
//! The endpoints come from the description that the server gives of itself, so a new one is covered as soon
//! as it exists.

mod sample;
mod site;

use std::{path::Path, time::Duration};

use axum::http::{Method, header};
use serde_json::{Value, json};
use taskharbor::{AnyDriver, Driver};
use taskharbor_sqlite::{Config, SqliteDriver, Synchronous};
use taskharbor_web::{Access, Role, Web};

use crate::rig::Rig;
use sample::Samples;
use site::{Site, Try};

/// Numbers that are written as JSON knows them and as few programs do.
const NUMBERS: &[&str] = &[
    "-1",
    "0",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551616",
    "1e400",
    "-1e400",
    "0.5",
];

/// The time is the real one: a paused clock would not wait for the threads of the store.
#[tokio::test]
async fn a_store_in_a_file_is_as_safe() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = dir.join(format!("hostile-{}.db", std::process::id()));
    let config = Config::new(&path).create(true).synchronous(Synchronous::Normal);
    let driver = AnyDriver::new(SqliteDriver::open_with(config).await.unwrap());
    let site = Site::of(driver.clone(), Duration::from_secs(5)).await;
    bodies_that_are_no_objects(&site).await;
    unknown_fields(&site).await;
    values_of_another_kind(&site).await;
    numbers_of_every_size(&site).await;
    numbers_of_a_query(&site).await;
    texts_of_a_query(&site).await;
    names_in_addresses(&site).await;
    driver.close().await.unwrap();
    std::fs::remove_file(path).unwrap();
}

#[tokio::test(start_paused = true)]
async fn other_methods_are_refused_with_those_that_are_allowed() {
    let site = Site::new().await;
    for endpoint in site.endpoints() {
        let allowed = site.methods(&endpoint.path);
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"] {
            if allowed.contains(&method) {
                continue;
            }
            let reply = site.refused(&Try::new(&endpoint).method(method), 405).await;
            let allow = reply.headers[header::ALLOW].to_str().unwrap();
            for method in &allowed {
                assert!(allow.split(',').any(|it| it == *method), "{}: {allow}", endpoint.path);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_of_another_type_is_refused() {
    let site = Site::new().await;
    for endpoint in site.endpoints().iter().filter(|it| it.method == Method::POST) {
        for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""] {
            let sent = Try::new(endpoint).header(header::CONTENT_TYPE, kind).body("{}");
            site.refused(&sent, 415).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_no_json_object_is_refused() {
    bodies_that_are_no_objects(&Site::new().await).await;
}

async fn bodies_that_are_no_objects(site: &Site) {
    let deep = format!("{}{}", "[".repeat(1_500), "]".repeat(1_500));
    let deep_object = format!("{{\"now\":{deep}}}");
    for endpoint in site.endpoints().iter().filter(|it| it.method == Method::POST) {
        for body in [
            "{",
            "}",
            "[1,",
            "[]",
            "[[]]",
            "\"{}\"",
            "1",
            "-",
            "null",
            "true",
            "{}{}",
            "{} x",
            "{\"a\"}",
            "{'a': 1}",
            "\u{feff}{}",
            "\0",
            "NaN",
            " [] ",
            &deep,
            &deep_object,
        ] {
            site.refused(&Try::new(endpoint).body(body), 400).await;
        }
        site.refused(&Try::new(endpoint).body(b"{\"a\": \"\xff\"}".as_slice()), 400).await;
    }
}

#[tokio::test(start_paused = true)]
async fn fields_and_parameters_that_are_not_known_are_refused() {
    unknown_fields(&Site::new().await).await;
}

async fn unknown_fields(site: &Site) {
    for endpoint in &site.endpoints() {
        if let Some(schema) = &endpoint.body {
            let mut body = Samples::new(&site.document, site.now()).required(schema);
            body["no_such_field"] = json!(1);
            site.refused(&Try::new(endpoint).json(&body), 400).await;
        }
        if endpoint.method == Method::GET {
            site.refused(&Try::new(endpoint).query("no_such_parameter=1"), 400).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_examples_that_are_twisted_are_understood() {
    let site = Site::new().await;
    for endpoint in &site.endpoints() {
        let Some(schema) = &endpoint.body else { continue };
        let samples = Samples::new(&site.document, site.now());
        for body in samples.all(schema).into_iter().chain([samples.required(schema)]) {
            let reply = site.answer(&Try::new(endpoint).json(&body)).await.unwrap();
            assert!(!reply.text.contains("invalid JSON"), "{} {body}: {reply:?}", endpoint.path);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn values_of_another_kind_are_refused() {
    values_of_another_kind(&Site::new().await).await;
}

async fn values_of_another_kind(site: &Site) {
    for endpoint in &site.endpoints() {
        let Some(schema) = &endpoint.body else { continue };
        let samples = Samples::new(&site.document, site.now());
        for body in samples.twisted(schema) {
            site.harmless(&Try::new(endpoint).json(&body)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn numbers_of_every_size_do_no_harm() {
    numbers_of_every_size(&Site::new().await).await;
}

async fn numbers_of_every_size(site: &Site) {
    for endpoint in &site.endpoints() {
        let Some(schema) = &endpoint.body else { continue };
        let samples = Samples::new(&site.document, site.now());
        for number in NUMBERS {
            for (is_integer, body) in samples.with_number(schema, number) {
                let sent = Try::new(endpoint).body(body);
                match *number {
                    "1e400" | "-1e400" => drop(site.refused(&sent, 400).await),
                    "0.5" if is_integer => drop(site.refused(&sent, 400).await),
                    _ => site.harmless(&sent).await,
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn numbers_of_a_query_are_bounded() {
    numbers_of_a_query(&Site::new().await).await;
}

async fn numbers_of_a_query(site: &Site) {
    for endpoint in &site.endpoints() {
        for (name, kind) in endpoint.parameters() {
            if !matches!(kind.as_str(), "integer" | "number") {
                continue;
            }
            for number in
                NUMBERS.iter().chain(&["", "x", "1%20", "%00", "0x10", "1_000", "%D9%A3", "+-1"])
            {
                let sent = Try::new(endpoint).query(&format!("{name}={number}"));
                match *number {
                    "0" | "0.5" | "9223372036854775807" | "9223372036854775808"
                        if name != "limit" =>
                    {
                        site.harmless(&sent).await;
                    }
                    _ => drop(site.refused(&sent, 400).await),
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn texts_of_a_query_do_no_harm() {
    texts_of_a_query(&Site::new().await).await;
}

async fn texts_of_a_query(site: &Site) {
    let long = "x".repeat(7_000);
    for endpoint in &site.endpoints() {
        for (name, _) in endpoint.parameters() {
            for text in
                ["%00", "%ff", "%", "%zz", "%22%3b--", "..%2f..", "%3Cscript%3E", "🦀", &long]
            {
                site.harmless(&Try::new(endpoint).query(&format!("{name}={text}"))).await;
            }
            let twice = format!("{name}=1&{name}=1");
            site.refused(&Try::new(endpoint).query(&twice), 400).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_too_large_is_refused_whether_it_says_so_or_not() {
    let site = Site::new().await;
    for endpoint in &site.endpoints() {
        let limit = endpoint.body_limit;
        let sent = Try::new(endpoint).header(header::CONTENT_LENGTH, &(limit + 1).to_string());
        site.refused(&sent, 413).await;
        let huge = Try::new(endpoint).header(header::CONTENT_LENGTH, &u64::MAX.to_string());
        site.refused(&huge, 413).await;
        if limit <= 1 << 20 {
            site.refused(&Try::new(endpoint).body(" ".repeat(limit + 1)), 413).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_store_is_not_found() {
    let site = Site::new().await;
    for endpoint in site.endpoints().iter().filter(|it| it.path.contains("{store}")) {
        let samples = Samples::new(&site.document, site.now());
        let body = endpoint.body.as_ref().map_or(Value::Null, |it| samples.required(it));
        let at = endpoint.path.replacen("{store}", "none", 1);
        let sent = Try::new(endpoint).path(&at);
        let sent = if body.is_null() { sent } else { sent.json(&body) };
        let reply = site.answer(&sent).await.unwrap();
        // A body of an example may be refused before its store is looked for.
        assert!(matches!(reply.problem().0, 404 | 400), "{at}: {reply:?}");
        if endpoint.body.is_none() && endpoint.parameters().is_empty() {
            assert_eq!(reply.problem(), (404, "unknown_store".into()), "{at}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn names_in_addresses_do_no_harm() {
    names_in_addresses(&Site::new().await).await;
}

async fn names_in_addresses(site: &Site) {
    let long = "x".repeat(10_000);
    for endpoint in &site.endpoints() {
        for name in endpoint.path.split('/').filter(|it| it.starts_with('{')) {
            for text in [
                "%00",
                "a%00b",
                "%ff",
                "%zz",
                "%",
                "%2e%2e%2f",
                "%22%3b%20DROP",
                "%3Cb%3E",
                "🦀",
                "%0d%0a",
                &long,
            ] {
                let at = endpoint.path.replacen(name, text, 1);
                site.harmless(&Try::new(endpoint).path(&at).json(&json!({}))).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_foreign_host_is_refused_everywhere() {
    let site = Site::new().await;
    for endpoint in site.endpoints().iter().filter(|it| it.path != "/healthz") {
        for host in [
            "evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1@evil.example",
            "",
            "[::1",
            "\u{7f}",
        ] {
            let reply = site.answer(&Try::new(endpoint).header(header::HOST, host)).await;
            assert!(reply.is_none_or(|it| it.problem() == (403, "foreign_host".into())), "{host}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_from_a_foreign_page_is_refused_everywhere() {
    let site = Site::new().await;
    for endpoint in site.endpoints().iter().filter(|it| it.path != "/healthz") {
        for (name, value) in [
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("origin", "http://127.0.0.1:7451"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("sec-fetch-site", ""),
        ] {
            let sent = Try::new(endpoint).header(name.parse().unwrap(), value);
            let reply = site.refused(&sent, 403).await;
            assert_eq!(reply.problem().1, "foreign_origin", "{}", endpoint.path);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn less_access_than_an_endpoint_takes_is_refused() {
    let site = Site::new().await;
    let all = |role| Access::new("ada", role).with_payloads().with_workers();
    let roles = [("viewer", Role::Viewer), ("operator", Role::Operator), ("admin", Role::Admin)];
    let rigs = roles.map(|(_, role)| site.rig.served_to(all(role)));
    let plain = site.rig.served_to(Access::new("ada", Role::Admin));
    let workers_only = site.rig.served_to(Access::new("ada", Role::Admin).with_workers());
    let payloads_only = site.rig.served_to(Access::new("ada", Role::Admin).with_payloads());
    let nothing = site.rig.served(Web::new());
    for endpoint in &site.endpoints() {
        let Some(least) = endpoint.role.as_deref() else { continue };
        let sent = Try::new(endpoint);
        let refused = async |rig: &Rig, code: &str| {
            let reply = site.refused_by(rig, &sent, 403).await;
            assert_eq!(reply.problem().1, code, "{}", endpoint.path);
        };
        refused(&nothing, "no_access").await;
        let least = roles.iter().position(|(name, _)| *name == least).unwrap();
        for rig in &rigs[..least] {
            refused(rig, "role_too_low").await;
        }
        if endpoint.payloads {
            refused(&plain, "needs_payloads").await;
            refused(&workers_only, "needs_payloads").await;
        }
        if endpoint.workers {
            refused(&payloads_only, "needs_workers").await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_that_is_too_long_or_unknown_is_refused() {
    let site = Site::new().await;
    for endpoint in &site.endpoints() {
        let long = format!("q={}", "x".repeat(9_000));
        site.refused(&Try::new(endpoint).query(&long), 414).await;
        let other = format!("{}/no-such-thing-here", endpoint.path);
        if other.starts_with("/v1/") {
            let reply = site.answer(&Try::new(endpoint).path(&other)).await.unwrap();
            assert!(matches!(reply.problem().0, 404 | 405), "{other}: {reply:?}");
        }
    }
}
