//! Answers that are none of ours, broken or too long.

use taskharbor_core::{Driver, DriverError};
use taskharbor_http::{HttpDriver, OpenError};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::fake::{Then, answer, driver, json};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Unavailable,
    Backend,
    Contract,
}

/// What a call says that is answered so. The token is in no message.
async fn told(then: Then) -> (Kind, String) {
    let error = driver(then).await.store_time().await.unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(!text.contains("hunter2"), "{text}");
    let kind = match error {
        DriverError::Unavailable(_) => Kind::Unavailable,
        DriverError::Backend(_) => Kind::Backend,
        DriverError::ContractViolation(_) => Kind::Contract,
        other => panic!("{other}"),
    };
    (kind, text)
}

fn problem(status: &str, code: &str) -> Then {
    let body = format!(r#"{{"code":"{code}","title":"no","detail":"why","status":0}}"#);
    answer(status, "application/problem+json", &body, body.len())
}

#[tokio::test]
async fn a_problem_comes_with_advice() {
    for (status, code, kind, text) in [
        ("401 Unauthorized", "invalid_token", Kind::Backend, "set TASKHARBOR_TOKEN"),
        ("403 Forbidden", "needs_workers", Kind::Backend, "use a token that may do this"),
        ("404 Not Found", "unknown_store", Kind::Backend, "store=…"),
        ("409 Conflict", "clock_skew", Kind::Backend, "clock of this machine"),
        ("413 Payload Too Large", "too_large", Kind::Backend, "(too_large): no: why"),
        ("500 Internal Server Error", "store_failed", Kind::Backend, "(store_failed): no: why"),
        ("503 Service Unavailable", "store_unavailable", Kind::Unavailable, "no: why"),
        ("504 Gateway Timeout", "timeout", Kind::Unavailable, "no: why"),
    ] {
        let (told, message) = told(problem(status, code)).await;
        assert_eq!(told, kind, "{message}");
        assert!(message.contains(text), "{message}");
    }
}

#[tokio::test]
async fn a_page_of_a_proxy_is_told_from_an_answer() {
    let page = "<html>hunter2</html>";
    for (status, kind, text) in [
        ("200 OK", Kind::Backend, "check host, port and path"),
        ("404 Not Found", Kind::Backend, "check host, port and path"),
        ("413 Payload Too Large", Kind::Backend, "raise its limit"),
        ("502 Bad Gateway", Kind::Unavailable, "a proxy before the server"),
        ("503 Service Unavailable", Kind::Unavailable, "a proxy before the server"),
    ] {
        let (told, message) = told(answer(status, "text/html", page, page.len())).await;
        assert_eq!(told, kind, "{message}");
        assert!(message.contains(text), "{message}");
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let head = "HTTP/1.1 307 Temporary Redirect\r\nlocation: https://other/v1?x=hunter2\r\n";
    let text = format!("{head}content-length: 0\r\nconnection: close\r\n\r\n");
    let (kind, message) = told(Then::Answer(text.into_bytes())).await;
    assert_eq!(kind, Kind::Backend);
    assert!(message.contains("write the address it names (https://other/v1)"), "{message}");
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_unavailable() {
    for then in [
        answer("200 OK", "application/json", "\"2026-", 40),
        Then::Answer(b"HTTP/1.1 200 OK\r\ncontent-type: appli".to_vec()),
        Then::Answer(Vec::new()),
    ] {
        let (kind, message) = told(then).await;
        assert_eq!(kind, Kind::Unavailable, "{message}");
    }
}

#[tokio::test]
async fn bytes_that_are_no_http_name_what_to_check() {
    for bytes in [&b"SSH-2.0-OpenSSH_9.6\r\n\r\n"[..], &[0x15, 3, 1, 0, 2, 2, 70, 13, 10, 13, 10]] {
        let (kind, message) = told(Then::Answer(bytes.to_vec())).await;
        assert_eq!(kind, Kind::Backend, "{message}");
        assert!(message.contains("check the port of the URL"), "{message}");
    }
}

#[tokio::test]
async fn json_of_another_form_breaks_the_contract_and_is_not_repeated() {
    for body in ["{\"hunter2\":1}", "\"hunter2\"", "[", "", "null"] {
        let (kind, message) = told(json("200 OK", body)).await;
        assert_eq!(kind, Kind::Contract, "{message}");
        assert!(message.contains("use the same version"), "{message}");
    }
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_not_read() {
    for (status, kind) in [("200 OK", Kind::Backend), ("503 Busy", Kind::Unavailable)] {
        let (told, message) =
            told(answer(status, "application/json", "[", 1024 * 1024 * 1024)).await;
        assert_eq!(told, kind, "{message}");
    }
}

#[tokio::test]
async fn a_server_without_tls_is_told_from_one_that_is_away() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_buf(&mut Vec::with_capacity(4096)).await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    });
    let error = HttpDriver::connect(&format!("https://{address}")).await.unwrap_err();
    assert!(matches!(error, OpenError::Failed(DriverError::Backend(_))), "{error}");
    assert!(error.to_string().contains("whether it should start with http"), "{error}");
}
