//! Rules about what files may say: where packages come from and how work is organised are facts of
//! someone's machine and calendar, and go stale in a repository.
//!
//! The forbidden words are put together here from halves, so that this file obeys its own rules.

use std::io;

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

/// A word in lower case here is meant in any case; one in capitals only as it stands.
const WORK_TALK: [&str; 7] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("W", "IP"),
    concat!("mile", "stone"),
    concat!("road", "map"),
    concat!("spr", "int"),
];

fn registry_hosts(file: &File) -> Vec<String> {
    complaints(file, "names a package registry", |line| {
        let line = line.to_lowercase();
        REGISTRY_HOSTS.into_iter().find(|host| line.contains(host))
    })
}

fn work_talk(file: &File) -> Vec<String> {
    complaints(file, "talks about how work is organised", |line| {
        line.split(|c: char| !c.is_alphanumeric()).find_map(|word| {
            let singular = word.strip_suffix(['s', 'S']).unwrap_or(word);
            let lower = singular.to_lowercase();
            WORK_TALK.into_iter().find(|talk| *talk == singular || *talk == lower)
        })
    })
}

/// One complaint for each line in which `find` finds something.
fn complaints(
    file: &File,
    wrong: &str,
    find: impl Fn(&str) -> Option<&'static str>,
) -> Vec<String> {
    let lines = file.text.lines().zip(1..);
    let found = lines.filter_map(|(line, number)| Some((number, find(line)?)));
    found.map(|(number, word)| format!("{}:{number}: {wrong} (`{word}`)", file.path)).collect()
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
fn no_source_or_document_talks_about_how_work_is_organised() -> io::Result<()> {
    let files = files()?;
    let prose = files.iter().filter(|file| file.is("rs") || file.is("md"));
    assert_clean(prose.flat_map(work_talk));
    Ok(())
}

#[test]
fn a_file_that_talks_about_how_work_is_organised_is_found() {
    for word in WORK_TALK {
        let text = format!("//! Fine.\n// {word}s: later\n");
        let found = work_talk(&File::new("a.rs", &text));
        assert_eq!(found, [format!("a.rs:2: talks about how work is organised (`{word}`)")]);
    }
    let capitals = concat!("MILE", "STONES");
    assert_eq!(work_talk(&File::new("a.md", capitals)).len(), 1);
    assert!(work_talk(&File::new("a.md", "A todo list, printed by sprintf.")).is_empty());
}
