//! The documentation site: mdBook makes it from `docs/`.
//!
//! That links lead somewhere is a house rule (`tests/house_rules/link.rs`), which needs no tool. Here the pages that
//! were made are looked at: mdBook makes no page of a file that `SUMMARY.md` does not name.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Failure;
use crate::shell::{root, run};
use crate::tool::MDBOOK;

/// Where `docs/book.toml` has the site written.
const SITE: &str = "target/book";

pub(crate) fn build() -> Result<(), Failure> {
    let mdbook = MDBOOK.find_or_install()?;
    let site = root().join(SITE);
    // Pages of files that are gone would stay.
    let _ = fs::remove_dir_all(&site);
    run(Command::new(mdbook).current_dir(root()).args(["build", "docs"]))?;
    check(&root().join("docs"), &site)?;
    println!("the site: {SITE}/index.html");
    Ok(())
}

/// Every page of `docs` has become a page of the site.
fn check(docs: &Path, site: &Path) -> Result<(), Failure> {
    let missing: Vec<String> = pages(docs)?
        .into_iter()
        .filter(|page| page != "SUMMARY.md")
        .filter(|page| !site.join(page).with_extension("html").is_file())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::Check(format!("docs/SUMMARY.md does not name {}", missing.join(", "))))
}

/// The Markdown files below a folder, relative to it.
fn pages(folder: &Path) -> Result<Vec<String>, Failure> {
    let unreadable = |error| Failure::Check(format!("cannot read {}: {error}", folder.display()));
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() {
            found.extend(pages(&entry.path())?.into_iter().map(|page| format!("{name}/{page}")));
        } else if name.ends_with(".md") {
            found.push(name);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_the_site_does_not_have_is_named() {
        let docs = root().join("docs");
        let Err(Failure::Check(message)) = check(&docs, Path::new("no-such-site")) else {
            panic!("a site without pages passed");
        };
        assert!(message.contains("guides/workers.md"), "{message}");
        assert!(!message.contains("SUMMARY.md,"), "{message}");
    }
}
