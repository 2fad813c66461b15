//! The directory of one run, and the guardian that empties it however the run ends.
//!
//! The guardian is a shell that waits for the end of its input, which it shares with nobody but us.
//! That end comes when we are done, but also when we are killed, and Ctrl-C does not reach it: so
//! there is one way of cleaning up and no signal to handle. It stops every server whose data
//! directory is in the run's, also those that tests have started, and removes all of it.
//!
//! As long as it lives the guardian holds a lock on a file beside the directory. A directory whose
//! lock is free was left behind by a run that was killed together with its guardian.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};

use crate::Error;
use crate::account::Account;
use crate::binary::Binaries;
use crate::leftover;
use crate::shell::cannot;
use crate::work_dir::{WorkDir, open_to_all};

/// Arguments: the directory, `pg_ctl`, and what comes before a command to run it as the account of
/// the servers. Their data is thrown away, so they need not write it down: `immediate`.
const GUARDIAN: &str = r#"
trap '' HUP INT QUIT TERM
while read -r _; do :; done
dir=$1 pg_ctl=$2
shift 2
for pid_file in "$dir"/*/postmaster.pid; do
    [ -e "$pid_file" ] || continue
    "$@" "$pg_ctl" stop -D "${pid_file%/*}" -m immediate -w -t 30 >/dev/null 2>&1
done
rm -rf "$dir" "$dir.lock"
"#;

/// A directory for servers, removed together with them when this is dropped.
#[derive(Debug)]
pub(crate) struct Run {
    dir: PathBuf,
    guardian: Child,
}

impl Run {
    pub(crate) fn begin(
        work_dir: &WorkDir,
        binaries: &Binaries,
        account: &Account,
    ) -> Result<Self, Error> {
        let _alone = work_dir.lock()?;
        leftover::sweep(work_dir.dir(), binaries, account)?;
        let (dir, lock) = make_dir(work_dir.dir())?;
        let run = Self { guardian: guard(&dir, lock, binaries, account)?, dir };
        open_to_all(&run.dir)?;
        account.own(&run.dir)?;
        Ok(run)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Waiting closes its input first. Should it have been killed, the next run cleans up.
        let _ = self.guardian.wait();
    }
}

fn make_dir(work_dir: &Path) -> Result<(PathBuf, File), Error> {
    let names = (1..).map(|number| work_dir.join(format!("run-{}-{number}", process::id())));
    // The second run of a process, or the first after one of the same id whose remains are not
    // ours to remove.
    let dir = names.into_iter().find(|dir| !dir.exists()).unwrap_or_default();
    let path = lock_path(&dir);
    let lock =
        File::create(&path).and_then(|file| file.try_lock().map(|()| file).map_err(Into::into));
    let lock = lock.map_err(|error| cannot("lock", &path, &error))?;
    fs::create_dir(&dir).map_err(|error| cannot("make", &dir, &error))?;
    Ok((dir, lock))
}

pub(crate) fn lock_path(dir: &Path) -> PathBuf {
    dir.with_added_extension("lock")
}

/// Starts a guardian, which keeps the lock in the place of its output.
pub(crate) fn guard(
    dir: &Path,
    lock: File,
    binaries: &Binaries,
    account: &Account,
) -> Result<Child, Error> {
    let mut command = Command::new("sh");
    command.args(["-c", GUARDIAN, "guardian"]).arg(dir).arg(binaries.program("pg_ctl"));
    command.args(account.prefix());
    // Not where we are: the account of the servers may not be let in there.
    command.current_dir("/");
    command.stdin(Stdio::piped()).stdout(lock).stderr(Stdio::null());
    command.spawn().map_err(|error| Error::new(format!("`sh` did not start: {error}")))
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::env;

    use super::*;
    use crate::shell::output;

    /// A program that writes down its arguments, in the place of `pg_ctl`.
    fn fake_pg_ctl(dir: &Path) -> String {
        let program = dir.join("pg_ctl");
        let script = format!("#!/bin/sh\necho \"$@\" >> '{}/calls'\n", dir.display());
        fs::write(&program, script).unwrap();
        assert!(output(Command::new("chmod").arg("+x").arg(&program)).is_ok());
        program.display().to_string()
    }

    #[test]
    fn the_guardian_stops_every_server_and_removes_all_once_its_input_ends() {
        let home = env::temp_dir().join(format!("taskharbor-guardian-{}", process::id()));
        fs::create_dir(&home).unwrap();
        let pg_ctl = fake_pg_ctl(&home);
        let (dir, lock) = make_dir(&home).unwrap_or_else(|_| panic!("the directory is new"));
        for name in ["data", "other", "no-server"] {
            fs::create_dir(dir.join(name)).unwrap();
        }
        fs::write(dir.join("data/postmaster.pid"), "1\n").unwrap();
        fs::write(dir.join("other/postmaster.pid"), "1\n").unwrap();

        let mut command = Command::new("sh");
        command.args(["-c", GUARDIAN, "guardian"]).arg(&dir).arg(pg_ctl);
        let mut guardian = command.stdin(Stdio::piped()).stdout(lock).spawn().unwrap();
        drop(command);
        assert!(File::open(lock_path(&dir)).unwrap().try_lock().is_err());
        guardian.wait().unwrap();

        let calls = fs::read_to_string(home.join("calls")).unwrap();
        let stop = |name| format!("stop -D {} -m immediate -w -t 30\n", dir.join(name).display());
        assert_eq!(calls, stop("data") + &stop("other"));
        assert!(!dir.exists() && !lock_path(&dir).exists());
        fs::remove_dir_all(&home).unwrap();
    }
}
