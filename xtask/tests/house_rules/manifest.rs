//! A small reader of `Cargo.toml`.
//!
//! `cargo metadata` would not do: it answers with inheritance already resolved, and whether a
//! setting is inherited is what the rules ask. This reads the TOML that manifests are written in:
//! tables, dotted keys, inline tables, arrays over several lines; not multi-line strings.

use std::io;

use crate::tree::{File, files};

/// The settings of one manifest, each under its full key, however it was written.
#[derive(Debug)]
pub(crate) struct Manifest {
    pub(crate) path: String,
    settings: Vec<Setting>,
}

#[derive(Debug)]
struct Setting {
    key: Vec<String>,
    value: String,
}

/// A dependency as a manifest declares it.
#[derive(Debug)]
pub(crate) struct Dependency<'a> {
    /// Where it is declared, as in `dependencies.tokio`.
    pub(crate) key: &'a [String],
    pub(crate) name: &'a str,
    pub(crate) kind: Kind,
}

/// Whether users of the crate get the dependency too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Dev,
}

/// The manifest of every package below the root's.
pub(crate) fn members() -> io::Result<Vec<Manifest>> {
    let files = files()?;
    let manifests = files.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    // A workspace of its own may have no package at its root.
    let is_package = |it: &Manifest| it.get(&["package"], "name").is_some();
    Ok(manifests.map(Manifest::read).filter(is_package).collect())
}

impl Manifest {
    pub(crate) fn read(file: &File) -> Self {
        let mut manifest = Self { path: file.path.clone(), settings: Vec::new() };
        let mut table = Vec::new();
        let mut lines = file.text.lines().map(without_comment);
        while let Some(line) = lines.next() {
            if let Some(header) = line.strip_prefix('[') {
                table = parts(header.trim_matches(['[', ']']));
            } else if let Some((key, value)) = line.split_once('=') {
                let mut value = value.trim().to_owned();
                while is_open(&value)
                    && let Some(more) = lines.next()
                {
                    value.push_str(more);
                }
                manifest.add([table.clone(), parts(key)].concat(), &value);
            }
        }
        manifest
    }

    /// An inline table is added field by field, as if it had been written with dotted keys.
    fn add(&mut self, key: Vec<String>, value: &str) {
        let Some(fields) = value.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else {
            self.settings.push(Setting { key, value: value.trim_matches('"').to_owned() });
            return;
        };
        for (name, value) in split(fields, ',').iter().filter_map(|field| field.split_once('=')) {
            self.add([key.clone(), parts(name)].concat(), value.trim());
        }
    }

    /// The value of `field` under `key`.
    pub(crate) fn get(&self, key: &[impl AsRef<str>], field: &str) -> Option<&str> {
        let wanted = || key.iter().map(AsRef::as_ref).chain([field]);
        let setting = self.settings.iter().find(|setting| wanted().eq(&setting.key))?;
        Some(&setting.value)
    }

    pub(crate) fn inherits(&self, key: &[impl AsRef<str>]) -> bool {
        self.get(key, "workspace") == Some("true")
    }

    /// Every dependency, also those for one target only.
    pub(crate) fn dependencies(&self) -> Vec<Dependency<'_>> {
        let mut found: Vec<_> = self.settings.iter().filter_map(dependency_in).collect();
        // One for each of its settings, and those stand together.
        found.dedup_by(|a, b| a.key == b.key);
        found
    }
}

fn dependency_in(setting: &Setting) -> Option<Dependency<'_>> {
    let key = &setting.key;
    let (at, kind) = key.iter().enumerate().find_map(|(at, part)| match part.as_str() {
        "dependencies" | "build-dependencies" => Some((at, Kind::Normal)),
        "dev-dependencies" => Some((at, Kind::Dev)),
        _ => None,
    })?;
    Some(Dependency { key: key.get(..at + 2)?, name: key.get(at + 1)?, kind })
}

fn without_comment(line: &str) -> &str {
    let comment = outside_quotes(line).find(|(_, c)| *c == '#');
    line[..comment.map_or(line.len(), |(at, _)| at)].trim()
}

/// Whether an array or inline table ends on a later line.
fn is_open(value: &str) -> bool {
    outside_quotes(value).map(|(_, c)| nesting(c)).sum::<i32>() > 0
}

fn parts(key: &str) -> Vec<String> {
    let parts = split(key, '.').into_iter();
    parts.map(|part| part.trim().trim_matches(['"', '\'']).to_owned()).collect()
}

/// Splits where the separator is neither quoted nor in brackets.
fn split(text: &str, separator: char) -> Vec<&str> {
    let mut pieces = Vec::new();
    let (mut start, mut depth) = (0, 0);
    for (at, c) in outside_quotes(text) {
        depth += nesting(c);
        if c == separator && depth == 0 {
            pieces.push(&text[start..at]);
            start = at + c.len_utf8();
        }
    }
    pieces.push(&text[start..]);
    pieces
}

fn nesting(c: char) -> i32 {
    match c {
        '[' | '{' => 1,
        ']' | '}' => -1,
        _ => 0,
    }
}

fn outside_quotes(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut quote = None;
    text.char_indices().filter(move |(_, c)| {
        match quote {
            Some(open) if open == *c => quote = None,
            None if matches!(c, '"' | '\'') => quote = Some(*c),
            _ => return quote.is_none(),
        }
        false
    })
}

#[test]
fn a_dependency_is_read_in_every_way_it_can_be_written() {
    let text = r##"
        [package]
        name = "a" # not "b"
        description = "# and [brackets] in a string"
        [dependencies]
        dotted.workspace = true
        inline = { features = [
            "one", # and a comment
            "two",
        ], workspace = true }
        literal = "1.0"
        [target.'cfg(target.os = "linux")'.dependencies]
        targeted = { version = "1" }
        [dev-dependencies.tabled]
        features = ["x"]
        workspace = true
        [build-dependencies]
        built.workspace = true
    "##;
    let manifest = Manifest::read(&File::new("crates/a/Cargo.toml", text));
    assert_eq!(manifest.get(&["package"], "name"), Some("a"));
    let dependencies = manifest.dependencies().into_iter();
    let read: Vec<_> = dependencies.map(|d| (d.name, d.kind, manifest.inherits(d.key))).collect();
    let expected = [
        ("dotted", Kind::Normal, true),
        ("inline", Kind::Normal, true),
        ("literal", Kind::Normal, false),
        ("targeted", Kind::Normal, false),
        ("tabled", Kind::Dev, true),
        ("built", Kind::Normal, true),
    ];
    assert_eq!(read, expected);
}
