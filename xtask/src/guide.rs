//! `cargo xtask guides`: writes the copies of the guides that the crate `taskharbor` has for its documentation.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Failure;
use crate::guide_copy::{COPIES, GUIDES, path, text};
use crate::shell::{cannot, root};

pub(crate) fn copy() -> Result<(), Failure> {
    let root = root();
    let (mut written, mut kept) = (0, Vec::new());
    for guide in pages(&root.join(GUIDES))? {
        let relative = slashed(guide.strip_prefix(&root).unwrap_or(&guide));
        let Some(copy) = path(&relative).map(|copy| root.join(copy)) else { continue };
        let original =
            fs::read_to_string(&guide).map_err(|error| cannot("read", &guide, &error))?;
        let wanted = text(&relative, &original);
        if fs::read_to_string(&copy).ok().as_deref() != Some(wanted.as_str()) {
            write(&copy, &wanted)?;
            written += 1;
        }
        kept.push(copy);
    }
    let mut removed = 0;
    for copy in pages(&root.join(COPIES))?.iter().filter(|copy| !kept.contains(copy)) {
        fs::remove_file(copy).map_err(|error| cannot("remove", copy, &error))?;
        removed += 1;
    }
    println!("{} guides: {written} copies written, {removed} removed", kept.len());
    Ok(())
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let folder = file.parent().unwrap_or(file);
    fs::create_dir_all(folder).map_err(|error| cannot("create", folder, &error))?;
    Ok(fs::write(file, text).map_err(|error| cannot("write", file, &error))?)
}

fn slashed(path: &Path) -> String {
    path.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/")
}

/// The Markdown files below a folder, or none if there is no such folder.
fn pages(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    if !folder.exists() {
        return Ok(found);
    }
    let unreadable = |error| cannot("read", folder, &error);
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.is_dir() {
            found.extend(pages(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
