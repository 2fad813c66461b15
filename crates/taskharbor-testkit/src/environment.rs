//! The environment variables with which `cargo xtask test` names servers and programs.

use std::{
    env,
    io::{self, Write},
    process,
    sync::Mutex,
};

/// How test programs end when tests have failed.
const TESTS_FAILED: i32 = 101;

/// A variable that is set whenever there is a server.
pub fn required(name: &str) -> String {
    let message = "no PostgreSQL server: run `cargo xtask test`, which starts one";
    optional(name).unwrap_or_else(|| give_up(message))
}

/// A variable that may have nothing to say.
pub fn optional(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Ends the process. Every test would fail for the same reason, and thousands of failures would
/// hide it; and what a test prints in the usual way is only seen when it has ended.
pub fn give_up(message: &str) -> ! {
    static ONCE: Mutex<()> = Mutex::new(());
    let _first = ONCE.lock();
    let _ = writeln!(io::stderr(), "error: {message}");
    process::exit(TESTS_FAILED);
}

/// Says something that must be seen even if the test that says it passes.
pub fn announce(message: &str) {
    let _ = writeln!(io::stderr(), "WARNING: {message}");
}
