//! Tests of what is read from URLs.

use super::*;

fn read(url: &str) -> Result<Config, ConfigError> {
    let config = url::read(url)?;
    config.check()?;
    Ok(config)
}

#[test]
fn all_parts_of_a_url_are_read_and_decoded() {
    let url = "https://jobs.example.com:8443/harbor/?store=main&token=a%26b&timeout=5\
               &connections=3&ca=%2Fetc%2Fca.pem";
    let config = read(url).unwrap();
    assert!(config.is_tls);
    assert_eq!((config.host.as_str(), config.port), ("jobs.example.com", 8443));
    assert_eq!((config.prefix.as_str(), config.store.as_str()), ("/harbor", "main"));
    assert_eq!(config.token.as_deref(), Some("a&b"));
    assert_eq!((config.timeout, config.connections), (Duration::from_secs(5), 3));
    assert_eq!(config.certificates, Some(PathBuf::from("/etc/ca.pem")));
    assert_eq!(config.shown(), "https://jobs.example.com:8443/harbor");
}

#[test]
fn what_is_left_out_has_a_default() {
    for (url, shown, port) in [
        ("http://localhost", "http://localhost", 80),
        ("https://localhost/", "https://localhost", 443),
        ("http://127.0.0.1:7450/?", "http://127.0.0.1:7450", 7450),
        ("http://[::1]:7450", "http://[::1]:7450", 7450),
        ("https://[::1]", "https://[::1]", 443),
    ] {
        let config = read(url).unwrap();
        assert_eq!((config.shown().as_str(), config.port), (shown, port), "{url}");
        assert_eq!((config.store.as_str(), config.token), ("default", None), "{url}");
        assert_eq!((config.timeout, config.connections), (Duration::from_secs(30), 8), "{url}");
    }
}

#[test]
fn what_cannot_be_read_is_refused_with_what_to_write() {
    for (url, text) in [
        ("ftp://h", "start with http:// or https://"),
        ("http:h", "start with http:// or https://"),
        ("http://", "write the host"),
        ("http://:80", "write the host"),
        ("http://a b", "write the host"),
        ("http://[::1", "[::1] for IPv6"),
        ("http://[nonsense]", "[::1] for IPv6"),
        ("http://h:0", "1 to 65535"),
        ("http://h:65536", "1 to 65535"),
        ("http://h:", "1 to 65535"),
        ("http://[::1]7450", "1 to 65535"),
        ("http://h/a b", "percent-encode the path"),
        ("http://h/#top", "%23"),
        ("http://h?store", "name=value"),
        ("http://h?store=", "`store` must be"),
        ("http://h?store=a/b", "`store` must be"),
        ("http://h?token=", "`token` must be"),
        ("http://h?token=a%0Ab", "`token` must be"),
        ("http://h?token=%zz", "%25"),
        ("http://h?token=%ff", "percent-encode UTF-8"),
        ("http://h?timeout=0", "`timeout` must be"),
        ("http://h?timeout=1e9", "`timeout` must be"),
        ("http://h?timeout=18446744073709551616", "`timeout` must be"),
        ("http://h?connections=0", "`connections` must be"),
        ("http://h?connections=-1", "`connections` must be"),
        ("http://h?connections=1001", "`connections` must be"),
        ("http://h?stor=main", "unknown parameter `stor`"),
    ] {
        let error = read(url).unwrap_err().to_string();
        assert!(error.contains(text), "{url}: {error}");
    }
}

#[test]
fn no_message_shows_a_token() {
    for url in [
        "http://hunter2@h",
        "http://ada:hunter2@h/x",
        "http://h/hunter2@x",
        "http://h?token=a&HUNTER2hunter2=1",
        "http://h?hunter2",
        "http://h?token=hunter2%20",
        "http://h#hunter2",
    ] {
        let error = read(url).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{url}: {error}");
    }
    let config = read("http://h?token=hunter2").unwrap();
    assert!(!format!("{config:?}{}", config.shown()).contains("hunter2"));
}
