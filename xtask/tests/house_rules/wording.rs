//! Rules about what files may say: they name no package registry, which is a fact of a machine and
//! goes stale in a repository, and they use the words of `docs/GLOSSARY.md`.
//!
//! The names of hosts are put together here from halves, so that this file obeys its own rule.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use crate::tree::{File, assert_clean, files};

/// Parts of host names by which package registries and their mirrors are known.
const REGISTRY_HOSTS: [&str; 6] = [
    concat!("crates", ".io"),
    concat!("npm", "js."),
    concat!("pypi", ".org"),
    concat!("python", "hosted.org"),
    concat!("j", "frog.io"),
    concat!("arti", "factory"),
];

const GLOSSARY: &str = "docs/GLOSSARY.md";

fn registry_hosts(file: &File) -> Vec<String> {
    let lines = file.text.lines().zip(1..);
    let found = lines.filter_map(|(line, number)| {
        let line = line.to_lowercase();
        let host = REGISTRY_HOSTS.into_iter().find(|host| line.contains(host))?;
        Some(format!("{}:{number}: names a package registry (`{host}`)", file.path))
    });
    found.collect()
}

/// A synonym that the glossary has retired.
#[derive(Debug)]
struct Retired {
    /// As the glossary writes it, without code font.
    word: String,
    /// The same in the form of [`normalized`] texts.
    normal: String,
    /// Whether it stands in code font: then it is forbidden inside identifiers alone.
    is_code: bool,
    /// The word to use in its place.
    instead: String,
}

impl Retired {
    /// The numbers of the lines in which a [`normalized`] text has the word, the plural included.
    fn lines(&self, text: &str) -> Vec<usize> {
        let found = text.match_indices(&self.normal).filter(|(at, word)| {
            let after = &text[at + word.len()..];
            let after = after.strip_prefix('s').unwrap_or(after);
            !text[..*at].ends_with(char::is_alphanumeric)
                && !after.starts_with(char::is_alphanumeric)
        });
        found.map(|(at, _)| text[..at].matches('\n').count() + 1).collect()
    }
}

/// The text of the glossary. Cargo runs a test in the folder of its package.
fn glossary() -> io::Result<String> {
    fs::read_to_string(Path::new("..").join(GLOSSARY))
}

/// The rows of the glossary's tables: a word, its meaning, its retired synonyms.
fn rows(glossary: &str) -> Vec<Vec<&str>> {
    let rows = glossary.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix('|'));
    let rows = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    rows.filter(|cells| cells[0] != "word").collect()
}

fn retired(glossary: &str) -> Vec<Retired> {
    let mut retired = Vec::new();
    for cells in rows(glossary) {
        let [instead, _, synonyms] = cells[..] else { continue };
        for synonym in synonyms.split(", ").filter(|synonym| !synonym.is_empty()) {
            let word = synonym.trim_matches('`');
            retired.push(Retired {
                word: word.to_owned(),
                normal: normalized(word),
                is_code: word != synonym,
                instead: instead.to_owned(),
            });
        }
    }
    retired
}

/// The text in lower case. `_` joins the words of an identifier, also where a capital began the next
/// one; a space stands between words that a space or a hyphen separates; `|` is anything else.
fn normalized(text: &str) -> String {
    let mut normal = String::with_capacity(text.len());
    let mut before = ' ';
    for c in text.chars() {
        if c.is_uppercase() && (before.is_lowercase() || before.is_numeric()) {
            normal.push('_');
        }
        match c {
            '_' | '\n' => normal.push(c),
            ' ' | '-' => normal.push(' '),
            _ if c.is_alphanumeric() => normal.extend(c.to_lowercase()),
            _ => normal.push('|'),
        }
        before = c;
    }
    normal
}

/// Sources and documents. The glossary has to name what it retires, the changelog is history, and
/// vendored files have authors of their own.
fn obeys_the_glossary(file: &File) -> bool {
    let is_exempt = file.path == GLOSSARY || file.path == "CHANGELOG.md";
    let is_vendored = file.path.contains("/vendor/");
    let extensions = ["rs", "sql", "md", "py", "ts", "js"];
    !is_exempt && !is_vendored && extensions.iter().any(|extension| file.is(extension))
}

fn retired_words(file: &File, retired: &[Retired]) -> Vec<String> {
    let code = normalized(&file.text);
    let prose = code.replace('_', " ");
    let mut complaints = Vec::new();
    for synonym in retired {
        let Retired { word, instead, .. } = synonym;
        for line in synonym.lines(if synonym.is_code { &code } else { &prose }) {
            let path = &file.path;
            complaints.push(format!("{path}:{line}: `{word}` is retired: use `{instead}`"));
        }
    }
    complaints
}

#[test]
fn no_file_names_a_package_registry() -> io::Result<()> {
    // The lock file is cargo's to write, and must say where packages come from.
    let files = files()?.into_iter().filter(|file| !file.path.ends_with("Cargo.lock"));
    assert_clean(files.flat_map(|file| registry_hosts(&file)));
    Ok(())
}

#[test]
fn a_file_that_names_a_package_registry_is_found() {
    for host in REGISTRY_HOSTS {
        let text = format!("[source]\nregistry = 'https://index.{}/'\n", host.to_uppercase());
        let found = registry_hosts(&File::new("a.toml", &text));
        assert_eq!(found, [format!("a.toml:2: names a package registry (`{host}`)")]);
    }
    assert!(registry_hosts(&File::new("a.md", "A registry of crates.\n")).is_empty());
}

#[test]
fn no_file_uses_a_retired_word() -> io::Result<()> {
    let retired = retired(&glossary()?);
    let files = files()?.into_iter().filter(obeys_the_glossary);
    assert_clean(files.flat_map(|file| retired_words(&file, &retired)));
    Ok(())
}

#[test]
fn a_file_that_uses_a_retired_word_is_found() {
    let table = "| word | meaning | retired synonyms |\n|---|---|---|\n\
                 | job | work | |\n| spot | where it is | glorp, over yonder, `yonder_at` |\n";
    let retired = retired(table);
    let check = |text: &str| retired_words(&File::new("a.rs", text), &retired);
    assert_eq!(check("\n// Two glorps.\n"), ["a.rs:2: `glorp` is retired: use `spot`"]);
    for text in [
        "fn glorp_of() {}",
        "struct OldGlorp;",
        "GLORP",
        "It is over yonder.",
        "let over_yonder = 1;",
        "old_yonder_at(1)",
        "yonderAt",
    ] {
        assert_eq!(check(text).len(), 1, "{text}");
    }
    for text in ["glorping", "over (yonder)", "over\nyonder", "yonder at last", "yonder_attic"] {
        assert!(check(text).is_empty(), "{text}");
    }
}

#[test]
fn the_glossary_is_for_sources_and_documents_of_ours() {
    let obeys = |path: &str| obeys_the_glossary(&File::new(path, ""));
    assert!(obeys("crates/a/src/lib.rs") && obeys("docs/guides/a.md") && obeys("a/b.sql"));
    assert!(!obeys("assets/vendor/a.js") && !obeys("CHANGELOG.md") && !obeys(GLOSSARY));
    assert!(!obeys("Cargo.lock"));
}

#[test]
fn the_glossary_has_a_meaning_for_each_word_and_each_word_once() -> io::Result<()> {
    let glossary = glossary()?;
    let rows = rows(&glossary);
    assert!(rows.len() > 50, "{} rows", rows.len());
    for cells in &rows {
        assert!(cells.len() == 3 && !cells[1].is_empty(), "not a row of three cells: {cells:?}");
    }
    let retired = retired(&glossary);
    assert!(retired.len() > 30, "{} retired words", retired.len());
    let words = rows.iter().map(|cells| normalized(cells[0]));
    let mut seen = BTreeSet::new();
    let words = words.chain(retired.into_iter().map(|it| it.normal));
    let twice: Vec<String> = words.filter(|word| !seen.insert(word.clone())).collect();
    assert!(twice.is_empty(), "twice in the glossary: {twice:?}");
    Ok(())
}
