//! The program that people see first is the same wherever they see it.

use std::{fs, path::Path};

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(root.join(path)).unwrap()
}

/// The first block of code in a text, without the lines that rustdoc hides.
fn first_block(text: &str) -> Vec<String> {
    let lines = text.lines().skip_while(|line| !line.starts_with("```rust")).skip(1);
    let block = lines.take_while(|line| *line != "```");
    block.filter(|line| !line.starts_with("# ")).map(str::to_owned).collect()
}

#[test]
fn the_readme_the_crate_and_the_example_show_one_program() {
    let example = read("examples/readme.rs");
    let program: Vec<_> = example
        .lines()
        .filter(|line| !line.starts_with("//!") && !line.starts_with("#!"))
        .collect();
    assert_eq!(first_block(&read("../../README.md")), program);
    // `exit.rs` shows that a program like this ends.
    assert!(program.contains(&"#[taskharbor::main]"));
    assert_eq!(first_block(&read("src/lib.md")), program);
}

#[test]
fn the_test_in_the_readme_is_eight_lines_at_most() {
    let readme = read("../../README.md");
    let lines = readme.lines().skip_while(|line| !line.starts_with("async fn a_reminder"));
    assert!(lines.skip(1).take_while(|line| *line != "}").count() <= 8);
}
