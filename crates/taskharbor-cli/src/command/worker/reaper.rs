//! [`Reaper`]: a process beside the worker that ends its programs if the worker is killed.
//!
//! A worker that ends by itself ends its programs. One that is killed cannot, and its jobs come back
//! while the programs still run. So the worker tells another process which process groups it has. When
//! the pipe between them closes and groups are left, the worker has died, and they are killed.

use std::{
    collections::HashSet,
    io::{self, BufRead, Write},
    process::{ChildStdin, Command, Stdio},
    sync::{Mutex, PoisonError},
};

use crate::stderr::tell;

/// The hidden command that is the other end.
pub(crate) const COMMAND: &str = "end-programs-of-worker";

/// The worker's end of the pipe.
#[derive(Debug)]
pub(super) struct Reaper(Mutex<Option<ChildStdin>>);

impl Reaper {
    /// Starts the process beside this one. Without it programs are run all the same.
    pub(super) fn start() -> Self {
        if cfg!(not(unix)) {
            return Self::none();
        }
        let mut command = Command::new(own_program());
        command.arg(COMMAND).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // So that a signal from the terminal does not end it before the worker.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        match command.spawn() {
            Ok(child) => Self(Mutex::new(child.stdin)),
            Err(error) => {
                tell(&format!("programs would survive a worker that is killed: {error}"));
                Self::none()
            }
        }
    }

    pub(super) const fn none() -> Self {
        Self(Mutex::new(None))
    }

    /// This group is to end with the worker.
    pub(super) fn watch(&self, leader: i32) {
        self.send('+', leader);
    }

    /// It is over, or may outlive the worker.
    pub(super) fn forget(&self, leader: i32) {
        self.send('-', leader);
    }

    fn send(&self, sign: char, leader: i32) {
        let mut pipe = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let line = format!("{sign}{leader}\n");
        if pipe.as_mut().is_some_and(|pipe| pipe.write_all(line.as_bytes()).is_err()) {
            *pipe = None;
        }
    }
}

/// This program, also if its file was replaced meanwhile.
fn own_program() -> std::path::PathBuf {
    if cfg!(target_os = "linux") {
        return "/proc/self/exe".into();
    }
    std::env::current_exe().unwrap_or_else(|_| "taskharbor".into())
}

/// The process beside the worker: kills the groups that are left when the pipe is closed.
pub(crate) fn run() {
    for leader in left(io::stdin().lock()) {
        #[cfg(unix)]
        if let Some(leader) = rustix::process::Pid::from_raw(leader) {
            let _ = rustix::process::kill_process_group(leader, rustix::process::Signal::KILL);
        }
    }
}

/// The groups that were named and not taken back.
fn left(lines: impl BufRead) -> HashSet<i32> {
    let mut groups = HashSet::new();
    for line in lines.lines().map_while(Result::ok) {
        let leader = line.get(1..).and_then(|id| id.parse().ok()).filter(|id| *id > 0);
        match (line.as_bytes().first(), leader) {
            (Some(b'+'), Some(leader)) => _ = groups.insert(leader),
            (Some(b'-'), Some(leader)) => _ = groups.remove(&leader),
            _ => {}
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_were_taken_back_are_left_alone() {
        let said = "+17\n+18\nnonsense\n-17\n+0\n\n+19";
        let mut groups: Vec<_> = left(said.as_bytes()).into_iter().collect();
        groups.sort_unstable();
        assert_eq!(groups, [18, 19]);
    }
}
