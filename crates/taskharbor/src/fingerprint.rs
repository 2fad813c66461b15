//! [`Fingerprint`]: the common part of errors with one cause.
//!
//! A thousand dead-lettered jobs are mostly two or three errors, which differ in ids, times and
//! addresses. So an error is reduced to its first line without the parts that differ from job to job.
//! The reduction is pure and the same everywhere: the command and the dashboard show the same groups.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use taskharbor_core::job::JobSummary;

/// The common part of errors with one cause.
///
/// It is the first line of an error, with placeholders for the parts that differ from job to job:
/// `#` for numbers and ids, `'…'` for quoted text, `<path>`, `<url>` and `<address>`.
///
/// ```
/// use taskharbor::Fingerprint;
///
/// let one = Fingerprint::of("user 17 not found at 10.0.0.7:5432");
/// let other = Fingerprint::of("user 4711 not found at 10.0.0.9:5432\n  caused by ...");
/// assert_eq!(one, other);
/// assert_eq!(one.pattern(), "user # not found at <address>");
/// assert_eq!(one.to_string().len(), 16);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint {
    hash: u64,
    pattern: String,
}

impl Fingerprint {
    /// The greatest length of a pattern, in bytes.
    pub const MAX_PATTERN_BYTES: usize = 400;

    /// The fingerprint of this error.
    #[must_use]
    pub fn of(error: &str) -> Self {
        let mut pattern = pattern(telling_line(error));
        pattern.truncate(pattern.floor_char_boundary(Self::MAX_PATTERN_BYTES));
        Self { hash: hash(pattern.as_bytes()), pattern }
    }

    /// The fingerprint of what a job failed with: [`Fingerprint::cause`].
    #[must_use]
    pub fn of_job(job: &JobSummary) -> Self {
        Self::of(Self::cause(job))
    }

    /// The reason for a job's state: its last error, unless it was dead-lettered or cancelled for a
    /// reason that is unrelated to that error. Empty if none is known.
    #[must_use]
    pub fn cause(job: &JobSummary) -> &str {
        let error = job.last_error.as_ref().map(AsRef::as_ref);
        let reason = job.reason.as_ref().map(AsRef::as_ref);
        match (error, reason) {
            // The reason repeats the error, perhaps cut.
            (Some(error), Some(reason)) if reason.contains(telling_line(error)) => error,
            (_, Some(reason)) => reason,
            (Some(error), None) => error,
            (None, None) => "",
        }
    }

    /// The pattern: the common part as text.
    #[must_use]
    pub fn pattern(&self) -> &str {
        &self.pattern
    }
}

/// 16 hexadecimal digits.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.hash)
    }
}

/// The line that says what happened: the first one that is not blank. A Python traceback says it in
/// its last line.
fn telling_line(error: &str) -> &str {
    let mut lines = error.lines().map(str::trim).filter(|line| !line.is_empty());
    let Some(first) = lines.next() else { return "" };
    if first.starts_with("Traceback (most recent call last)") {
        return lines.next_back().unwrap_or(first);
    }
    first
}

/// The line with a sign in place of every part that differs from job to job.
fn pattern(line: &str) -> String {
    let mut pattern = String::with_capacity(line.len());
    for word in without_quotes(line).split_whitespace() {
        if !pattern.is_empty() {
            pattern.push(' ');
        }
        reduce_word(word, &mut pattern);
        if pattern.len() > Fingerprint::MAX_PATTERN_BYTES {
            break;
        }
    }
    pattern
}

/// The line with an ellipsis in place of everything that stands between quotation marks.
fn without_quotes(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let after = &rest[first.len_utf8()..];
        let closing = match first {
            '"' | '`' => Some(first),
            '“' => Some('”'),
            '«' => Some('»'),
            // Inside a word it is an apostrophe.
            '\'' if !before.is_alphanumeric() => Some('\''),
            _ => None,
        };
        match closing.and_then(|closing| quoted(after, closing)) {
            Some(end) => {
                out.push_str("'…'");
                (before, rest) = (first, &after[end..]);
            }
            None => {
                out.push(first);
                (before, rest) = (first, after);
            }
        }
    }
    out
}

/// Where the rest of the line begins, behind the sign that closes what is quoted.
fn quoted(text: &str, closing: char) -> Option<usize> {
    let mut signs = text.char_indices().peekable();
    while let Some((at, sign)) = signs.next() {
        let next = signs.peek().map(|(_, next)| *next);
        match sign {
            '\\' => drop(signs.next()),
            _ if sign != closing => {}
            // An apostrophe.
            '\'' if next.is_some_and(char::is_alphanumeric) => {}
            _ => return Some(at + sign.len_utf8()),
        }
    }
    None
}

/// One word without the parts that differ from job to job.
fn reduce_word(word: &str, out: &mut String) {
    // The brackets of an address belong to it.
    let bare = word.trim_end_matches([',', ';', ':', '.', ')']);
    if bare.starts_with('[') && bare.parse::<SocketAddr>().is_ok() {
        out.push_str("<address>");
        return out.push_str(&word[bare.len()..]);
    }
    // Signs around a word are no part of it.
    let is_around =
        |c: char| matches!(c, '(' | ')' | '[' | ']' | '{' | '}' | '<' | '>' | ',' | ';');
    let start = word.find(|c| !is_around(c)).unwrap_or(word.len());
    let (before, inner) = word.split_at(start);
    let end = inner.trim_end_matches(|c| is_around(c) || matches!(c, ':' | '.' | '!' | '?')).len();
    let (inner, behind) = inner.split_at(end);
    out.push_str(before);
    match inner.split_once('=') {
        // A value with its name.
        Some((name, value)) if !name.is_empty() && !value.is_empty() && !name.contains('/') => {
            reduce_ids(name, out);
            out.push('=');
            reduce_whole(value, out);
        }
        _ => reduce_whole(inner, out),
    }
    out.push_str(behind);
}

fn reduce_whole(word: &str, out: &mut String) {
    if word.contains("://") {
        out.push_str("<url>");
    } else if is_address(word) {
        out.push_str("<address>");
    } else if is_number_like(word) {
        out.push('#');
    } else if is_path(word) {
        out.push_str("<path>");
    } else {
        reduce_ids(word, out);
    }
}

/// An address of the network or of a person.
fn is_address(word: &str) -> bool {
    let is_mail = || {
        word.split_once('@').is_some_and(|(name, host)| {
            !name.is_empty() && host.contains('.') && !host.contains(['@', '/'])
        })
    };
    // A name of a host with a port is an address. What has digits alone before the colon is a time.
    let is_host = || {
        word.rsplit_once(':').is_some_and(|(host, port)| {
            port.parse::<u16>().is_ok()
                && host.starts_with(|c: char| c.is_ascii_alphabetic())
                && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
                && (host.contains('.') && !has_extension(host) || host == "localhost")
        })
    };
    word.parse::<SocketAddr>().is_ok()
        || (word.contains(['.', ':']) && word.parse::<IpAddr>().is_ok())
        || is_mail()
        || is_host()
}

/// A number, a date, a time or a version: digits and what stands between them.
fn is_number_like(word: &str) -> bool {
    let is_part = |c: char| {
        c.is_ascii_digit() || matches!(c, '-' | '+' | ':' | '/' | '.' | ',' | '_' | 'T' | 'Z')
    };
    word.contains(|c: char| c.is_ascii_digit()) && word.chars().all(is_part)
}

/// A path of files, with or without a line and a column.
fn is_path(word: &str) -> bool {
    let separators = word.matches(['/', '\\']).count();
    let is_rooted =
        word.starts_with(['/', '~']) || word.starts_with("./") || word.starts_with("../");
    let drive = word.as_bytes();
    let has_drive =
        drive.len() > 3 && drive[0].is_ascii_alphabetic() && word[1..].starts_with(":\\");
    let has_name = word.contains(char::is_alphanumeric);
    has_name && (has_drive || (is_rooted && separators > 0) || separators > 1)
        || (separators == 1 && has_extension(word))
        || (separators == 0 && is_place_in_file(word))
}

/// A file with a line, as `main.rs:7` or `main.rs:7:9`.
fn is_place_in_file(word: &str) -> bool {
    let name = word.trim_end_matches(|c: char| c.is_ascii_digit() || c == ':');
    name.len() < word.len() && word[name.len()..].starts_with(':') && has_extension(name)
}

/// Whether the name ends like that of a file of code.
fn has_extension(word: &str) -> bool {
    let name = word.trim_end_matches(|c: char| c.is_ascii_digit() || c == ':');
    let known = [
        "c", "cc", "cfg", "conf", "cpp", "cs", "csv", "db", "ex", "go", "h", "html", "java", "js",
        "json", "jsx", "log", "md", "mjs", "pdf", "php", "png", "py", "rb", "rs", "sh", "sock",
        "sql", "toml", "ts", "tsx", "txt", "xml", "yaml", "yml",
    ];
    name.rsplit_once('.').is_some_and(|(_, extension)| known.contains(&extension))
}

/// A word with one sign in place of every number and id in it.
fn reduce_ids(word: &str, out: &mut String) {
    let mut rest = word;
    let mut last_is_id = false;
    while let Some(first) = rest.chars().next() {
        if let Some(behind) = after_uuid(rest).filter(|_| !last_is_id) {
            out.push('#');
            (rest, last_is_id) = (behind, true);
            continue;
        }
        let is_part = |c: char| c.is_alphanumeric();
        let end = rest.find(|c| is_part(c) != is_part(first)).unwrap_or(rest.len());
        let (run, behind) = rest.split_at(end);
        rest = behind;
        if !is_part(first) {
            // Parts of one id or number: a UUID, or digits with a point between them.
            let joins = last_is_id && matches!(run, "-" | "." | "," | "_") && begins_with_id(rest);
            if !joins {
                out.push_str(run);
                last_is_id = false;
            }
            continue;
        }
        if is_id(run) {
            if !last_is_id {
                out.push('#');
            }
            last_is_id = true;
        } else {
            last_is_id = reduce_digits(run, last_is_id, out);
        }
    }
}

/// What follows a UUID, if the text begins with one. Parts of it may have no digit.
fn after_uuid(text: &str) -> Option<&str> {
    let (uuid, behind) = text.split_at_checked(36)?;
    let is_right = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    let is_uuid = uuid.bytes().enumerate().all(is_right);
    (is_uuid && !behind.starts_with(char::is_alphanumeric)).then_some(behind)
}

fn begins_with_id(rest: &str) -> bool {
    let run = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    is_id(run) || run.starts_with(|c: char| c.is_ascii_digit())
}

/// Letters of a run as they are, and one sign for the digits between them. Returns whether the run
/// ends with digits.
fn reduce_digits(run: &str, mut last_is_id: bool, out: &mut String) -> bool {
    for c in run.chars() {
        if !c.is_ascii_digit() {
            out.push(c);
            last_is_id = false;
        } else if !last_is_id {
            out.push('#');
            last_is_id = true;
        }
    }
    last_is_id
}

/// Whether letters and digits in a row are a number, a hexadecimal number or an id.
fn is_id(run: &str) -> bool {
    let bytes = run.as_bytes();
    let digits = bytes.iter().filter(|byte| byte.is_ascii_digit()).count();
    if digits == 0 {
        return false;
    }
    let hex = run.strip_prefix("0x").unwrap_or(run);
    let is_hex = hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    // Parts of a UUID have four digits or more.
    let is_long_hex = is_hex && (run.len() >= 4 || hex.len() < run.len());
    let pairs = bytes.iter().zip(bytes.iter().skip(1));
    let changes = pairs.filter(|(a, b)| a.is_ascii_digit() != b.is_ascii_digit()).count();
    digits == bytes.len() || is_long_hex || (run.len() >= 8 && changes >= 3)
}

/// FNV-1a: the same on every machine and in every version, which nothing in `std` promises.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests;
