//! The files of the repository, as the rules see them.

use std::fs;
use std::io;
use std::path::Path;

/// A text file, its path relative to the root and with forward slashes.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    pub(crate) fn is(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|found| found == extension)
    }
}

/// Every text file of the repository, build output and installed packages aside.
pub(crate) fn files() -> io::Result<Vec<File>> {
    let mut files = Vec::new();
    // Cargo runs a test in the folder of its package; a path compiled in would not survive a move.
    collect(Path::new(".."), "", &mut files)?;
    Ok(files)
}

fn collect(dir: &Path, prefix: &str, files: &mut Vec<File>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if [".git", "target", "node_modules"].contains(&name.as_str()) {
            continue;
        }
        let path = format!("{prefix}{name}");
        let kind = entry.file_type()?;
        if kind.is_dir() {
            collect(&entry.path(), &format!("{path}/"), files)?;
        } else if kind.is_file() {
            // What is not UTF-8 is not text, and no rule speaks about it.
            if let Ok(text) = String::from_utf8(fs::read(entry.path())?) {
                files.push(File { path, text });
            }
        }
    }
    Ok(())
}

/// Fails with every complaint at once, so that one run shows all there is to mend.
#[track_caller]
pub(crate) fn assert_clean(complaints: impl IntoIterator<Item = String>) {
    let complaints: Vec<String> = complaints.into_iter().collect();
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn the_walk_sees_sources_and_not_build_output() -> io::Result<()> {
    let paths: Vec<String> = files()?.into_iter().map(|file| file.path).collect();
    assert!(paths.iter().any(|path| path == "Cargo.toml"));
    assert!(paths.iter().any(|path| path == ".cargo/config.toml"));
    assert!(paths.iter().any(|path| path == "xtask/tests/house_rules/tree.rs"));
    assert!(!paths.iter().any(|path| path.starts_with("target/") || path.starts_with(".git/")));
    Ok(())
}
