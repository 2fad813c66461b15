//! A program as a handler of `taskharbor worker --exec`: a process that takes a while, and notices if
//! another one runs for the same job.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{Read, Write},
    path::Path,
    time::Duration,
};

use taskharbor_core::JobId;
use tokio::process::Command;

use super::LEASE;
use crate::Outcome;

pub(super) const JOB_TYPE: &str = "chaos:program";
pub(super) const QUEUE: &str = "programs";

/// The command on the store at this address. It was built beside this program.
pub(super) fn command(url: &str) -> Outcome<Command> {
    let name = format!("taskharbor{}", std::env::consts::EXE_SUFFIX);
    let mut command = Command::new(std::env::current_exe()?.with_file_name(name));
    command.args(["--json", "--url", url]);
    Ok(command)
}

/// The command as a worker on the store at this address.
pub(super) fn worker(url: &str, dir: &Path) -> Outcome<Command> {
    let this = std::env::current_exe()?;
    let mut command = command(url)?;
    let program = format!("{JOB_TYPE}='{}' {} '{}'", this.display(), super::PROGRAM, dir.display());
    command.args(["worker", "--queue", &format!("{QUEUE}=4")]);
    command.args(["--exec", &program, "--grace", "2s", "--retry-base", "50ms"]);
    command.args(["--lease", &format!("{}s", LEASE.as_secs())]);
    // Processes die all the time here, and no job is to blame.
    command.args(["--crash-limit", "1000000"]);
    Ok(command)
}

/// Is the program: its payload says how many milliseconds it takes.
pub(crate) async fn run(dir: &Path) -> Outcome {
    let id = std::env::var("TASKHARBOR_JOB_ID")?;
    let mut payload = String::new();
    std::io::stdin().read_to_string(&mut payload)?;
    // The lock ends with the process, however that ends.
    let lock = File::create(dir.join(format!("{id}.lock")))?;
    if lock.try_lock().is_err() {
        write(dir, &format!("overlap {id}"))?;
        return Err("another process runs for this job".into());
    }
    tokio::time::sleep(Duration::from_millis(payload.trim().parse()?)).await;
    write(dir, &format!("ran {id}"))
}

fn write(dir: &Path, line: &str) -> Outcome {
    let mut log = OpenOptions::new().create(true).append(true).open(dir.join("programs"))?;
    Ok(log.write_all(format!("{line}\n").as_bytes())?)
}

/// What programs wrote down.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Runs {
    /// How often the program of each job ran to its end.
    pub(super) ran: HashMap<String, usize>,
    /// The jobs of which two programs ran at the same time.
    overlaps: Vec<String>,
}

impl Runs {
    pub(super) fn read(dir: &Path) -> Outcome<Self> {
        Ok(Self::parse(&std::fs::read_to_string(dir.join("programs")).unwrap_or_default()))
    }

    fn parse(text: &str) -> Self {
        let mut runs = Self::default();
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("ran", id)) => *runs.ran.entry(id.to_owned()).or_default() += 1,
                _ => runs.overlaps.push(line.to_owned()),
            }
        }
        runs
    }

    /// The promises that were broken. These jobs are done.
    pub(super) fn problems(&self, done: &[JobId]) -> Vec<String> {
        let never = done.iter().filter(|id| !self.ran.contains_key(id.as_str()));
        let never = never.map(|id| format!("{id}: done, and its program never ran to its end"));
        let overlaps = self.overlaps.iter();
        never.chain(overlaps.map(|line| format!("two programs for one job: {line}"))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_overlap_or_never_end_are_reported() {
        let done = ["a", "b"].map(|id| JobId::new(id).unwrap());
        assert_eq!(Runs::parse("ran a\nran b\nran a\n").problems(&done), [""; 0]);
        let problems = Runs::parse("ran a\noverlap a\n").problems(&done);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].starts_with("b: done") && problems[1].ends_with("overlap a"));
    }
}
