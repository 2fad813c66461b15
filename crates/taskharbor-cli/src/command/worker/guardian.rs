//! [`Guardian`]: a process beside the worker that clears up if the worker is killed.
//!
//! A worker that ends by itself stops its programs and releases its jobs. A worker that is killed cannot. So
//! the worker sends its name and its process groups to a second process. If the pipe closes without a
//! goodbye, the worker was killed: the second process kills its programs and evicts it.

use std::{
    collections::HashSet,
    io::{self, BufRead, Write},
    process::{ChildStdin, Command, Stdio},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use serde::Serialize;
use taskharbor::{Admin, AnyDriver, DriverError, Exponential, Incarnation};
use taskharbor_core::{admin::Evict, name::Holder};
use tokio::time::Instant;

use crate::{
    clean,
    stderr::{note, tell},
    store::{self, Missing, Opened, Url},
};

/// The hidden command that is the other end.
pub(crate) const COMMAND: &str = "guard-worker";
/// How long to retry when the store is unavailable. After that the leases end by themselves.
const OUTAGE_LIMIT: Duration = Duration::from_secs(60);

/// How long a statement may go on in a server after its caller died.
const LATE_GRANTS: Duration = Duration::from_secs(1);

/// The worker's end of the pipe.
#[derive(Debug)]
pub(super) struct Guardian(Mutex<Option<ChildStdin>>);

impl Guardian {
    /// Starts the process beside this one. Without it jobs are run all the same.
    pub(super) fn start(url: &Url, is_json: bool) -> Self {
        if cfg!(not(unix)) {
            return Self::none();
        }
        let mut command = Command::new(own_program());
        command.arg(COMMAND).args(is_json.then_some("--json"));
        // It speaks if the store does not allow what it is there for.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::inherit());
        // Arguments are seen by all users, and a URL may have a password.
        command.env(store::VARIABLE, url.as_str());
        // So that a signal from the terminal does not end it before the worker.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        match command.spawn() {
            Ok(child) => Self(Mutex::new(child.stdin)),
            Err(error) => {
                tell(&format!("if this worker is killed, its programs keep running: {error}"));
                Self::none()
            }
        }
    }

    pub(super) const fn none() -> Self {
        Self(Mutex::new(None))
    }

    /// The leases of this worker end with it.
    pub(super) fn guard(&self, name: &str, incarnation: Incarnation) {
        self.send(&format!("={incarnation} {name}"));
    }

    /// This group is to end with the worker.
    pub(super) fn watch(&self, leader: i32) {
        self.send(&format!("+{leader}"));
    }

    /// It is over, or may outlive the worker.
    pub(super) fn forget(&self, leader: i32) {
        self.send(&format!("-{leader}"));
    }

    /// The worker ends by itself and has given its jobs back.
    pub(super) fn dismiss(&self) {
        self.send(".");
    }

    fn send(&self, line: &str) {
        let mut pipe = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let line = format!("{line}\n");
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

/// The process beside the worker: clears up what is left when the pipe is closed.
pub(crate) fn run() {
    let left = Left::read(io::stdin().lock());
    for leader in left.groups {
        #[cfg(unix)]
        if let Some(leader) = rustix::process::Pid::from_raw(leader) {
            let _ = rustix::process::kill_process_group(leader, rustix::process::Signal::KILL);
        }
        #[cfg(not(unix))]
        let _ = leader;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    if let (Some((holder, incarnation)), Ok(runtime)) = (left.worker, runtime) {
        runtime.block_on(evict(holder, incarnation));
    }
}

/// Ends the leases of the worker, once its programs are gone.
async fn evict(holder: Holder, incarnation: Incarnation) {
    let (began, mut failures) = (Instant::now(), 0);
    let again = Exponential::new().base(Duration::from_millis(200)).cap(Duration::from_secs(5));
    while began.elapsed() < OUTAGE_LIMIT {
        let Ok(url) = Url::find(None) else { return };
        match url.try_open(Missing::Refuse).await {
            Ok(Opened::Driver(driver)) => {
                let answer = try_evict(&driver, &holder, incarnation).await;
                if answer.is_ok() {
                    // A reserve that was on its way when the worker died may have come to its end since.
                    tokio::time::sleep(LATE_GRANTS).await;
                    let _ = try_evict(&driver, &holder, incarnation).await;
                }
                store::close_all().await;
                match answer {
                    Ok(()) => return,
                    Err(error) if error.is_not_allowed() => return denied(&holder, &error),
                    Err(_) => {}
                }
            }
            Ok(Opened::Away(_)) => {}
            // The store is gone, or refuses.
            Err(_) => return,
        }
        failures += 1;
        tokio::time::sleep(again.after(failures, 0.0)).await;
    }
}

async fn try_evict(
    driver: &AnyDriver,
    holder: &Holder,
    incarnation: Incarnation,
) -> Result<(), DriverError> {
    let now = driver.now().await?;
    driver.evict(Evict::new(holder.clone(), now).incarnation(incarnation)).await.map(drop)
}

/// Says why the jobs of the worker have to wait.
fn denied(holder: &Holder, error: &DriverError) {
    let text = format!(
        "worker {holder} was killed, and its jobs wait until their leases end: it may not be evicted from here: {}",
        error.reason()
    );
    note(&Said { event: "eviction_denied", message: &text }, &clean::line(&text));
}

/// What happened, for programs.
#[derive(Serialize)]
struct Said<'a> {
    event: &'static str,
    message: &'a str,
}

/// What a worker has left behind.
#[derive(Debug, Default)]
struct Left {
    /// The groups that were named and not taken back.
    groups: HashSet<i32>,
    /// The worker, unless it has said goodbye.
    worker: Option<(Holder, Incarnation)>,
}

impl Left {
    fn read(lines: impl BufRead) -> Self {
        let mut left = Self::default();
        for line in lines.lines().map_while(Result::ok) {
            let rest = line.get(1..).unwrap_or_default();
            let leader = rest.parse().ok().filter(|id| *id > 0);
            match (line.as_bytes().first(), leader) {
                (Some(b'+'), Some(leader)) => _ = left.groups.insert(leader),
                (Some(b'-'), Some(leader)) => _ = left.groups.remove(&leader),
                (Some(b'='), _) => left.worker = worker(rest),
                (Some(b'.'), _) => left.worker = None,
                _ => {}
            }
        }
        left
    }
}

fn worker(text: &str) -> Option<(Holder, Incarnation)> {
    let (incarnation, name) = text.split_once(' ')?;
    Some((Holder::new(name).ok()?, Incarnation::parse(incarnation)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_were_taken_back_are_left_alone() {
        let said = "+17\n+18\nnonsense\n-17\n+0\n\n+19";
        let mut groups: Vec<_> = Left::read(said.as_bytes()).groups.into_iter().collect();
        groups.sort_unstable();
        assert_eq!(groups, [18, 19]);
    }

    #[test]
    fn a_worker_that_has_said_goodbye_is_left_alone() {
        let said = "=00000000000000ff a worker: 7\n+17\n";
        let (holder, incarnation) = Left::read(said.as_bytes()).worker.unwrap();
        assert_eq!((holder.as_str(), incarnation), ("a worker: 7", Incarnation::from_bits(255)));
        assert!(Left::read(format!("{said}.\n").as_bytes()).worker.is_none());
        assert!(Left::read("=zz a\n=\n".as_bytes()).worker.is_none());
    }
}
