//! Rules about Rust files: each has a header, and none is too long.

use std::io;

use crate::tree::{File, assert_clean, files};

const MAX_LINES: usize = 600;

fn rust_files() -> io::Result<impl Iterator<Item = File>> {
    Ok(files()?.into_iter().filter(|file| file.is("rs")))
}

fn module_doc_missing(File { path, text }: &File) -> Option<String> {
    let doc = text.strip_prefix("//! ").and_then(|doc| doc.lines().next());
    let missing = doc.is_none_or(|doc| doc.trim().is_empty());
    missing.then(|| format!("{path}: must open with a `//!` line saying what it is for"))
}

fn too_long(File { path, text }: &File) -> Option<String> {
    let lines = text.lines().count();
    (lines > MAX_LINES).then(|| {
        format!("{path}: {lines} lines is over {MAX_LINES}; what is the second thing in it?")
    })
}

#[test]
fn every_source_file_opens_with_a_module_doc() -> io::Result<()> {
    assert_clean(rust_files()?.filter_map(|file| module_doc_missing(&file)));
    Ok(())
}

#[test]
fn a_source_file_without_a_module_doc_is_found() {
    for text in ["", "fn main() {}\n", "/// Its item's.\n", "//!\n", "use a;\n//! Late.\n"] {
        assert!(module_doc_missing(&File::new("a.rs", text)).is_some(), "{text:?}");
    }
    assert!(module_doc_missing(&File::new("a.rs", "//! Says why.\n")).is_none());
}

#[test]
fn no_source_file_is_too_long() -> io::Result<()> {
    assert_clean(rust_files()?.filter_map(|file| too_long(&file)));
    Ok(())
}

#[test]
fn a_source_file_that_is_too_long_is_found() {
    assert!(too_long(&File::new("a.rs", &"\n".repeat(MAX_LINES))).is_none());
    assert!(too_long(&File::new("a.rs", &"\n".repeat(MAX_LINES + 1))).is_some());
}
