//! Holds `docs/SEMANTICS.md`, the suite and the life cycle together.

use std::{
    collections::{BTreeSet, HashSet},
    fs,
    path::{Path, PathBuf},
};

use taskharbor_core::{State, life::LifeStep};

use crate::cases;

fn semantics() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/SEMANTICS.md");
    std::fs::read_to_string(path).expect("docs/SEMANTICS.md is in the repository")
}

/// The numbers of the clauses, in the order of the document.
fn clauses(text: &str) -> Vec<&str> {
    let bold = text.lines().filter_map(|line| line.strip_prefix("- **"));
    bold.filter_map(|line| Some(line.split_once("**")?.0)).collect()
}

#[test]
fn every_clause_has_a_case_and_every_case_cites_a_clause() {
    let text = semantics();
    let written: BTreeSet<&str> = clauses(&text).into_iter().collect();
    let cited: BTreeSet<&str> = cases().flat_map(|case| case.clauses).copied().collect();
    let unproved: Vec<_> = written.difference(&cited).collect();
    let unknown: Vec<_> = cited.difference(&written).collect();
    assert!(unproved.is_empty(), "clauses without a case: {unproved:?}");
    assert!(unknown.is_empty(), "cases cite clauses that do not exist: {unknown:?}");
    assert!(cases().all(|case| !case.clauses.is_empty()));
}

#[test]
fn clauses_are_numbered_without_gaps_or_repeats() {
    let text = semantics();
    let mut last = ("", 0);
    for clause in clauses(&text) {
        let (group, number) = clause.split_once('-').expect("a group and a number");
        let number: u32 = number.parse().expect("a number");
        let expected = if group == last.0 { last.1 + 1 } else { 1 };
        assert_eq!(number, expected, "{clause}");
        last = (group, number);
    }
    let distinct: HashSet<_> = clauses(&text).into_iter().collect();
    assert_eq!(distinct.len(), clauses(&text).len());
    assert!(distinct.len() > 100, "the clauses were not found");
}

#[test]
fn the_names_of_cases_are_distinct_sentences() {
    let names: HashSet<_> = cases().map(|case| (case.group, case.name)).collect();
    assert_eq!(names.len(), cases().count());
    for case in cases() {
        assert!(case.name.split('_').count() >= 3, "{} is not a sentence", case.name);
    }
}

/// `FallDue` is `fall due` in the diagram.
fn in_words(step: LifeStep) -> String {
    let mut words = String::new();
    for letter in format!("{step:?}").chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    words
}

#[test]
fn the_diagram_shows_the_life_cycle_and_nothing_else() {
    let text = semantics();
    let drawn: BTreeSet<String> = text
        .lines()
        .map(str::trim)
        .filter(|line| line.contains("-->") && !line.starts_with("[*]"))
        .map(str::to_owned)
        .collect();
    let mut allowed = BTreeSet::new();
    for state in State::ALL.iter().copied() {
        for step in LifeStep::ALL.iter().copied() {
            if let Some(next) = state.after(step) {
                allowed.insert(format!("{state} --> {next}: {}", in_words(step)));
            }
        }
    }
    assert_eq!(drawn, allowed);
}

/// All Rust and SQL files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.extension().and_then(|it| it.to_str()) {
            Some("rs" | "sql") => files.push(path),
            _ if path.is_dir() => files.extend(sources(&path)),
            _ => {}
        }
    }
    files
}

/// What a file says in comments.
fn comments(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let starts = [line.find("//"), line.find("--")];
        starts.into_iter().flatten().min().map(|start| &line[start..])
    })
}

/// The clauses that the comments in a crate name.
fn named_in(crate_name: &str) -> HashSet<String> {
    let path = format!("{}/../{crate_name}/src", env!("CARGO_MANIFEST_DIR"));
    let mut named = HashSet::new();
    for file in sources(Path::new(&path)) {
        let text = fs::read_to_string(&file).expect("a source is a text");
        let words = comments(&text).flat_map(|comment| {
            comment.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-')
        });
        named.extend(words.map(|word| word.trim_matches('-').to_owned()));
    }
    named
}

/// From rule to code in one search: a clause is named at the code that implements it, in core or
/// else in every driver.
#[test]
fn every_clause_is_named_where_it_is_implemented() {
    let text = semantics();
    let in_core = named_in("taskharbor-core");
    let drivers = ["taskharbor-memory", "taskharbor-sqlite", "taskharbor-postgres"];
    let mut missing = String::new();
    for driver in drivers {
        let named = named_in(driver);
        let absent: Vec<&str> = clauses(&text)
            .into_iter()
            .filter(|clause| !in_core.contains(*clause) && !named.contains(*clause))
            .collect();
        if !absent.is_empty() {
            missing += &format!("\n  {driver}: {}", absent.join(" "));
        }
    }
    assert!(missing.is_empty(), "clauses named neither in core nor in the driver:{missing}");
}
