//! The rule that the documentation of the crate `taskharbor` has every guide: a copy in its package, and a module that
//! includes it.

use std::io;

use crate::guide_copy::{COPIES, GUIDES, path, text};
use crate::tree::{File, assert_clean, files};

/// The file with the modules.
const MODULES: &str = "crates/taskharbor/src/guide.rs";

fn complaints(files: &[File]) -> Vec<String> {
    let find = |path: &str| files.iter().find(|file| file.path == path);
    let modules = find(MODULES).map_or("", |file| &file.text);
    let mut complaints = Vec::new();
    let mut copies = Vec::new();
    for guide in files {
        let Some(copy) = path(&guide.path) else { continue };
        if find(&copy).map(|file| &file.text) != Some(&text(&guide.path, &guide.text)) {
            complaints.push(format!("{copy}: not the copy of {}: cargo xtask guides", guide.path));
        }
        let name = guide.path.trim_start_matches(GUIDES);
        if !modules.contains(&format!("include_str!(\"guide/{name}\")")) {
            complaints.push(format!("{MODULES}: has no module for {}", guide.path));
        }
        copies.push(copy);
    }
    let is_lost = |file: &&File| file.path.starts_with(COPIES) && !copies.contains(&file.path);
    let lost = files.iter().filter(is_lost);
    complaints.extend(lost.map(|file| format!("{}: is no copy: cargo xtask guides", file.path)));
    complaints
}

#[test]
fn the_documentation_of_the_library_has_every_guide() -> io::Result<()> {
    assert_clean(complaints(&files()?));
    Ok(())
}

#[test]
fn a_guide_that_the_documentation_does_not_have_is_found() {
    let guide = |text: &str| File::new("docs/guides/a.md", text);
    let copy = || File::new("crates/taskharbor/src/guide/a.md", "[b](crate::guide::b)\n");
    let modules = || File::new(MODULES, "#[doc = include_str!(\"guide/a.md\")]\npub mod a {}\n");
    assert_eq!(complaints(&[guide("[b](b.md)\n"), copy(), modules()]), [""; 0]);
    assert_eq!(complaints(&[guide("[b](c.md)\n"), copy(), modules()]).len(), 1);
    assert_eq!(complaints(&[guide("[b](b.md)\n"), copy()]).len(), 1);
    assert_eq!(complaints(&[guide("[b](b.md)\n"), modules()]).len(), 1);
    assert_eq!(complaints(&[copy(), modules()]).len(), 1);
}
