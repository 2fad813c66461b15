//! The programs in the guide, as they stand there.

use std::fs;

use crate::store::Store;

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
