//! Ctrl-C, for commands that do not deal with signals themselves.
//!
//! It ends the process, also while that waits for input: calls to the store happen whole or not at
//! all, so there is nothing to finish but to close the store. A command that would leave something
//! half done holds it back, looks now and then whether it was asked to end, and is left alone until
//! it is asked a second time.

use std::{
    process,
    sync::{
        LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{sync::watch, time::timeout};

use crate::{
    failure::{Exit, Outcome},
    store,
};

/// How long closing the stores may take.
const CLOSING: Duration = Duration::from_secs(2);

/// Whether a command wants to be asked instead of being ended.
static HELD: AtomicBool = AtomicBool::new(false);
/// Whether the process is about to end.
static ENDING: AtomicBool = AtomicBool::new(false);
/// The exit code of a command that holds the end back and was asked to end.
static ASKED: LazyLock<watch::Sender<Option<Exit>>> = LazyLock::new(|| watch::Sender::new(None));

/// What ends a process that runs a command.
pub(crate) struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    #[cfg(unix)]
    pub(crate) fn listen() -> Outcome<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let (interrupt, terminate) = (SignalKind::interrupt(), SignalKind::terminate());
        Ok(Self { interrupt: signal(interrupt)?, terminate: signal(terminate)? })
    }

    /// The exit code that goes with the next one.
    #[cfg(unix)]
    pub(crate) async fn next(&mut self) -> Exit {
        tokio::select! {
            _ = self.interrupt.recv() => Exit::Interrupted,
            _ = self.terminate.recv() => Exit::Terminated,
        }
    }

    #[cfg(not(unix))]
    pub(crate) fn listen() -> Outcome<Self> {
        Ok(Self {})
    }

    #[cfg(not(unix))]
    pub(crate) async fn next(&mut self) -> Exit {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Exit::Interrupted
    }
}

/// From now on signals end the process, or ask the command that holds them back.
pub(crate) fn listen() -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    let mut signals = Signals::listen()?;
    drop(entered);
    std::thread::spawn(move || {
        let exit = runtime.block_on(async {
            let mut exit = signals.next().await;
            if HELD.load(Ordering::SeqCst) {
                ASKED.send_replace(Some(exit));
                exit = signals.next().await;
            }
            ENDING.store(true, Ordering::SeqCst);
            tokio::select! {
                _ = timeout(CLOSING, store::close_all()) => {}
                _ = signals.next() => {}
            }
            exit
        });
        process::exit(exit as i32);
    });
    Ok(())
}

/// Waits for what would end the process, for commands that clear away what they made; the exit code.
pub(crate) async fn asked_to_end() -> Outcome<Exit> {
    Ok(Signals::listen()?.next().await)
}

/// Holds signals back until it is dropped.
pub(crate) struct Hold(());

impl Hold {
    pub(crate) fn begin() -> Self {
        HELD.store(true, Ordering::SeqCst);
        Self(())
    }

    /// The exit code that goes with the signal that has asked the command to end, if one has.
    pub(crate) fn asked_for(&self) -> Option<Exit> {
        *ASKED.borrow()
    }

    /// Waits until a signal does.
    pub(crate) async fn asked(&self) -> Exit {
        let mut asked = ASKED.subscribe();
        loop {
            if let Some(exit) = *asked.borrow_and_update() {
                return exit;
            }
            // The sender is never dropped.
            let _ = asked.changed().await;
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        HELD.store(false, Ordering::SeqCst);
    }
}

/// Once a signal is about to end the process, what the command comes to is no longer of interest: its
/// store is closed under it.
pub(crate) fn wait_if_ending() {
    while ENDING.load(Ordering::SeqCst) {
        std::thread::park();
    }
}
