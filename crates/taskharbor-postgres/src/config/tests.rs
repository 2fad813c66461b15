//! Tests of what is read from URLs and the environment.

use tokio_postgres::config::{ChannelBinding, Host, LoadBalanceHosts, SslMode, TargetSessionAttrs};

use super::*;

fn read(url: &str) -> Result<Config, ConfigError> {
    read_with(url, &[("USER", "ada")])
}

fn read_with(url: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let variable = |name: &str| {
        variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    };
    Config::read(url::settings(url)?, variable)
}

fn hosts(config: &Config) -> Vec<String> {
    let name = |host: &Host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    };
    config.server.get_hosts().iter().map(name).collect()
}

#[test]
fn all_parts_of_a_url_are_read_and_decoded() {
    let url = "postgresql://a%40b:p%3A%2F%3F%25w@one:5433,[::1],%2Frun%2Fpg:5434/d%20b\
               ?application_name=me&sslmode=prefer&schema=jobs&pool_size=3&statements=unnamed\
               &listen=off&notify=off&connect_timeout=7&tcp_user_timeout=1500";
    let config = read(url).unwrap();
    assert_eq!(config.server.get_user(), Some("a@b"));
    assert_eq!(config.server.get_password(), Some(&b"p:/?%w"[..]));
    assert_eq!(config.server.get_dbname(), Some("d b"));
    assert_eq!(hosts(&config), ["one", "::1", "/run/pg"]);
    assert_eq!(config.server.get_ports(), [5433, 5432, 5434]);
    assert_eq!(config.server.get_application_name(), Some("me"));
    assert_eq!(config.schema.as_str(), "jobs");
    assert_eq!((config.pool_size, config.statements), (3, StatementMode::Unnamed));
    assert!(!config.listen && !config.notify_in_transactions);
    assert_eq!(config.connect_timeout, Duration::from_secs(7));
    assert_eq!(config.server.get_tcp_user_timeout(), Some(&Duration::from_millis(1500)));
}

#[test]
fn what_is_left_out_has_the_defaults_of_libpq() {
    for url in ["postgres://", "postgresql:///", "postgres://@/?", "postgres://:5432"] {
        let config = read(url).unwrap();
        assert_eq!(hosts(&config), ["localhost"], "{url}");
        assert_eq!(config.server.get_user(), Some("ada"), "{url}");
        assert_eq!(config.server.get_dbname(), None, "the server takes the user's");
        assert_eq!(config.server.get_application_name(), Some("taskharbor"));
        assert_eq!(config.tls_mode, TlsMode::Prefer);
        assert!(config.server.get_keepalives());
    }
    let default = read_with("postgres://", &[]).unwrap();
    assert_eq!(default.server.get_user(), Some("postgres"));
}

#[test]
fn the_environment_fills_in_what_a_url_leaves_out() {
    let variables = [
        ("PGHOST", "elsewhere"),
        ("PGPORT", "6000"),
        ("PGUSER", "bob"),
        ("PGPASSWORD", "pw"),
        ("PGDATABASE", "db"),
        ("PGSSLMODE", "require"),
        ("PGAPPNAME", "app"),
        ("PGCONNECT_TIMEOUT", "9"),
        ("PGOPTIONS", "-c jit=off"),
        ("PGTARGETSESSIONATTRS", "read-write"),
        ("PGCHANNELBINDING", "disable"),
        ("PGSSLNEGOTIATION", "postgres"),
        ("PGLOADBALANCEHOSTS", "random"),
    ];
    let config = read_with("postgres://", &variables).unwrap();
    assert_eq!(hosts(&config), ["elsewhere"]);
    assert_eq!(config.server.get_ports(), [6000]);
    assert_eq!(config.server.get_user(), Some("bob"));
    assert_eq!(config.server.get_password(), Some(&b"pw"[..]));
    assert_eq!(config.server.get_dbname(), Some("db"));
    assert_eq!(config.server.get_ssl_mode(), SslMode::Require);
    assert_eq!(config.server.get_application_name(), Some("app"));
    assert_eq!(config.server.get_options(), Some("-c jit=off"));
    assert_eq!(config.connect_timeout, Duration::from_secs(9));
    assert_eq!(config.server.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
    assert_eq!(config.server.get_channel_binding(), ChannelBinding::Disable);
    assert_eq!(config.server.get_load_balance_hosts(), LoadBalanceHosts::Random);

    let url = "postgres://eve@here:1/x?sslmode=disable&application_name=mine";
    let config = read_with(url, &variables).unwrap();
    assert_eq!((hosts(&config), config.server.get_ports()), (vec!["here".to_owned()], &[1][..]));
    assert_eq!(config.server.get_user(), Some("eve"));
    assert_eq!(config.tls_mode, TlsMode::Disable);
    assert_eq!(config.server.get_application_name(), Some("mine"));
}

#[test]
fn hostile_urls_are_refused_with_what_to_write_instead() {
    for (url, message) in [
        ("", "the URL must start with postgres:// or postgresql://"),
        ("mysql://h/d", "the URL must start with postgres:// or postgresql://"),
        ("postgres://h%2/d", "the URL cannot be read: write % as %25"),
        ("postgres://u:%zz@h", "the URL cannot be read: write % as %25"),
        ("postgres://h/%ff", "the URL cannot be read: percent-encode UTF-8"),
        ("postgres://h/a%00b", "the URL cannot be read: remove the %00"),
        ("postgres://[::1/d", "the URL cannot be read: close the [ of the host"),
        ("postgres://h:x/d", "`port` must be a number up to 65535"),
        ("postgres://h:0", "`port` must be a number up to 65535"),
        ("postgres://h:70000", "`port` must be a number up to 65535"),
        ("postgres://h?pool_size=many", "`pool_size` must be a number of at least 1"),
        ("postgres://h?pool_size=0", "`pool_size` must be a number of at least 1"),
        ("postgres://h?pool_size", "the URL cannot be read: write each parameter as name=value"),
        ("postgres://h?listen=yes", "`listen` must be `on` or `off`"),
        (
            "postgres://h?ssl_mode=require",
            "unknown parameter `ssl_mode`: remove it or correct its name",
        ),
        ("postgres://a,b?port=1,2,3", "write one port, or as many as there are hosts"),
        ("postgres://a,b?hostaddr=127.0.0.1", "write as many addresses in `hostaddr` as hosts"),
        (
            "postgres://h?schema=pg_x",
            "schema names that start with pg_ belong to PostgreSQL: choose another",
        ),
    ] {
        assert_eq!(read(url).unwrap_err().to_string(), message, "{url}");
    }
}

#[test]
fn no_message_and_no_debug_output_shows_a_password() {
    for url in [
        "postgres://u:canary@h:x/d",
        "postgres://u:canary@h?nope=1",
        "postgres://u:canary@h@h/d",
        "postgres://u:x@canary@h/d",
        "postgres://u:canary/x@h/d",
        "postgres://u:1/canary@h/d",
        "postgres://u:1?canary@h/d",
        "postgres://u:1?canary=@h/d",
        "postgres://u:1?x&canary=@h/d",
        "postgres://u:canary%@h/d",
        "postgres://u@h?password=canary&port=x",
        "postgres://u@h?password=canary%",
    ] {
        let error = read(url).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("canary"), "{url}: {error}");
    }
    let config = read("postgres://u:canary@h/d?options=-c%20x.y=canary").unwrap();
    let shown = format!("{config:?}");
    assert!(!shown.contains("canary") && shown.contains("***"), "{shown}");
}

#[test]
fn sslmode_decides_what_is_encrypted_and_what_verified() {
    for (query, mode, ssl) in [
        ("", TlsMode::Prefer, SslMode::Prefer),
        ("sslmode=disable", TlsMode::Disable, SslMode::Disable),
        ("sslmode=require", TlsMode::Require, SslMode::Require),
        ("sslmode=verify-ca", TlsMode::VerifyCa, SslMode::Require),
        ("sslmode=verify-full&sslrootcert=system", TlsMode::VerifyFull, SslMode::Require),
        ("sslrootcert=system", TlsMode::VerifyFull, SslMode::Require),
        ("sslmode=require&sslrootcert=/ca.pem", TlsMode::VerifyCa, SslMode::Require),
        ("sslmode=verify-full&host=/run/pg", TlsMode::Disable, SslMode::Disable),
    ] {
        let config = read(&format!("postgres://h?{query}")).unwrap();
        assert_eq!((config.tls_mode, config.server.get_ssl_mode()), (mode, ssl), "{query}");
    }
    for query in [
        "sslmode=verify",
        "sslmode=prefer&sslrootcert=system",
        "sslmode=verify-ca&sslrootcert=system",
        "sslrootcert=/ca.pem",
        "sslmode=require&host=/run/pg,h",
        "sslnegotiation=direct",
    ] {
        read(&format!("postgres://h?{query}")).unwrap_err();
    }
}

#[test]
fn an_address_is_the_name_that_a_certificate_is_checked_against() {
    let config = read("postgres://?hostaddr=127.0.0.1,::1").unwrap();
    assert_eq!(hosts(&config), ["127.0.0.1", "::1"]);
}
