//! Where things live: a directory that the account of the servers can reach and whose path leaves
//! room for the name of a socket.
//!
//! That is `target/postgres` wherever possible. A checkout in a home that is closed to others, or
//! deep down in a tree, gets a directory of its own under the system's temporary one.

use std::env;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;
use crate::account::Account;
use crate::shell::{cannot, output, root, succeeds};

/// The longest path of a socket: 103 bytes on macOS, 107 on Linux.
const SOCKET_PATH_MAX: usize = 103;

/// The longest path below the directory that leads to a socket: process ids have up to seven digits.
const LONGEST_SOCKET: &str = "run-4194304-99/.s.PGSQL.65535";

/// The directory of all that is fetched, unpacked and started for one checkout.
#[derive(Debug)]
pub(crate) struct WorkDir {
    dir: PathBuf,
}

impl WorkDir {
    pub(crate) fn choose(account: &Account) -> Result<Self, Error> {
        let root = root();
        // Another checkout must not take our servers for its own.
        let mut hasher = DefaultHasher::new();
        root.canonicalize().unwrap_or(root.clone()).hash(&mut hasher);
        let name = format!("taskharbor-{:016x}", hasher.finish());
        let candidates = [
            root.join("target/postgres"),
            env::temp_dir().join(&name),
            Path::new("/tmp").join(&name),
        ];
        let work_dir = candidates.iter().find_map(|dir| Self::at(dir, account));
        work_dir.ok_or_else(|| {
            let tried = candidates.map(|dir| dir.display().to_string()).join(", ");
            Error::new(format!(
                "no directory for PostgreSQL among {tried}: each is another user's, unreachable for \
                 the server or too long for a socket; set TMPDIR to one that is none of these"
            ))
        })
    }

    fn at(dir: &Path, account: &Account) -> Option<Self> {
        fs::create_dir_all(dir).ok()?;
        let dir = dir.canonicalize().ok()?;
        // Programs in a directory of another user must not be run.
        let ours = succeeds(Command::new("test").arg("-O").arg(&dir));
        let usable =
            fits_socket(&dir) && ours && open_to_all(&dir).is_ok() && account.reaches(&dir);
        usable.then_some(Self { dir })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Waits until nobody else fetches, sweeps or begins a run here; ends when the file is dropped.
    pub(crate) fn lock(&self) -> Result<File, Error> {
        let path = self.dir.join("lock");
        let locked = File::create(&path).and_then(|file| file.lock().map(|()| file));
        locked.map_err(|error| cannot("lock", &path, &error))
    }
}

/// Lets all users read a directory, independent of the umask.
pub(crate) fn open_to_all(dir: &Path) -> Result<(), Error> {
    output(Command::new("chmod").arg("755").arg(dir)).map(drop)
}

fn fits_socket(dir: &Path) -> bool {
    dir.join(LONGEST_SOCKET).as_os_str().len() <= SOCKET_PATH_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_too_long_if_the_path_of_a_socket_would_be() {
        let room = SOCKET_PATH_MAX - LONGEST_SOCKET.len() - 1;
        let dir = |length: usize| PathBuf::from(format!("/{}", "d".repeat(length - 1)));
        assert!(fits_socket(&dir(room)));
        assert!(!fits_socket(&dir(room + 1)));
        assert!(fits_socket(Path::new("/home/user/src/taskharbor/target/postgres")));
    }

    #[cfg(unix)]
    #[test]
    fn one_at_a_time_holds_the_lock() {
        let dir = env::temp_dir().join(format!("taskharbor-lock-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let work_dir = WorkDir { dir };
        let held = work_dir.lock().unwrap_or_else(|_| panic!("nobody else knows the directory"));
        let second = File::open(work_dir.dir().join("lock")).unwrap();
        assert!(second.try_lock().is_err());
        drop(held);
        assert!(second.try_lock().is_ok());
        fs::remove_dir_all(work_dir.dir()).unwrap();
    }
}
