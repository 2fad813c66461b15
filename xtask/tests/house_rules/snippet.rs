//! The rule that a reader can follow the guides literally: every block of code in them is compiled or
//! run by a test, and this table says by which.

use std::io;

use crate::tree::{File, assert_clean, files};

/// Blocks that are no code of ours: text, and what other programs are configured with.
const PROSE: [&str; 7] = ["text", "mermaid", "console", "toml", "yaml", "ini", "dockerfile"];

/// The files of which one must include a guide that has such blocks. Blocks of Rust are doctests,
/// wherever the guide is included in documentation.
const HOLDERS: [(&str, &str); 8] = [
    ("rust", "/src/lib.rs"),
    ("rust", "taskharbor/src/guide.rs"),
    ("sql", "taskharbor-postgres/tests/it/guide.rs"),
    ("sh", "taskharbor-cli/tests/scenario/guide.rs"),
    ("python", "/guide.rs"),
    ("python", "clients/python/tests/test_guide.py"),
    ("ts", "clients/typescript/tests/guide.test.js"),
    ("json", "taskharbor-cli/tests/scenario/guide.rs"),
];

/// The opening fences of a text: the number of the line, and what stands behind the fence.
fn fences(text: &str) -> Vec<(usize, &str)> {
    let fences =
        text.lines().zip(1..).filter_map(|(line, at)| Some((at, line.strip_prefix("```")?)));
    fences.step_by(2).collect()
}

fn unheld(guide: &File, sources: &[File]) -> Vec<String> {
    let File { path, text } = guide;
    let name = path.rsplit('/').next().unwrap_or(path);
    let mut complaints = Vec::new();
    for (line, fence) in fences(text) {
        let (language, how) = fence.split_once(',').unwrap_or((fence, ""));
        if PROSE.contains(&language) {
            continue;
        }
        let of_language = HOLDERS.iter().filter(|(held, _)| *held == language);
        let holders: Vec<&str> = of_language.map(|(_, holder)| *holder).collect();
        if holders.is_empty() {
            complaints.push(format!("{path}:{line}: no test is known for blocks of {language:?}"));
            continue;
        }
        if how.contains("ignore") {
            complaints.push(format!("{path}:{line}: an ignored block is not compiled"));
        }
        let includes = |file: &&File| {
            holders.iter().any(|holder| file.path.ends_with(holder))
                && file.text.contains(&format!("/{name}\""))
        };
        if !sources.iter().any(|file| includes(&file)) {
            let holders = holders.join(" or ");
            complaints.push(format!("{path}:{line}: include {name} in a file like {holders}"));
        }
    }
    complaints
}

fn is_holder(file: &File) -> bool {
    file.is("rs") || HOLDERS.iter().any(|(_, holder)| file.path.ends_with(holder))
}

#[test]
fn every_block_of_code_in_the_guides_is_held_by_a_test() -> io::Result<()> {
    let files = files()?;
    let (guides, sources): (Vec<File>, Vec<File>) = files
        .into_iter()
        .filter(|file| is_holder(file) || file.path.starts_with("docs/guides/"))
        .partition(|file| file.is("md"));
    assert!(guides.len() > 5);
    assert_clean(guides.iter().flat_map(|guide| unheld(guide, &sources)));
    Ok(())
}

#[test]
fn a_block_that_no_test_holds_is_found() {
    let source = File::new("crates/a/src/lib.rs", "#[doc = include_str!(\"docs/guides/a.md\")]");
    let check =
        |path: &str, text: &str| unheld(&File::new(path, text), std::slice::from_ref(&source));
    let fence = "`".repeat(3);
    let block = |kind: &str| format!("Text.\n\n{fence}{kind}\nx\n{fence}\n");
    assert!(check("docs/guides/a.md", &block("rust,no_run")).is_empty());
    assert!(check("docs/guides/a.md", &block("mermaid")).is_empty());
    assert_eq!(check("docs/guides/a.md", &block("rust,ignore")).len(), 1);
    assert_eq!(check("docs/guides/b.md", &block("rust,no_run")).len(), 1);
    assert_eq!(check("docs/guides/a.md", &block("sql")).len(), 1);
    assert_eq!(check("docs/guides/a.md", &block("")).len(), 1);
}
