//! Reads a URL into a configuration.
//!
//! A token can end up in any part of a URL that is not well formed. So no message repeats a piece of it,
//! but for the name of a parameter that is a plain word.

use std::time::Duration;

use super::{CONNECTIONS, Config, ConfigError, TIMEOUT};

const USER: &str =
    "leave out what is before the @: the token is a parameter, token=…, or TASKHARBOR_TOKEN";

pub(super) fn read(url: &str) -> Result<Config, ConfigError> {
    let schemes = [("http://", false, 80), ("https://", true, 443)];
    let read = schemes.iter().find_map(|(start, is_tls, port)| {
        url.strip_prefix(start).map(|rest| (rest, *is_tls, *port))
    });
    let Some((rest, is_tls, port)) = read else {
        return Err(ConfigError::Url("it must start with http:// or https://"));
    };
    if rest.contains('#') {
        return Err(ConfigError::Url("remove the part from # on, or write # as %23"));
    }
    let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
    if address.contains('@') {
        return Err(ConfigError::Url(USER));
    }
    let (authority, path) = address.split_once('/').unwrap_or((address, ""));
    let (host, port) = host_and_port(authority, port)?;
    let mut config = Config {
        is_tls,
        host,
        port,
        prefix: prefix(path)?,
        store: "default".to_owned(),
        token: None,
        timeout: Duration::from_secs(30),
        connections: 8,
        certificates: None,
    };
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        apply(&mut config, parameter)?;
    }
    Ok(config)
}

fn host_and_port(authority: &str, default: u16) -> Result<(String, u16), ConfigError> {
    const HOST: ConfigError =
        ConfigError::Url("write the host as a name or address, [::1] for IPv6");
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']').ok_or(HOST)?;
            address.parse::<std::net::Ipv6Addr>().map_err(|_| HOST)?;
            (address, port)
        }
        None => {
            let (host, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
            let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
            if host.is_empty() || !host.chars().all(is_part) {
                return Err(HOST);
            }
            (host, port)
        }
    };
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().ok().filter(|port| *port > 0),
        None if port.is_empty() => Some(default),
        None => None,
    };
    let port = port.ok_or(ConfigError::Url("write the port as a number of 1 to 65535"))?;
    Ok((host.to_owned(), port))
}

/// The path under which the server is mounted. It goes into requests as it is.
fn prefix(path: &str) -> Result<String, ConfigError> {
    let is_part = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte);
    if !path.bytes().all(is_part) {
        return Err(ConfigError::Url("percent-encode the path"));
    }
    match path.trim_end_matches('/') {
        "" => Ok(String::new()),
        path => Ok(format!("/{path}")),
    }
}

fn apply(config: &mut Config, parameter: &str) -> Result<(), ConfigError> {
    let Some((key, value)) = parameter.split_once('=') else {
        return Err(ConfigError::Url("write each parameter as name=value"));
    };
    let value = || decoded(value);
    match key {
        "store" => config.store = value()?,
        "token" => config.token = Some(value()?),
        "timeout" => {
            let seconds = value()?.parse();
            let refused = ConfigError::Value { parameter: "timeout", expected: TIMEOUT };
            config.timeout = Duration::from_secs(seconds.map_err(|_| refused)?);
        }
        "connections" => {
            let refused = ConfigError::Value { parameter: "connections", expected: CONNECTIONS };
            config.connections = value()?.parse().map_err(|_| refused)?;
        }
        "ca" => config.certificates = Some(value()?.into()),
        _ => {
            let is_word = |byte: u8| matches!(byte, b'a'..=b'z' | b'_' | b'-');
            return Err(if key.len() <= 20 && key.bytes().all(is_word) {
                ConfigError::Unknown { parameter: key.to_owned() }
            } else {
                ConfigError::Url("write the characters & = # % of a value as %26 %3D %23 %25")
            });
        }
    }
    Ok(())
}

fn decoded(text: &str) -> Result<String, ConfigError> {
    const PERCENT: ConfigError = ConfigError::Url("write % as %25");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else { return Err(PERCENT) };
        bytes.push(u8::try_from(high * 16 + low).map_err(|_| PERCENT)?);
    }
    String::from_utf8(bytes).map_err(|_| ConfigError::Url("percent-encode UTF-8"))
}
