//! Reads a connection URL into its settings, by the rules of libpq.
//!
//! A URL carries a password, and a password with a reserved character in it can end up in any part
//! of the URL. So no message repeats a piece of it, but for a parameter's name that is a plain word
//! in a URL that was well formed up to there.

use super::ConfigError;

/// A setting and its value, both decoded.
pub(super) type Setting = (String, String);

const RESERVED: &str =
    "write the characters @ : / ? # % of a user or password as %40 %3A %2F %3F %23 %25";

/// The settings that `url` has, in the order in which it has them.
pub(super) fn settings(url: &str) -> Result<Vec<Setting>, ConfigError> {
    let rest = ["postgres://", "postgresql://"].iter().find_map(|scheme| url.strip_prefix(scheme));
    let rest = rest.ok_or(ConfigError::Scheme)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    if database.contains('@') {
        return Err(ConfigError::Url(RESERVED));
    }
    let mut settings = Vec::new();
    let (credentials, hosts) = match authority.split_once('@') {
        Some((credentials, hosts)) => (Some(credentials), hosts),
        None => (None, authority),
    };
    if let Some(credentials) = credentials {
        let (user, password) = match credentials.split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (credentials, None),
        };
        push(&mut settings, "user", decoded(user)?);
        push(&mut settings, "password", decoded(password.unwrap_or_default())?);
    }
    add_hosts(&mut settings, hosts)?;
    push(&mut settings, "dbname", decoded(database)?);
    // An `@` in a query is fine, but without one before it may be where a password ends.
    let suspect = credentials.is_none() && query.contains('@');
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        add_parameter(&mut settings, parameter, suspect)?;
    }
    Ok(settings)
}

/// An empty part is a part left out, as in `postgres:///`.
fn push(settings: &mut Vec<Setting>, key: &str, value: String) {
    if !value.is_empty() {
        settings.push((key.to_owned(), value));
    }
}

fn add_hosts(settings: &mut Vec<Setting>, text: &str) -> Result<(), ConfigError> {
    if text.contains('@') {
        return Err(ConfigError::Url(RESERVED));
    }
    let (mut hosts, mut ports) = (Vec::new(), Vec::new());
    for part in text.split(',') {
        let (host, port) = match part.strip_prefix('[') {
            Some(rest) => {
                let (address, port) =
                    rest.split_once(']').ok_or(ConfigError::Url("close the [ of the host"))?;
                (address, port)
            }
            None => part.find(':').map_or((part, ""), |at| part.split_at(at)),
        };
        let port = match port.strip_prefix(':') {
            Some(port) => port,
            None if port.is_empty() => port,
            None => return Err(ConfigError::Url("write [address]:port for a host in brackets")),
        };
        hosts.push(decoded(host)?);
        ports.push(decoded(port)?);
    }
    // Lists of nothing are left out, so that the environment may fill them in.
    if hosts.iter().any(|host| !host.is_empty()) {
        push(settings, "host", hosts.join(","));
    }
    if ports.iter().any(|port| !port.is_empty()) {
        push(settings, "port", ports.join(","));
    }
    Ok(())
}

fn add_parameter(
    settings: &mut Vec<Setting>,
    text: &str,
    suspect: bool,
) -> Result<(), ConfigError> {
    let Some((key, value)) = text.split_once('=') else {
        return Err(ConfigError::Url("write each parameter as name=value"));
    };
    let word = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
    let named = key.len() <= 40 && key.bytes().all(word);
    if super::is_known(key) {
        settings.push((key.to_owned(), decoded(value)?));
        Ok(())
    } else if named && !suspect {
        Err(ConfigError::Unknown { parameter: key.to_owned() })
    } else {
        Err(ConfigError::Url(RESERVED))
    }
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
    match String::from_utf8(bytes) {
        Ok(text) if text.contains('\0') => Err(ConfigError::Url("remove the %00")),
        Ok(text) => Ok(text),
        Err(_) => Err(ConfigError::Url("percent-encode UTF-8")),
    }
}
