//! The servers and programs to test with: those that the environment names, else those that this process
//! provides for itself.
//!
//! `cargo xtask test` provides them once for all test programs and sets the variables that
//! `taskharbor-provision` lists. Under a plain `cargo test`, the first test that needs one of them provides it.
//! A guardian process notices the end of the test program, also if it is killed, and stops its servers.

use std::{
    env,
    ffi::OsString,
    io::{self, Write},
    process,
    sync::{LazyLock, Mutex},
};

use taskharbor_provision::{Bouncer, Browser, Error, Options, Stage, Variable};

/// The exit code of test programs in which tests have failed.
const TESTS_FAILED: i32 = 101;

/// Set by `cargo xtask`, which has then provided everything that there is.
const RUN_DIR: &str = "TASKHARBOR_PG_DIR";

static STAGE: LazyLock<Stage> = LazyLock::new(|| available(Stage::set(Options::from_env())));
static SERVER: LazyLock<String> = LazyLock::new(|| available(STAGE.start_server()));
static BOUNCER: LazyLock<Bouncer> = LazyLock::new(|| available(STAGE.bouncer()));
static BROWSER: LazyLock<Browser> =
    LazyLock::new(|| available(Browser::find(Options::from_env().installing)));

/// A variable that names a server, a program or a directory. If there is none, the process ends.
pub fn required(name: &str) -> String {
    let message =
        || format!("{name} is not set: run `cargo xtask test`, which says what is missing");
    optional(name).unwrap_or_else(|| give_up(&message()))
}

/// A variable that need not have a value.
pub fn optional(name: &str) -> Option<String> {
    set(name).or_else(|| provided(name))
}

fn set(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// The value of a variable that is not set.
fn provided(name: &str) -> Option<String> {
    if set(RUN_DIR).is_some() {
        return None;
    }
    let value = match name {
        "TASKHARBOR_TEST_POSTGRES" => Some(SERVER.clone().into()),
        _ if name.starts_with("TASKHARBOR_PG_") => value_of(name, STAGE.variables()),
        _ if name.starts_with("TASKHARBOR_PGBOUNCER") => value_of(name, BOUNCER.variables()),
        _ if name.starts_with("TASKHARBOR_CHROMIUM") => value_of(name, BROWSER.variables()),
        _ => None,
    };
    value.and_then(|value| value.into_string().ok())
}

fn value_of(name: &str, variables: impl IntoIterator<Item = Variable>) -> Option<OsString> {
    variables.into_iter().find(|(variable, _)| *variable == name)?.1
}

fn available<T>(provided: Result<T, Error>) -> T {
    provided.unwrap_or_else(|error| give_up(&error.to_string()))
}

/// Ends the process. Every test would fail for the same reason, and thousands of failures would
/// hide it; and what a test prints in the usual way is only seen when it has ended.
pub fn give_up(message: &str) -> ! {
    static ONCE: Mutex<()> = Mutex::new(());
    let _first = ONCE.lock();
    let _ = writeln!(io::stderr(), "error: {message}");
    process::exit(TESTS_FAILED);
}

/// Prints a warning that must be seen even if the test that prints it passes.
pub fn announce(message: &str) {
    let _ = writeln!(io::stderr(), "WARNING: {message}");
}

#[cfg(all(test, unix))]
mod tests {
    use std::{
        fs::File,
        io::{BufRead, BufReader},
        net::TcpStream,
        path::Path,
        process::{Command, Stdio},
    };

    use super::*;

    /// Set in a process that the test starts.
    const PROVIDES: &str = "TASKHARBOR_TESTKIT_PROVIDES";

    /// Not a test by itself: provides a server and waits to be killed.
    #[test]
    fn a_process_that_provides_a_server() {
        if set(PROVIDES).is_none() {
            return;
        }
        println!("\nserver {}", required("TASKHARBOR_TEST_POSTGRES"));
        println!("dir {}", required(RUN_DIR));
        let _ = io::stdin().read_line(&mut String::new());
    }

    /// The value of the next line that begins with `key`.
    fn value(lines: &mut impl Iterator<Item = String>, key: &str) -> String {
        let value = lines.find_map(|line| Some(line.strip_prefix(key)?.trim().to_owned()));
        value.unwrap_or_else(|| panic!("it has printed no {key}"))
    }

    fn address(url: &str) -> &str {
        url.split(['@', '/']).nth(3).expect("the URL has an address")
    }

    #[test]
    fn a_server_of_a_test_program_that_is_killed_is_stopped_and_removed() {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "environment::tests::a_process_that_provides_a_server"]);
        command.arg("--nocapture").env(PROVIDES, "1");
        command.env_remove(RUN_DIR).env_remove("TASKHARBOR_TEST_POSTGRES");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let (url, dir) = (value(&mut lines, "server "), value(&mut lines, "dir "));
        assert!(TcpStream::connect(address(&url)).is_ok(), "{url}");
        // The guardian has locked this file and removes it last.
        let lock = File::open(format!("{dir}.lock")).unwrap();
        assert!(lock.try_lock().is_err());

        child.kill().unwrap();
        child.wait().unwrap();
        lock.lock().unwrap();
        assert!(!Path::new(&dir).exists(), "{dir} was not removed");
        assert!(TcpStream::connect(address(&url)).is_err(), "{url} still answers");
    }
}
