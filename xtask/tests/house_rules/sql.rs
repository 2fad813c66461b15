//! Rules about SQL files: a function is short, and one that is called from SQL alone takes few parameters.

use std::io;

use crate::tree::{File, assert_clean, files};

const MAX_LINES: usize = 80;
const MAX_PARAMETERS: usize = 8;

/// Functions that take the columns of a call one by one: what drivers and people call, and the one that makes rows of the
/// arrays.
fn takes_a_call(name: &str) -> bool {
    name.ends_with("_v1") || name.starts_with("th_enqueue") || name == "th_new_jobs"
}

/// A function in a file: its name, the parameters between its parentheses, and how many lines it has.
struct Function<'a> {
    name: &'a str,
    parameters: &'a str,
    lines: usize,
}

fn functions(text: &str) -> Vec<Function<'_>> {
    let begins = text.match_indices("CREATE FUNCTION ").map(|(at, word)| &text[at + word.len()..]);
    begins
        .filter_map(|rest| {
            let (name, signature) = rest.split_once('(')?;
            let body = rest.find("$$").map_or(rest.len(), |at| at + 2);
            let end = rest[body..].find("$$;").map_or(rest.len(), |at| body + at);
            let (mut depth, mut close) = (1, signature.len());
            for (at, character) in signature.char_indices() {
                depth += i32::from(character == '(') - i32::from(character == ')');
                if depth == 0 {
                    close = at;
                    break;
                }
            }
            let lines = rest[..end].lines().count();
            Some(Function { name, parameters: &signature[..close], lines })
        })
        .collect()
}

/// Parameters that a caller gives.
fn inputs(parameters: &str) -> usize {
    let is_input = |it: &&str| !it.trim().is_empty() && !it.trim().starts_with("OUT ");
    parameters.split(',').filter(is_input).count()
}

fn faults(File { path, text }: &File) -> Vec<String> {
    let mut faults = Vec::new();
    for Function { name, parameters, lines } in functions(text) {
        if lines > MAX_LINES {
            faults.push(format!("{path}: {name} has {lines} lines, over {MAX_LINES}: split it"));
        }
        let inputs = inputs(parameters);
        if inputs > MAX_PARAMETERS && !takes_a_call(name) {
            faults.push(format!(
                "{path}: {name} takes {inputs} parameters, over {MAX_PARAMETERS}: give it a row type"
            ));
        }
    }
    faults
}

#[test]
fn functions_are_short_and_take_few_parameters() -> io::Result<()> {
    let files: Vec<File> = files()?.into_iter().filter(|file| file.is("sql")).collect();
    assert!(files.iter().map(|file| functions(&file.text).len()).sum::<usize>() > 50);
    assert_clean(files.iter().flat_map(faults));
    Ok(())
}

#[test]
fn a_function_that_is_too_long_or_takes_too_much_is_found() {
    let function = |name: &str, parameters: usize, lines: usize| {
        let parameters = vec!["p numeric(1)"; parameters].join(", ");
        let body = "\n".repeat(lines - 1) + "END ";
        let text = format!("CREATE FUNCTION {name}({parameters}, OUT o int) AS $${body}$$;\n");
        faults(&File::new("a.sql", &text)).len()
    };
    assert_eq!(function("th_a", MAX_PARAMETERS, MAX_LINES), 0);
    assert_eq!(function("th_a", MAX_PARAMETERS + 1, MAX_LINES), 1);
    assert_eq!(function("th_a_v1", MAX_PARAMETERS + 1, MAX_LINES), 0);
    assert_eq!(function("th_a", MAX_PARAMETERS, MAX_LINES + 1), 1);
}
