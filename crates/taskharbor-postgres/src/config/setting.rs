//! The meaning of each setting, from a URL or from the environment.

use std::{net::IpAddr, path::PathBuf, str::FromStr, time::Duration};

use tokio_postgres::config::{
    ChannelBinding, Host, LoadBalanceHosts, SslMode, SslNegotiation, TargetSessionAttrs,
};

use super::{Config, ConfigError, StatementMode, url::Setting};
use crate::{
    schema_name::SchemaName,
    tls::{Roots, TlsMode},
};

const VARIABLES: [(&str, &str); 15] = [
    ("PGHOST", "host"),
    ("PGHOSTADDR", "hostaddr"),
    ("PGPORT", "port"),
    ("PGUSER", "user"),
    ("PGPASSWORD", "password"),
    ("PGDATABASE", "dbname"),
    ("PGSSLMODE", "sslmode"),
    ("PGSSLROOTCERT", "sslrootcert"),
    ("PGSSLNEGOTIATION", "sslnegotiation"),
    ("PGCHANNELBINDING", "channel_binding"),
    ("PGAPPNAME", "application_name"),
    ("PGCONNECT_TIMEOUT", "connect_timeout"),
    ("PGTARGETSESSIONATTRS", "target_session_attrs"),
    ("PGLOADBALANCEHOSTS", "load_balance_hosts"),
    ("PGOPTIONS", "options"),
];

const KNOWN: [&str; 26] = [
    "application_name",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "listen",
    "load_balance_hosts",
    "notify",
    "options",
    "password",
    "pool_size",
    "port",
    "schema",
    "sslmode",
    "sslnegotiation",
    "sslrootcert",
    "statements",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];

pub(crate) fn is_known(key: &str) -> bool {
    KNOWN.contains(&key)
}

/// Leaves one value for each setting, the last, and adds what only the environment has.
pub(super) fn fill(settings: &mut Vec<Setting>, environment: impl Fn(&str) -> Option<String>) {
    let mut last: Vec<Setting> = Vec::new();
    for setting in settings.drain(..).rev() {
        if last.iter().all(|(key, _)| *key != setting.0) {
            last.push(setting);
        }
    }
    let has = |settings: &[Setting], wanted: &str| settings.iter().any(|(key, _)| key == wanted);
    for (variable, key) in VARIABLES {
        // An address says where the server is as well as a host does.
        let given = has(&last, key) || (key == "host" && has(&last, "hostaddr"));
        if !given && let Some(value) = environment(variable).filter(|value| !value.is_empty()) {
            last.push((key.to_owned(), value));
        }
    }
    if !has(&last, "user") {
        let user = ["USER", "LOGNAME", "USERNAME"].into_iter().find_map(environment);
        let user = user.filter(|user| !user.is_empty()).unwrap_or_else(|| "postgres".to_owned());
        last.push(("user".to_owned(), user));
    }
    *settings = last;
}

/// Applies one setting. The TLS mode is kept apart, because its default depends on the rest.
pub(super) fn apply(
    config: &mut Config,
    tls_mode: &mut Option<TlsMode>,
    key: &str,
    value: &str,
) -> Result<(), ConfigError> {
    let server = &mut config.server;
    match key {
        "user" => drop(server.user(value)),
        "password" => drop(server.password(value)),
        "dbname" => drop(server.dbname(value)),
        "options" => drop(server.options(value)),
        "application_name" => drop(server.application_name(value)),
        "host" => value.split(',').for_each(|host| {
            server.host(if host.is_empty() { "localhost" } else { host });
        }),
        "hostaddr" => {
            for address in value.split(',') {
                server.hostaddr(number::<IpAddr>("hostaddr", address, "an IP address")?);
            }
        }
        "port" => {
            for port in value.split(',') {
                let port = if port.is_empty() { "5432" } else { port };
                let port = number::<std::num::NonZeroU16>("port", port, "a number up to 65535")?;
                server.port(port.get());
            }
        }
        "sslmode" => *tls_mode = Some(one_of("sslmode", value, &MODES, MODES_TEXT)?),
        "sslrootcert" => {
            config.roots = Some(match value {
                "system" => Roots::System,
                path => Roots::File(PathBuf::from(path)),
            });
        }
        "schema" => config.schema = SchemaName::new(value)?,
        "pool_size" => config.pool_size = number("pool_size", value, POOL_SIZE)?,
        "statements" => {
            let modes = [
                ("auto", StatementMode::Auto),
                ("named", StatementMode::Named),
                ("unnamed", StatementMode::Unnamed),
            ];
            let expected = "`auto`, `named` or `unnamed`";
            config.statements = one_of("statements", value, &modes, expected)?;
        }
        "listen" => config.listen = one_of("listen", value, &SWITCH, SWITCH_TEXT)?,
        "notify" => config.notify_in_transactions = one_of("notify", value, &SWITCH, SWITCH_TEXT)?,
        "connect_timeout" => {
            // To libpq zero means no limit. There always is one here, so it means the default.
            let seconds = number::<u32>("connect_timeout", value, SECONDS)?;
            if seconds > 0 {
                config.connect_timeout = Duration::from_secs(seconds.into());
            }
        }
        _ => apply_socket(server, key, value)?,
    }
    Ok(())
}

/// The settings that most people leave alone.
fn apply_socket(
    server: &mut tokio_postgres::Config,
    key: &str,
    value: &str,
) -> Result<(), ConfigError> {
    match key {
        "keepalives" => {
            server.keepalives(one_of(
                "keepalives",
                value,
                &[("0", false), ("1", true)],
                "`0` or `1`",
            )?);
        }
        "keepalives_idle" => {
            let seconds = number::<u32>("keepalives_idle", value, SECONDS)?;
            server.keepalives_idle(Duration::from_secs(seconds.into()));
        }
        "keepalives_interval" => {
            let seconds = number::<u32>("keepalives_interval", value, SECONDS)?;
            server.keepalives_interval(Duration::from_secs(seconds.into()));
        }
        // The first is libpq's name for it, the second that of `tokio-postgres`.
        "keepalives_count" | "keepalives_retries" => {
            server.keepalives_retries(number("keepalives_count", value, "a number")?);
        }
        "tcp_user_timeout" => {
            let millis = number::<u32>("tcp_user_timeout", value, "a number of milliseconds")?;
            server.tcp_user_timeout(Duration::from_millis(millis.into()));
        }
        "sslnegotiation" => {
            let known =
                [("postgres", SslNegotiation::Postgres), ("direct", SslNegotiation::Direct)];
            server.ssl_negotiation(one_of(
                "sslnegotiation",
                value,
                &known,
                "`postgres` or `direct`",
            )?);
        }
        "channel_binding" => {
            let known = [
                ("disable", ChannelBinding::Disable),
                ("prefer", ChannelBinding::Prefer),
                ("require", ChannelBinding::Require),
            ];
            let expected = "`disable`, `prefer` or `require`";
            server.channel_binding(one_of("channel_binding", value, &known, expected)?);
        }
        "target_session_attrs" => {
            let known = [
                ("any", TargetSessionAttrs::Any),
                ("read-write", TargetSessionAttrs::ReadWrite),
                ("read-only", TargetSessionAttrs::ReadOnly),
            ];
            let expected = "`any`, `read-write` or `read-only`";
            server.target_session_attrs(one_of("target_session_attrs", value, &known, expected)?);
        }
        "load_balance_hosts" => {
            let known =
                [("disable", LoadBalanceHosts::Disable), ("random", LoadBalanceHosts::Random)];
            let expected = "`disable` or `random`";
            server.load_balance_hosts(one_of("load_balance_hosts", value, &known, expected)?);
        }
        _ => return Err(ConfigError::Unknown { parameter: key.to_owned() }),
    }
    Ok(())
}

/// What depends on several settings: defaults, counts, and what TLS can and cannot do.
pub(super) fn finish(config: &mut Config, mode: Option<TlsMode>) -> Result<(), ConfigError> {
    let server = &mut config.server;
    if server.get_hosts().is_empty() {
        // The name is what a certificate is checked against, so an address stands for itself.
        let names: Vec<_> = server.get_hostaddrs().iter().map(ToString::to_string).collect();
        for name in if names.is_empty() { vec!["localhost".to_owned()] } else { names } {
            server.host(name);
        }
    }
    let hosts = server.get_hosts().len();
    if !server.get_hostaddrs().is_empty() && server.get_hostaddrs().len() != hosts {
        return Err(ConfigError::Contradiction("write as many addresses in `hostaddr` as hosts"));
    }
    if server.get_ports().len() > 1 && server.get_ports().len() != hosts {
        return Err(ConfigError::Contradiction("write one port, or as many as there are hosts"));
    }
    let sockets = server.get_hosts().iter().filter(|host| !matches!(host, Host::Tcp(_))).count();
    config.tls_mode = if sockets == hosts {
        // There is no TLS on a Unix socket, and to libpq no mode is a mistake there.
        TlsMode::Disable
    } else {
        tls_mode(mode, config.roots.as_ref())?
    };
    if sockets > 0 && config.tls_mode > TlsMode::Prefer {
        return Err(ConfigError::Contradiction(
            "there is no TLS on a Unix socket: write `sslmode=prefer`, or hosts only",
        ));
    }
    if server.get_ssl_negotiation() == SslNegotiation::Direct && config.tls_mode == TlsMode::Prefer
    {
        return Err(ConfigError::Contradiction(
            "`sslnegotiation=direct` leaves no choice: write `sslmode=require` or stronger",
        ));
    }
    server.ssl_mode(match config.tls_mode {
        TlsMode::Disable => SslMode::Disable,
        TlsMode::Prefer => SslMode::Prefer,
        _ => SslMode::Require,
    });
    check(config)
}

/// Certificates that are named are meant to be used, so they are never passed over in silence. Where
/// libpq has a rule, it is the same.
fn tls_mode(mode: Option<TlsMode>, roots: Option<&Roots>) -> Result<TlsMode, ConfigError> {
    match (mode, roots) {
        (None, Some(Roots::System)) => Ok(TlsMode::VerifyFull),
        (Some(TlsMode::Require), Some(Roots::File(_))) => Ok(TlsMode::VerifyCa),
        (None | Some(TlsMode::Prefer), Some(_))
        | (Some(TlsMode::Require | TlsMode::VerifyCa), Some(Roots::System)) => {
            Err(ConfigError::Contradiction(
                "`sslrootcert` asks to verify the server: write `sslmode=verify-full` with it",
            ))
        }
        (mode, _) => Ok(mode.unwrap_or(TlsMode::Prefer)),
    }
}

/// What the builder's methods take without a word.
pub(crate) fn check(config: &Config) -> Result<(), ConfigError> {
    let positive = |parameter, duration: Duration| match duration {
        Duration::ZERO => Err(ConfigError::Value { parameter, expected: "longer than nothing" }),
        _ => Ok(()),
    };
    positive("call_deadline", config.call_deadline)?;
    positive("connect_timeout", config.connect_timeout)?;
    match config.pool_size {
        0 => Err(ConfigError::Value { parameter: "pool_size", expected: POOL_SIZE }),
        _ => Ok(()),
    }
}

const POOL_SIZE: &str = "a number of at least 1";
const SECONDS: &str = "a number of seconds";
const SWITCH: [(&str, bool); 2] = [("on", true), ("off", false)];
const SWITCH_TEXT: &str = "`on` or `off`";
const MODES: [(&str, TlsMode); 5] = [
    ("disable", TlsMode::Disable),
    ("prefer", TlsMode::Prefer),
    ("require", TlsMode::Require),
    ("verify-ca", TlsMode::VerifyCa),
    ("verify-full", TlsMode::VerifyFull),
];
const MODES_TEXT: &str = "`disable`, `prefer`, `require`, `verify-ca` or `verify-full`";

fn number<T: FromStr>(
    parameter: &'static str,
    text: &str,
    expected: &'static str,
) -> Result<T, ConfigError> {
    text.parse().map_err(|_| ConfigError::Value { parameter, expected })
}

fn one_of<T: Copy>(
    parameter: &'static str,
    text: &str,
    known: &[(&str, T)],
    expected: &'static str,
) -> Result<T, ConfigError> {
    let found = known.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or(ConfigError::Value { parameter, expected })
}
