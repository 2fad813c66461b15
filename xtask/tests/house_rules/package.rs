//! Rules about what is published: a package is unpacked without the rest of the repository, so it has
//! its own copy of every file that its users need, and reads no file outside of itself.

use std::io;

use crate::manifest::{Manifest, members};
use crate::tree::{File, assert_clean, files};

const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// The packages of other languages.
const CLIENTS: [&str; 2] = ["clients/python", "clients/typescript"];

/// Other files that a package has a copy of: the original, and the copy.
const COPIES: [(&str, &str); 1] =
    [("docs/SEMANTICS.md", "crates/taskharbor-conformance/SEMANTICS.md")];

/// The limits of the registry.
const MAX_KEYWORDS: usize = 5;
const MAX_KEYWORD_BYTES: usize = 20;

/// The manifests of the crates that are published.
fn published() -> io::Result<Vec<Manifest>> {
    let manifests = members()?.into_iter().filter(|manifest| {
        let is_published = manifest.get(&["package"], "publish") != Some("false");
        manifest.path.starts_with("crates/") && is_published
    });
    Ok(manifests.collect())
}

/// The directory of a manifest.
fn folder(manifest: &Manifest) -> &str {
    manifest.path.trim_end_matches("/Cargo.toml")
}

fn text_of<'a>(files: &'a [File], path: &str) -> Option<&'a str> {
    files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
}

/// The copies that a package in this directory needs, each after its original.
fn copies_in(folder: &str) -> Vec<(String, String)> {
    let mut copies = Vec::new();
    for licence in LICENCES {
        copies.push((licence.to_owned(), format!("{folder}/{licence}")));
    }
    for (original, copy) in COPIES {
        if copy.starts_with(&format!("{folder}/")) {
            copies.push((original.to_owned(), copy.to_owned()));
        }
    }
    copies
}

fn stale_copies(folder: &str, files: &[File]) -> Vec<String> {
    let copies = copies_in(folder).into_iter();
    let stale = copies.filter(|(original, copy)| {
        let text = text_of(files, original);
        text.is_none() || text != text_of(files, copy)
    });
    stale.map(|(original, copy)| format!("{copy}: must be a copy of {original}")).collect()
}

/// What is missing for the page of a package.
fn incomplete_page(manifest: &Manifest, files: &[File]) -> Vec<String> {
    let Manifest { path, .. } = manifest;
    let package = |field| manifest.get(&["package"], field);
    let mut complaints = Vec::new();
    for field in ["description", "documentation"] {
        if package(field).is_none() {
            complaints.push(format!("{path}: must have a `{field}`"));
        }
    }
    if package("readme") != Some("README.md") {
        complaints.push(format!("{path}: must say `readme = \"README.md\"`"));
    }
    let list = package("keywords").unwrap_or_default();
    let keywords: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
    if keywords.len() > MAX_KEYWORDS || keywords.iter().any(|it| it.len() > MAX_KEYWORD_BYTES) {
        complaints.push(format!("{path}: too many or too long keywords: {list}"));
    }
    let title = format!("# {}", package("name").unwrap_or_default());
    let readme = format!("{}/README.md", folder(manifest));
    match files.iter().find(|file| file.path == readme) {
        Some(file) if file.text.lines().next() != Some(title.as_str()) => {
            complaints.push(format!("{readme}: must begin with `{title}`"));
        }
        Some(file) => complaints.extend(relative_links(file)),
        None => complaints.push(format!("{readme}: is missing")),
    }
    complaints
}

/// Links that lead nowhere on the page of a package.
fn relative_links(File { path, text }: &File) -> Vec<String> {
    let inline = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let lines = text.lines().filter(|line| line.starts_with('['));
    let defined = lines.filter_map(|line| Some(line.split_once("]: ")?.1));
    let relative = inline
        .chain(defined)
        .filter(|target| !target.starts_with("https://") && !target.starts_with('#'));
    relative.map(|target| format!("{path}: `{target}` must be an absolute URL")).collect()
}

/// Files outside of its package that a source is compiled with. Doctests are not part of a package.
fn foreign_includes(folder: &str, File { path, text }: &File) -> Vec<String> {
    let Some(inside) = path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')) else {
        return Vec::new();
    };
    if inside.starts_with("tests/") || inside.starts_with("examples/") {
        return Vec::new();
    }
    let depth = inside.matches('/').count();
    let mut complaints = Vec::new();
    for include in ["include!(\"", "include_str!(\"", "include_bytes!(\""] {
        for (at, _) in text.match_indices(include) {
            let (before, after) = text.split_at(at + include.len());
            let target = after.split('"').next().unwrap_or_default();
            let condition = before.rsplit_once("#[cfg(").map_or("", |(_, condition)| condition);
            let condition = condition.split(']').next().unwrap_or_default();
            if target.matches("../").count() > depth && !condition.contains("doctest") {
                complaints.push(format!("{path}: `{target}` is not in the package"));
            }
        }
    }
    complaints
}

#[test]
fn every_package_has_equal_copies_of_what_it_needs() -> io::Result<()> {
    let (manifests, files) = (published()?, files()?);
    assert!(manifests.len() > 10, "the crates were not found");
    let folders = manifests.iter().map(folder).chain(CLIENTS);
    assert_clean(folders.flat_map(|folder| stale_copies(folder, &files)));
    Ok(())
}

#[test]
fn every_copy_is_in_a_package() -> io::Result<()> {
    let manifests = published()?;
    let is_in_package = |copy: &str| {
        manifests.iter().any(|manifest| copy.starts_with(&format!("{}/", folder(manifest))))
    };
    let lost = COPIES.into_iter().filter(|(_, copy)| !is_in_package(copy));
    assert_clean(lost.map(|(_, copy)| format!("{copy}: is in no published crate")));
    Ok(())
}

#[test]
fn a_copy_that_is_missing_or_differs_is_found() {
    let crate_dir = "crates/taskharbor-conformance";
    let original = |path: &str| File::new(path, "a\n");
    let mut files = vec![original(LICENCES[0]), original(LICENCES[1]), original(COPIES[0].0)];
    assert_eq!(stale_copies(crate_dir, &files).len(), 3);
    assert_eq!(stale_copies("clients/python", &files).len(), 2);
    for (_, copy) in copies_in(crate_dir) {
        files.push(original(&copy));
    }
    assert!(stale_copies(crate_dir, &files).is_empty());
    let changed = files.iter_mut().find(|file| file.path == COPIES[0].1);
    changed.unwrap().text.push('b');
    let found = stale_copies(crate_dir, &files);
    assert_eq!(found, [format!("{}: must be a copy of {}", COPIES[0].1, COPIES[0].0)]);
}

#[test]
fn every_published_crate_has_a_page() -> io::Result<()> {
    let files = files()?;
    assert_clean(published()?.iter().flat_map(|manifest| incomplete_page(manifest, &files)));
    Ok(())
}

#[test]
fn an_incomplete_page_is_found() {
    let text = "[package]\nname = \"a\"\nkeywords = [\"1\", \"2\", \"3\", \"4\", \"5\", \"6\"]\n";
    let manifest = Manifest::read(&File::new("crates/a/Cargo.toml", text));
    assert_eq!(incomplete_page(&manifest, &[]).len(), 5);
    let text = "[package]\nname = \"a\"\ndescription = \"A.\"\ndocumentation = \"https://a\"\n\
                readme = \"README.md\"\nkeywords = [\"a-word-of-twenty-byte\"]\n";
    let manifest = Manifest::read(&File::new("crates/a/Cargo.toml", text));
    let page = |text: &str| vec![File::new("crates/a/README.md", text)];
    assert_eq!(incomplete_page(&manifest, &page("# b\n")).len(), 2);
    let links = "# a\n\n[b](../b.md) [c](https://c) [d]\n\n[d]: docs/d.md\n";
    let found = incomplete_page(&manifest, &page(links));
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[1].contains("`../b.md` must be an absolute URL"), "{found:?}");
    assert!(found[2].contains("`docs/d.md` must be an absolute URL"), "{found:?}");
}

#[test]
fn no_published_source_is_compiled_with_a_file_outside_of_its_package() -> io::Result<()> {
    let (manifests, files) = (published()?, files()?);
    let sources = || files.iter().filter(|file| file.is("rs"));
    let folders = manifests.iter().map(folder);
    let found = folders.flat_map(|dir| sources().flat_map(move |file| foreign_includes(dir, file)));
    assert_clean(found);
    Ok(())
}

#[test]
fn a_source_that_is_compiled_with_a_file_outside_is_found() {
    let check = |path: &str, text: &str| foreign_includes("crates/a", &File::new(path, text));
    let outside = "#[doc = include_str!(\"../../../docs/a.md\")]\nstruct A;\n";
    assert_eq!(check("crates/a/src/lib.rs", outside).len(), 1);
    assert_eq!(check("crates/a/src/b/c.rs", "include!(\"../../../d.rs\");").len(), 1);
    assert!(check("crates/a/src/b/c.rs", "include_bytes!(\"../../d.png\")").is_empty());
    assert!(check("crates/a/src/lib.rs", &format!("#[cfg(doctest)]\n{outside}")).is_empty());
    let other_condition = format!("#[cfg(doctest)]\nmod a;\n#[cfg(unix)]\n{outside}");
    assert_eq!(check("crates/a/src/lib.rs", &other_condition).len(), 1);
    assert!(check("crates/a/tests/it/main.rs", outside).is_empty());
    assert!(check("crates/ab/src/lib.rs", outside).is_empty());
}
