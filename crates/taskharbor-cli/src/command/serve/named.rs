//! The stores of a server and their names: `--url NAME=URL`.

use taskharbor_web::StoreKind;

use crate::{
    failure::{Failure, Outcome},
    store::Url,
};

/// The name of the only store, unless it is given one.
const DEFAULT_NAME: &str = "main";

/// A store and the name under which it is served.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) url: Url,
}

impl Named {
    pub(super) fn kind(&self) -> StoreKind {
        match self.url.as_str().split_once(':') {
            Some(("sqlite", _)) => StoreKind::Sqlite,
            Some(("postgres" | "postgresql", _)) => StoreKind::Postgres,
            Some(("http" | "https", _)) => StoreKind::Http,
            _ => StoreKind::Other,
        }
    }
}

/// The stores that these options name; without any, the one that other commands use.
pub(super) fn read(options: &[String]) -> Outcome<Vec<Named>> {
    if options.is_empty() {
        return Ok(vec![Named { name: DEFAULT_NAME.to_owned(), url: Url::find(None)? }]);
    }
    let mut named: Vec<Named> = Vec::with_capacity(options.len());
    for option in options {
        let (name, url) = split(option);
        if name.is_none() && options.len() > 1 {
            return Err(Failure::usage(
                "each of several stores needs a name: write --url NAME=URL for every store",
            ));
        }
        let name = name.unwrap_or(DEFAULT_NAME);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
            return Err(Failure::usage(format!(
                "invalid store name {name:?}: use 1 to 64 letters, digits, '-' and '_'"
            )));
        }
        let is_reserved = matches!(name, "stores" | "session" | "default");
        if is_reserved || named.iter().any(|it| it.name == name) {
            return Err(Failure::usage(format!(
                "the store name {name:?} is taken: choose another one"
            )));
        }
        named.push(Named { name: name.to_owned(), url: Url::find(Some(url.to_owned()))? });
    }
    Ok(named)
}

/// The name before the URL, if there is one. A URL may have a `=` as well, but after its scheme.
fn split(option: &str) -> (Option<&str>, &str) {
    match option.split_once('=') {
        Some((name, url)) if !name.contains([':', '/', '@']) => (Some(name), url),
        _ => (None, option),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_before_the_url() {
        for (option, expected) in [
            ("sqlite:a.db", (None, "sqlite:a.db")),
            ("eu=sqlite:a.db", (Some("eu"), "sqlite:a.db")),
            ("sqlite:a.db?payload_limit=5", (None, "sqlite:a.db?payload_limit=5")),
            ("eu=postgres://h/d?schema=s", (Some("eu"), "postgres://h/d?schema=s")),
            ("postgres://a:b=c@h/d", (None, "postgres://a:b=c@h/d")),
        ] {
            assert_eq!(split(option), expected);
        }
    }

    #[test]
    fn stores_have_names_of_their_own() {
        let read = |options: &[&str]| {
            let options: Vec<_> = options.iter().map(|it| (*it).to_owned()).collect();
            read(&options).map(|all| all.into_iter().map(|it| it.name).collect::<Vec<_>>())
        };
        assert_eq!(read(&["sqlite:a.db"]).unwrap(), ["main"]);
        assert_eq!(read(&["a=sqlite:a.db", "b=sqlite:b.db"]).unwrap(), ["a", "b"]);
        for wrong in [
            &["a=sqlite:a.db", "sqlite:b.db"][..],
            &["a=sqlite:a.db", "a=sqlite:b.db"],
            &["=sqlite:a.db"],
            &["a b=sqlite:a.db"],
            &["session=sqlite:a.db"],
            &["a="],
        ] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
