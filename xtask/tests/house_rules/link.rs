//! The rule that links in Markdown lead somewhere: to a file that is there, and to a heading in it. Pages of the
//! documentation site link among themselves, or to the repository by its whole address.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use crate::tree::{File, assert_clean, files};

/// Where the targets of links to the repository stand, as seen from outside.
const REPOSITORY: &str = "https://github.com/taskharbor/taskharbor/blob/main/";

/// A link: its line, and what it leads to.
#[derive(Debug, PartialEq, Eq)]
struct Link {
    line: usize,
    target: String,
}

/// The lines of a page outside blocks of code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_block = false;
    text.lines().zip(1..).filter_map(move |(line, number)| {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
            return None;
        }
        (!in_block).then_some((number, line))
    })
}

/// A line without what stands between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

fn links(text: &str) -> Vec<Link> {
    let mut found = Vec::new();
    for (line, content) in prose(text) {
        let content = without_code(content);
        for part in content.split("](").skip(1) {
            let Some((target, _)) = part.split_once(')') else { continue };
            found.push(Link { line, target: target.trim().to_owned() });
        }
    }
    found
}

/// The name of a heading as code hosts and mdBook make it.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            c if c.is_alphanumeric() => Some(c),
            _ => None,
        })
        .collect()
}

fn anchors(text: &str) -> HashSet<String> {
    let mut found = HashSet::new();
    for (_, line) in prose(text).filter(|(_, line)| line.starts_with('#')) {
        let name = anchor(line);
        // The second heading of a name gets a number.
        let numbered = (1..).map(|number| format!("{name}-{number}"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|it| !found.contains(it));
        found.extend(free);
    }
    // Clauses and the like are marked in place.
    let named = text.split("<a id=\"").skip(1).filter_map(|part| part.split_once('"'));
    found.extend(named.map(|(name, _)| name.to_owned()));
    found
}

/// A path relative to the root, from the file that names it.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// What is wrong with a link, if anything is.
fn complaint(page: &File, link: &Link, files: &[File]) -> Option<String> {
    let at = format!("{}:{}", page.path, link.line);
    let (target, fragment) = link.target.split_once('#').unwrap_or((&link.target, ""));
    let in_repository = target.strip_prefix(REPOSITORY);
    if in_repository.is_none() && (target.contains("://") || target.starts_with("mailto:")) {
        return None;
    }
    let path = match in_repository {
        Some(path) => path.to_owned(),
        None if target.is_empty() => page.path.clone(),
        None => resolve(&page.path, target),
    };
    if in_repository.is_none() && page.path.starts_with("docs/") && !path.starts_with("docs") {
        let address = format!("{REPOSITORY}{path}");
        return Some(format!("{at}: `{target}` is not on the site; link to {address}"));
    }
    let itself = std::iter::once(page);
    let Some(file) = itself.chain(files).find(|file| file.path == path) else {
        let is_there = Path::new("..").join(&path).exists();
        return (!is_there).then(|| format!("{at}: `{}` leads nowhere", link.target));
    };
    let is_missing =
        !fragment.is_empty() && file.is("md") && !anchors(&file.text).contains(fragment);
    is_missing.then(|| format!("{at}: {path} has no heading `#{fragment}`"))
}

fn complaints(page: &File, files: &[File]) -> Vec<String> {
    links(&page.text).iter().filter_map(|link| complaint(page, link, files)).collect()
}

#[test]
fn links_in_pages_lead_somewhere() -> io::Result<()> {
    let files = files()?;
    // In Markdown that is documentation of code, links may lead to items of the code.
    let is_page = |file: &&File| {
        file.is("md") && !["/vendor/", "/src/"].iter().any(|part| file.path.contains(part))
    };
    let pages = files.iter().filter(is_page);
    assert_clean(pages.flat_map(|page| complaints(page, &files)));
    Ok(())
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let files = [
        File::new("docs/a.md", "# One\n\n## Two: it's `x`\n\n## One\n"),
        File::new("README.md", "# Top\n"),
    ];
    let wrong = |path: &str, text: &str| complaints(&File::new(path, text), &files);
    let good = "[a](a.md) [b](a.md#two-its-x) [c](a.md#one-1) [d](https://example.com/#x) [e](#top)\n# Top\n";
    assert_eq!(wrong("docs/b.md", good), [""; 0]);
    assert_eq!(wrong("docs/b.md", "[a](c.md)").len(), 1);
    assert_eq!(wrong("docs/b.md", "[a](a.md#three)").len(), 1);
    assert_eq!(wrong("docs/b.md", "[a](../README.md)").len(), 1);
    assert_eq!(wrong("docs/b.md", &format!("[a]({REPOSITORY}README.md)")), [""; 0]);
    assert_eq!(wrong("docs/b.md", &format!("[a]({REPOSITORY}none.md)")).len(), 1);
    assert_eq!(wrong("README.md", "[a](docs/a.md#one)"), [""; 0]);
    assert_eq!(wrong("README.md", "```\n[a](none.md)\n```\n`[a](none.md)`\n"), [""; 0]);
}

#[test]
fn every_page_of_the_site_is_in_its_contents() -> io::Result<()> {
    let files = files()?;
    let Some(contents) = files.iter().find(|file| file.path == "docs/SUMMARY.md") else {
        panic!("docs/SUMMARY.md is missing");
    };
    let named: HashSet<String> =
        links(&contents.text).iter().map(|link| resolve("docs/SUMMARY.md", &link.target)).collect();
    let pages = files.iter().filter(|file| file.path.starts_with("docs/") && file.is("md"));
    let missing = pages.filter(|page| page.path != contents.path && !named.contains(&page.path));
    assert_clean(missing.map(|page| format!("docs/SUMMARY.md does not name {}", page.path)));
    Ok(())
}
