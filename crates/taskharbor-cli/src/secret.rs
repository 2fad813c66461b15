//! Passwords that stand in URLs, kept out of what is printed about arguments.
//!
//! A URL in the wrong place is named in the error about it. What it says of where the store is may be
//! printed; what stands before the `@`, or after a `?`, may be a secret.

/// The text without what may be a secret in the URLs that it quotes or that were given as arguments.
pub(crate) fn scrubbed(text: &str) -> String {
    let mut text = text.to_owned();
    for argument in std::env::args_os() {
        if let Some(secret) = userinfo(&argument.to_string_lossy()) {
            text = text.replace(&format!("://{secret}@"), &format!("://{HIDDEN}@"));
        }
    }
    in_text(&text)
}

const HIDDEN: &str = "***";

/// What stands between the scheme and the last `@`.
fn userinfo(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let (userinfo, _) = rest.rsplit_once('@')?;
    Some(userinfo).filter(|it| !it.is_empty())
}

fn has_secret(options: &str) -> bool {
    ["password", "token"].iter().any(|name| options.contains(name))
}

/// The same for URLs in a text, which end where a word does.
fn in_text(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        clean.push_str(before);
        clean.push_str("://");
        let end = after.find(|c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`'));
        let (url, others) = after.split_at(end.unwrap_or(after.len()));
        let url = match url.rsplit_once('@') {
            Some((_, place)) => format!("{HIDDEN}@{place}"),
            None => url.to_owned(),
        };
        match url.split_once('?') {
            Some((place, options)) if has_secret(options) => {
                clean.push_str(place);
                clean.push('?');
                clean.push_str(HIDDEN);
            }
            _ => clean.push_str(&url),
        }
        rest = others;
    }
    clean.push_str(rest);
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_secret_is_hidden_and_the_rest_is_shown() {
        for (text, shown) in [
            ("unexpected 'postgres://a:pw@h/x' found", "unexpected 'postgres://***@h/x' found"),
            ("postgres://a:p@w@h/x", "postgres://***@h/x"),
            ("postgres://h/x?password=pw and more", "postgres://h/x?*** and more"),
            ("https://h/x?store=a&token=pw and more", "https://h/x?*** and more"),
            ("see postgres://… or sqlite:a@b", "see postgres://… or sqlite:a@b"),
            ("two: a://b:c@d, e://f:g@h", "two: a://***@d, e://***@h"),
        ] {
            assert_eq!(in_text(text), shown);
        }
        assert_eq!(userinfo("--to=postgres://a:p w'@h/x"), Some("a:p w'"));
        assert_eq!(userinfo("postgres://h/x"), None);
    }
}
