//! Running tests that may hang: a command that has printed nothing for too long is killed.
//!
//! A test that waits for an event which a broken worker never sends would stall CI for hours. A time
//! limit inside the tests does not help: most of them run in virtual time, in which any limit is
//! reached at once. So the limit is on the silence of the whole command, in real time. `libtest` names
//! each test that runs for more than a minute, and the failure repeats those that have not ended.

use std::env;
use std::io::{self, IsTerminal, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use crate::Failure;
use crate::progress::Progress;
use crate::shell::{command_line, output};

/// The longest silence: longer than the slowest crate takes to compile, and any test to run.
const LIMIT: Duration = Duration::from_secs(600);

/// How often to look whether the command has ended although its output has not: a process that it
/// left behind may keep that open.
const TICK: Duration = Duration::from_secs(1);

/// Output of the command, as it came.
enum Chunk {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
}

/// Prints a command, runs it, and lets its output through. A failure names it; one that has printed
/// nothing for ten minutes is killed together with all its descendants, and counts as failed.
pub(crate) fn run_tests(command: &mut Command) -> Result<(), Failure> {
    run_within(command, LIMIT)
}

fn run_within(command: &mut Command, limit: Duration) -> Result<(), Failure> {
    let line = command_line(command);
    eprintln!("$ {line}");
    // Cargo sees a pipe, behind which there may be a terminal.
    if io::stderr().is_terminal() && env::var_os("CARGO_TERM_COLOR").is_none() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let spawned = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let broken = |error| Failure::Check(format!("`{line}` did not start: {error}"));
    let mut child = spawned.map_err(broken)?;
    let mut progress = Progress::default();
    match watch(&mut child, limit, &mut progress).map_err(broken)? {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(Failure::Check(format!("`{line}` failed with {status}"))),
        None => {
            kill_tree(&mut child);
            let silence = limit.as_secs();
            let hung = progress.hung();
            Err(Failure::Check(format!("`{line}` was killed: silent for {silence} s, in {hung}")))
        }
    }
}

/// Waits for the end of the command; nothing if it was silent for too long.
fn watch(
    child: &mut Child,
    limit: Duration,
    progress: &mut Progress,
) -> io::Result<Option<ExitStatus>> {
    let chunks = output_of(child);
    let tick = TICK.min(limit);
    let mut silence = Duration::ZERO;
    loop {
        match chunks.recv_timeout(tick) {
            Ok(chunk) => {
                silence = Duration::ZERO;
                pass_on(&chunk, progress);
            }
            Err(RecvTimeoutError::Disconnected) => return child.wait().map(Some),
            Err(RecvTimeoutError::Timeout) => {
                silence += tick;
                if let Some(status) = child.try_wait()? {
                    return Ok(Some(status));
                }
                if silence >= limit {
                    return Ok(None);
                }
            }
        }
    }
}

/// A terminal that has gone away is no reason to stop.
fn pass_on(chunk: &Chunk, progress: &mut Progress) {
    match chunk {
        Chunk::Stdout(bytes) => {
            progress.read(bytes);
            let _ = io::stdout().write_all(bytes).and_then(|()| io::stdout().flush());
        }
        Chunk::Stderr(bytes) => {
            progress.read_cargo(bytes);
            let _ = io::stderr().write_all(bytes);
        }
    }
}

/// Reads both outputs, each on a thread of its own.
fn output_of(child: &mut Child) -> Receiver<Chunk> {
    let (sender, chunks) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        let sender = sender.clone();
        thread::spawn(move || read(stdout, &sender, Chunk::Stdout));
    }
    if let Some(stderr) = child.stderr.take() {
        thread::spawn(move || read(stderr, &sender, Chunk::Stderr));
    }
    chunks
}

fn read(mut from: impl Read, to: &Sender<Chunk>, chunk: impl Fn(Vec<u8>) -> Chunk) {
    let mut buffer = [0; 8192];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if to.send(chunk(buffer[..length].to_vec())).is_err() {
            return;
        }
    }
}

/// Kills a process and its descendants. They stay in our process group, so that Ctrl-C reaches them:
/// so they have to be found one by one.
fn kill_tree(child: &mut Child) {
    let table = output(Command::new("ps").args(["-A", "-o", "pid=,ppid="])).unwrap_or_default();
    let tree = tree_of(child.id(), &table);
    let pids = tree.iter().map(u32::to_string);
    // Should there be no `ps`, the process itself is killed below.
    let _ = output(Command::new("sh").args(["-c", r#"kill -9 "$@""#, "sh"]).args(pids));
    let _ = child.kill().and_then(|()| child.wait());
}

/// A process and its descendants, by a table of processes and their parents.
fn tree_of(root: u32, table: &str) -> Vec<u32> {
    let row = |line: &str| {
        let mut numbers = line.split_whitespace().map(|word| word.parse().ok());
        Some((numbers.next()??, numbers.next()??))
    };
    let rows: Vec<(u32, u32)> = table.lines().filter_map(row).collect();
    let mut tree = vec![root];
    let mut looked_at = 0;
    while let Some(parent) = tree.get(looked_at).copied() {
        looked_at += 1;
        let children = rows.iter().filter(|(_, its_parent)| *its_parent == parent);
        tree.extend(children.map(|(pid, _)| *pid));
    }
    tree
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_a_process_with_its_children_and_theirs() {
        let table = "  1 0\n 10 1\n 11 10\n 12 10\n 13 12\n 20 1\nPID PPID\n";
        assert_eq!(tree_of(10, table), [10, 11, 12, 13]);
        assert_eq!(tree_of(10, ""), [10]);
    }

    #[cfg(unix)]
    mod commands {
        use super::*;

        fn sh(script: &str) -> Command {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        }

        /// A process that was killed stays in the table until its parent has noticed.
        fn is_dead(pid: &str) -> bool {
            let state = output(Command::new("ps").args(["-o", "stat=", "-p", pid]));
            state.is_err() || matches!(state, Ok(state) if state.starts_with('Z'))
        }

        #[test]
        fn a_test_that_hangs_is_killed_and_named() {
            let file = env::temp_dir().join(format!("taskharbor-watchdog-{}", std::process::id()));
            let script = "
                echo 'test one ... ok'
                echo 'test two has been running for over 60 seconds'
                sleep 600 & echo $! > \"$0\"; wait";
            let result = run_within(sh(script).arg(&file), 2 * TICK);
            let Err(Failure::Check(message)) = result else { panic!("it was not killed") };
            assert!(message.ends_with("was killed: silent for 2 s, in test two"), "{message}");
            let sleeper = std::fs::read_to_string(&file).unwrap();
            std::fs::remove_file(&file).unwrap();
            // The signal is sent, and takes a moment.
            assert!((0..1_000).any(|_| is_dead(sleeper.trim())), "its descendants live on");
        }

        #[test]
        fn a_command_that_prints_now_and_then_may_take_as_long_as_it_likes() {
            let script = "for n in 1 2 3 4; do sleep 1.1; echo $n; done";
            assert!(run_within(&mut sh(script), 3 * TICK).is_ok());
        }

        #[test]
        fn a_command_that_fails_is_named_and_what_it_leaves_behind_is_not_waited_for() {
            let result = run_within(&mut sh("sleep 20 & exit 3"), 15 * TICK);
            let Err(Failure::Check(message)) = result else { panic!("it exits with 3") };
            assert!(message.contains("failed with exit status: 3"), "{message}");
        }
    }
}
