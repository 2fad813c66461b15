//! The programs in the guide, as they stand there.

use std::{env, fs, path::Path, process::Command};

use super::{answer, piped};
use crate::store::Store;

/// The guides that have commands in them.
const COMMANDS: [(&str, &str); 9] = [
    ("command-line.md", include_str!("../../../../docs/guides/command-line.md")),
    ("dashboard.md", include_str!("../../../../docs/guides/dashboard.md")),
    ("dlq.md", include_str!("../../../../docs/guides/dlq.md")),
    ("getting-started.md", include_str!("../../../../docs/guides/getting-started.md")),
    ("handlers-in-any-language.md", GUIDE),
    ("limits.md", include_str!("../../../../docs/guides/limits.md")),
    ("recurring.md", include_str!("../../../../docs/guides/recurring.md")),
    ("tutorial.md", include_str!("../../../../docs/guides/tutorial.md")),
    ("README.md", include_str!("../../../../README.md")),
];

/// The guides that have flows in them.
const FLOWS: [(&str, &str); 2] = [
    ("flow-json.md", include_str!("../../../../docs/guides/flow-json.md")),
    ("workflows.md", include_str!("../../../../docs/guides/workflows.md")),
];

const GUIDE: &str = include_str!("../../../../docs/guides/handlers-in-any-language.md");

/// The block of code that begins so.
fn block(beginning: &str) -> &'static str {
    let (_, rest) = GUIDE.split_once(beginning).unwrap();
    let (code, _) = rest.split_once("```").unwrap();
    code
}

#[test]
fn the_python_program_counts_words() {
    let store = Store::new();
    fs::write(store.dir().join("word_count.py"), block("```python\n")).unwrap();
    let id = store.enqueue(&["text:count", "{\"text\": \"to be or not to be\"}"]);
    let bad = store.enqueue(&["text:count", "[]"]);
    store.work(&["--exec", "text:count=python3 word_count.py"]);
    let job = store.inspect(&id);
    assert_eq!((&job["state"], &job["output"]["words"]), (&"done".into(), &6.into()), "{job}");
    let bad = store.inspect(&bad);
    assert_eq!((&bad["state"], &bad["attempts"]), (&"dlq".into(), &1.into()), "{bad}");
    assert!(bad["last_error"].as_str().unwrap().contains("not a text"), "{bad}");
}

#[test]
fn the_shell_script_copies_a_file() {
    let store = Store::new();
    fs::write(store.dir().join("fetch.sh"), block("## Shell\n\n```sh\n")).unwrap();
    fs::write(store.dir().join("notes.txt"), "some notes\n").unwrap();
    let id = store.enqueue(&["file:copy", "notes.txt"]);
    store.work(&["--exec", "file:copy=sh fetch.sh"]);
    let copy = format!("copy-{id}");
    assert_eq!(store.inspect(&id)["output"], copy.as_str());
    assert_eq!(fs::read_to_string(store.dir().join(copy)).unwrap(), "some notes\n");
}

/// The commands in the shell blocks of a text, each in one line.
fn commands(text: &str) -> Vec<String> {
    let blocks = text.split("\n```sh\n").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split_once("\n```")).map(|(block, _)| block);
    let joined = blocks.map(|block| block.replace("\\\n", " ")).collect::<Vec<_>>().join("\n");
    let lines = joined.lines().filter(|line| line.starts_with("taskharbor "));
    lines.map(str::to_owned).collect()
}

#[test]
fn every_flow_in_the_guides_starts() {
    for (guide, text) in FLOWS {
        let (_, rest) = text.split_once("\n```json\n").unwrap();
        let (document, _) = rest.split_once("\n```").unwrap();
        let store = Store::new();
        let started = piped(&mut store.command(&["flow", "start", "-"]), document.as_bytes());
        assert_eq!(started.code, Some(0), "{guide}: {started:?}");
    }
}

#[test]
fn every_command_in_the_guides_is_understood() {
    for (guide, text) in COMMANDS {
        let store = Store::new();
        fs::write(store.dir().join("word_count.py"), block("```python\n")).unwrap();
        fs::write(store.dir().join("fetch.sh"), block("## Shell\n\n```sh\n")).unwrap();
        fs::write(store.dir().join("notes.txt"), "some notes\n").unwrap();
        let dead = store.enqueue(&["fail", "--max-attempts", "1"]);
        store.work(&["--builtin"]);
        let commands = commands(text);
        assert!(!commands.is_empty(), "{guide} has no commands");
        // The demonstration has tests of its own.
        for command in commands.iter().filter(|it| !it.starts_with("taskharbor demo")) {
            let mut command = command.replace(" ID", &format!(" {dead}"));
            let is_worker = command.split(' ').nth(1) == Some("worker");
            if is_worker && !command.contains("--until-idle") {
                command = command.replacen("worker", "worker --until-idle", 1);
            }
            let bin = Path::new(env!("CARGO_BIN_EXE_taskharbor")).parent().unwrap();
            let path = env::join_paths(
                [bin.into()]
                    .into_iter()
                    .chain(env::split_paths(&env::var_os("PATH").unwrap_or_default())),
            );
            let mut shell = Command::new("sh");
            shell.args(["-c", &command]).current_dir(store.dir());
            shell.env("PATH", path.unwrap()).env("TASKHARBOR_URL", store.url());
            let answer = answer(&mut shell);
            // What is refused because of a job's state was understood.
            assert!(matches!(answer.code, Some(0 | 4)), "{guide}: {command}: {answer:?}");
        }
    }
}
