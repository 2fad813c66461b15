//! The signals that ask a worker to stop, or to be quiet.

use std::io;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// To stop: SIGINT or SIGTERM.
    Stop,
    /// To reserve nothing more: SIGUSR1.
    #[cfg_attr(not(unix), expect(dead_code, reason = "there is no such signal"))]
    Quiet,
}

#[cfg(unix)]
pub(super) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    quiet: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        // Tokio panics where the runtime has no driver for it, and offers no way to ask before.
        let listen = || -> io::Result<Self> {
            let interrupt = signal(SignalKind::interrupt())?;
            let terminate = signal(SignalKind::terminate())?;
            let quiet = signal(SignalKind::user_defined1())?;
            Ok(Self { interrupt, terminate, quiet })
        };
        std::panic::catch_unwind(listen).unwrap_or_else(|_| {
            Err(io::Error::other("the runtime has no I/O driver: build it with `enable_all`"))
        })
    }

    pub(super) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.interrupt.recv() => Asked::Stop,
            _ = self.terminate.recv() => Asked::Stop,
            _ = self.quiet.recv() => Asked::Quiet,
        }
    }
}

#[cfg(not(unix))]
pub(super) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    pub(super) async fn next(&mut self) -> Asked {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Asked::Stop
    }
}
