//! What runs that were killed have left behind, and a run that ended cleanly has not.
//!
//! Process ids are given out again, so that a pid file alone proves nothing: the process must be a
//! server, and of that very data directory, or it is left in peace.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;
use crate::account::Account;
use crate::binary::Binaries;
use crate::run::guard;
use crate::shell::{announce, cannot, output};

/// Stops and removes what no living run claims. The caller holds the lock of the working directory.
pub(crate) fn sweep(work_dir: &Path, binaries: &Binaries, account: &Account) -> Result<(), Error> {
    for (dir, lock) in abandoned(work_dir)? {
        for data in data_dirs(&dir) {
            disarm(&data);
        }
        // A guardian whose input has ended already does the rest.
        let done = guard(&dir, lock, binaries, account)?.wait();
        if done.is_err() || dir.exists() {
            let dir = dir.display();
            announce(&format!("WARNING: cannot remove {dir}, left behind by a killed run"));
        }
    }
    Ok(())
}

/// Directories of runs whose lock is free, which is ours now.
fn abandoned(work_dir: &Path) -> Result<Vec<(PathBuf, File)>, Error> {
    let entries = fs::read_dir(work_dir).map_err(|error| cannot("list", work_dir, &error))?;
    let locks = entries.flatten().map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("run-") && name.ends_with(".lock")
    });
    let free = locks.filter_map(|path| {
        // Another user's cannot be opened, and is not ours to judge.
        let lock = File::options().write(true).open(&path).ok()?;
        lock.try_lock().ok()?;
        Some((path.with_extension(""), lock))
    });
    Ok(free.collect())
}

fn data_dirs(run: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(run).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|dir| pid_file(dir).exists()).collect()
}

fn pid_file(data: &Path) -> PathBuf {
    data.join("postmaster.pid")
}

/// Removes a pid file that names a process which is not the server of this data directory, lest it
/// be stopped.
fn disarm(data: &Path) {
    let file = pid_file(data);
    let pid = fs::read_to_string(&file).ok().and_then(|text| pid_in(&text));
    match pid {
        Some(pid) if args_of(pid).is_some_and(|args| is_server_of(&args, data)) => {
            announce(&format!("stopping the PostgreSQL server {pid}, left behind by a killed run"));
        }
        // Where that fails, the directory cannot be removed either, which is reported.
        _ => drop(fs::remove_file(&file)),
    }
}

/// The process that wrote a `postmaster.pid`: its first line.
fn pid_in(pid_file: &str) -> Option<u32> {
    pid_file.lines().next()?.trim().parse().ok().filter(|pid| *pid > 1)
}

/// The command line of a living process, words separated by blanks.
fn args_of(pid: u32) -> Option<String> {
    match fs::read_to_string(format!("/proc/{pid}/cmdline")) {
        Ok(args) => Some(args.trim_end_matches('\0').replace('\0', " ")),
        // Not every system has this directory; nor has every one `ps`.
        Err(_) => output(Command::new("ps").args(["-o", "args=", "-p", &pid.to_string()])).ok(),
    }
}

fn is_server_of(args: &str, data: &Path) -> bool {
    let option = format!(" -D {}", data.display());
    let Some((program, rest)) = args.trim_end().split_once(&option) else {
        return false;
    };
    let name = Path::new(program).file_name().unwrap_or_default();
    (name == "postgres" || name == "postmaster") && (rest.is_empty() || rest.starts_with(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pid_is_in_the_first_line() {
        let file = "4711\n/w/target/postgres/run-1-1/data\n1763218623\n40123\n/w\n127.0.0.1\n";
        assert_eq!(pid_in(file), Some(4711));
        for no_pid in ["", "\n4711\n", "postgres\n", "-4711\n", "0\n", "1\n"] {
            assert_eq!(pid_in(no_pid), None, "{no_pid:?}");
        }
    }

    #[test]
    fn a_server_is_known_by_its_program_and_its_data_directory() {
        let data = Path::new("/w/my target/run-1-1/data");
        assert!(is_server_of("/usr/lib/bin/postgres -D /w/my target/run-1-1/data -p 40123", data));
        assert!(is_server_of("/opt/my pg/bin/postgres -D /w/my target/run-1-1/data\n", data));
        for other in [
            "/usr/lib/bin/postgres -D /w/my target/run-1-1/data2 -p 40123",
            "/usr/lib/bin/postgres -D /var/lib/postgresql/15/main",
            "/usr/bin/vi -D /w/my target/run-1-1/data",
            "postgres: checkpointer",
            "",
        ] {
            assert!(!is_server_of(other, data), "{other:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_command_line_of_a_process_can_be_read() {
        let own = args_of(std::process::id()).unwrap();
        let name = std::env::args().next().unwrap();
        assert!(own.starts_with(&name), "{own}");
    }
}
