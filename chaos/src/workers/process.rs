//! A worker process as its parent sees it.

use std::{path::Path, process::Stdio, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::{Child, ChildStdin, Command},
    sync::watch,
    time::{Instant, timeout},
};

use super::{WORKER, program};
use crate::Outcome;

/// How long a process that is asked to end may take: the grace period, the time that handlers have to
/// stop, and what it takes to record the last outcomes on a store that may be away.
const MAX_SHUTDOWN: Duration = Duration::from_secs(20);

/// What a process is going through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    None,
    /// It is stopped until then.
    Stopped(Instant),
    /// It was asked to end then.
    Ending(Instant),
    /// Its file cannot grow until then.
    Cramped(Instant),
}

/// How the jobs of a worker process that dies come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// When its leases end, which are short.
    ByLease,
    /// Another worker notices, long before its leases end.
    Fast,
}

impl Recovery {
    const ALL: [Self; 2] = [Self::ByLease, Self::Fast];

    const fn as_str(self) -> &'static str {
        match self {
            Self::ByLease => "by-lease",
            Self::Fast => "fast",
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == text)
    }
}

/// A worker process; killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    /// Its standard input. Apart, because waiting for a child closes what it holds itself.
    _lifeline: Option<ChildStdin>,
    is_working: watch::Receiver<bool>,
    trouble: Trouble,
}

impl Process {
    pub(crate) fn start(url: &str, dir: &Path, slots: usize) -> Outcome<Self> {
        Self::start_with(url, dir, slots, Recovery::ByLease)
    }

    pub(crate) fn start_with(
        url: &str,
        dir: &Path,
        slots: usize,
        recovery: Recovery,
    ) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([WORKER, url]).arg(dir).args([&slots.to_string(), recovery.as_str()]);
        command.stdout(Stdio::piped());
        Self::launch(command)
    }

    /// The command, with the handlers that are built in and leases of ten minutes.
    pub(crate) fn start_sleeper(url: &str, queue: &str, slots: usize) -> Outcome<Self> {
        let mut command = program::command(url)?;
        command.args(["worker", "--builtin", "--queue", &format!("{queue}={slots}")]);
        command.args(["--lease", "10m"]).stderr(Stdio::piped());
        Self::launch(command)
    }

    /// The command, with a program as its handler. What it says on standard error is not shown: it tells
    /// of every fault.
    pub(super) fn start_command(url: &str, dir: &Path) -> Outcome<Self> {
        let mut command = program::worker(url, dir)?;
        command.stderr(Stdio::piped());
        Self::launch(command)
    }

    /// Starts a worker that says `started` on the one output that is read.
    fn launch(mut command: Command) -> Outcome<Self> {
        // A worker of this program that finds its input closed ends, also when this one was killed.
        let mut child = command.stdin(Stdio::piped()).kill_on_drop(true).spawn()?;
        let lifeline = child.stdin.take();
        let (told, is_working) = watch::channel(false);
        match (child.stdout.take(), child.stderr.take()) {
            (Some(output), _) => drop(tokio::spawn(listen(output, told))),
            (None, Some(output)) => drop(tokio::spawn(listen(output, told))),
            (None, None) => return Err("the process has no output".into()),
        }
        Ok(Self { child, _lifeline: lifeline, is_working, trouble: Trouble::None })
    }

    /// Whether it has begun to work. Before that a signal to end is not for the worker.
    pub(super) fn is_working(&self) -> bool {
        *self.is_working.borrow()
    }

    /// Waits until it has begun to work.
    pub(crate) async fn until_working(&mut self) -> Outcome {
        let working = self.is_working.wait_for(|is_working| *is_working);
        let late = |_| format!("a worker process did not begin within {MAX_SHUTDOWN:?}");
        timeout(MAX_SHUTDOWN, working).await.map_err(late)??;
        Ok(())
    }

    /// Whether nothing is being done to it.
    pub(super) fn is_well(&self) -> bool {
        self.trouble == Trouble::None
    }

    fn signal(&self, signal: Signal) -> Outcome {
        let id = self.child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        Ok(kill_process(id.ok_or("the process has ended")?, signal)?)
    }

    /// Kills it where it is.
    pub(crate) async fn kill(mut self) -> Outcome {
        Ok(self.child.kill().await?)
    }

    /// Stops it for a while, as a machine that is suspended.
    pub(super) fn stop(&mut self, time: Duration) -> Outcome {
        self.trouble = Trouble::Stopped(Instant::now() + time);
        self.signal(Signal::STOP)
    }

    /// Asks it to end.
    pub(super) fn terminate(&mut self) -> Outcome {
        self.trouble = Trouble::Ending(Instant::now());
        self.signal(Signal::TERM)
    }

    /// Notes that its file cannot grow for a while.
    pub(super) fn cramp(&mut self, time: Duration) {
        self.trouble = Trouble::Cramped(Instant::now() + time);
    }

    /// Ends what is over; answers whether another process has to take its place.
    ///
    /// # Errors
    ///
    /// A process that ended by itself, or did not end when asked to.
    pub(super) fn look(&mut self) -> Outcome<bool> {
        let now = Instant::now();
        if let Some(status) = self.child.try_wait()? {
            return match self.trouble {
                Trouble::Ending(_) if status.success() => Ok(true),
                _ => Err(format!("a worker process ended: {status}").into()),
            };
        }
        match self.trouble {
            Trouble::Stopped(until) if until <= now => {
                self.trouble = Trouble::None;
                self.signal(Signal::CONT)?;
            }
            Trouble::Ending(since) if since + MAX_SHUTDOWN <= now => {
                return Err(format!("a worker process did not end within {MAX_SHUTDOWN:?}").into());
            }
            Trouble::Cramped(until) => return Ok(until <= now),
            Trouble::None | Trouble::Stopped(_) | Trouble::Ending(_) => {}
        }
        Ok(false)
    }

    /// Lets it go on, and waits until it has ended as it should.
    pub(crate) async fn end(mut self) -> Outcome {
        if matches!(self.trouble, Trouble::Stopped(_)) {
            self.signal(Signal::CONT)?;
        }
        if !matches!(self.trouble, Trouble::Ending(_)) {
            self.until_working().await?;
            self.signal(Signal::TERM)?;
        }
        let late = |_| format!("a worker process did not end within {MAX_SHUTDOWN:?}");
        let status = timeout(MAX_SHUTDOWN, self.child.wait()).await.map_err(late)??;
        match status.success() {
            true => Ok(()),
            false => Err(format!("a worker process ended: {status}").into()),
        }
    }
}

/// Reads until the process ends, so that it can always write.
async fn listen(output: impl AsyncRead + Unpin, is_working: watch::Sender<bool>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if line.contains("started") {
            is_working.send_replace(true);
        }
    }
}
