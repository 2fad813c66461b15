//! [`Pool`]: connections that wait for the next request, and a bound on how many there are.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};

use crate::connection::Sender;

/// How long a connection may wait for its next request. Servers and proxies close connections that have
/// been idle for 10 s or more. A request that meets the closing is lost, and its caller does not know
/// whether it was done, so connections are given up before.
const MAX_IDLE: Duration = Duration::from_secs(5);

pub(crate) struct Pool {
    room: Semaphore,
    idle: Mutex<Vec<Idle>>,
}

struct Idle {
    sender: Sender,
    since: Instant,
}

impl Pool {
    pub(crate) fn new(connections: usize) -> Self {
        Self { room: Semaphore::new(connections), idle: Mutex::default() }
    }

    /// Waits until one more connection may be used. `None` if there will be none: never.
    pub(crate) async fn enter(&self) -> Option<SemaphorePermit<'_>> {
        self.room.acquire().await.ok()
    }

    /// The connection that was used last, so that others grow old and are given up.
    pub(crate) fn take(&self) -> Option<Sender> {
        let mut idle = self.lock();
        let now = Instant::now();
        idle.retain(|it| now.duration_since(it.since) < MAX_IDLE && !it.sender.is_closed());
        idle.pop().map(|it| it.sender)
    }

    /// Keeps a connection for the next request.
    pub(crate) fn put(&self, sender: Sender) {
        if !sender.is_closed() {
            self.lock().push(Idle { sender, since: Instant::now() });
        }
    }

    /// Gives up the connections that are not in use.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
