//! The worker of the demo: this program once more, in a process of its own, which can be killed.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::Context;
use taskharbor::{AnyDriver, Exponential, MissingHandler, Unreadable, Worker};
use taskharbor_sqlite::{Config, SqliteDriver};
use tokio::{
    io::AsyncReadExt,
    process::{Child, ChildStdin, Command},
};

use super::{job, plan, silence};

/// How many jobs of each queue run at once; of a queue that is not named here, eight.
const CONCURRENCY: [(&str, usize); 3] = [("media", 4), ("reports", 2), ("sms", 4)];
/// The first delay of a retry: far shorter than in earnest, to keep the demo short.
const RETRY_BASE: Duration = Duration::from_millis(300);
/// How long a job is held without a sign of life: short, so that what a dead worker held comes back
/// soon.
const LEASE: Duration = Duration::from_secs(2);
/// How long handlers may take to finish when there is nothing more to do.
const GRACE: Duration = Duration::from_secs(2);

/// The option with which this program is a worker.
pub(crate) const OPTION: &str = "--worker-on";

/// A worker process; killed when it is dropped.
pub(crate) struct WorkerProcess {
    child: Child,
    /// Its standard input. Apart, because waiting for a child closes what it holds itself.
    lifeline: Option<ChildStdin>,
}

impl WorkerProcess {
    /// Starts a worker on the file.
    pub(crate) fn start(path: &Path) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("this program cannot be found")?;
        let mut command = Command::new(program);
        command.args(["demo", OPTION]).arg(path);
        // Standard input is its lifeline: it ends when that does.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true);
        // A Ctrl-C is for us; we end the worker.
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn().context("a worker process cannot be started")?;
        let lifeline = child.stdin.take();
        Ok(Self { child, lifeline })
    }

    /// The number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// Kills it where it stands, as a power cut would.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("the worker process cannot be killed")
    }

    /// Lets it finish, and waits for that.
    pub(crate) async fn dismiss(mut self) -> anyhow::Result<()> {
        drop(self.lifeline.take());
        self.child.wait().await.context("the worker process is gone")?;
        Ok(())
    }

    /// Waits until it has ended, which it does not by itself.
    pub(crate) async fn ended(&mut self) -> anyhow::Error {
        match self.child.wait().await {
            Ok(status) => anyhow::anyhow!("the worker process ended: {status}"),
            Err(error) => anyhow::Error::new(error).context("the worker process is gone"),
        }
    }
}

/// Opens the file of the demo.
pub(crate) async fn open(path: &Path, create: bool) -> anyhow::Result<AnyDriver> {
    let driver = SqliteDriver::open_with(Config::new(path).create(create)).await?;
    Ok(AnyDriver::new(driver))
}

/// Works on the file until standard input ends.
pub(crate) async fn work(path: PathBuf) -> anyhow::Result<()> {
    silence::install();
    let driver = open(&path, false).await?;
    let mut builder = Worker::builder(&driver)
        .handlers(job::handlers())
        .retry(Exponential::new().base(RETRY_BASE))
        .lease(LEASE)
        .grace(GRACE)
        // The demo is over before a job could have waited for another worker.
        .missing_handler(MissingHandler::Fail)
        .unreadable(Unreadable::Fail);
    for queue in plan::queues() {
        let named = CONCURRENCY.iter().find(|(name, _)| *name == queue);
        builder = builder.queue(queue, named.map_or(8, |(_, concurrency)| *concurrency));
    }
    let running = builder.build()?.start();
    let (mut stdin, mut nothing) = (tokio::io::stdin(), [0; 1]);
    tokio::select! {
        ended = running.ended() => ended?,
        _ = stdin.read(&mut nothing) => running.shutdown().await?,
    }
    Ok(())
}
