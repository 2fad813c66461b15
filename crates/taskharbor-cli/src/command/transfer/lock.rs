//! [`Lock`]: one move of a store at a time.
//!
//! Two moves of one source would resume what the other has paused, and with two destinations every job
//! would run twice. A store has no locks, but pausing a paused queue keeps the first time. So a paused
//! queue with a name of its own is the lock, and the instant since when it has been paused is the name
//! of its owner. The owner shows that it is alive by pausing a second such queue anew, again and again. A
//! move that was killed leaves both behind, and the next one takes them over when it has seen no sign
//! of life for a while.

use std::time::Duration;

use taskharbor::{QueueName, Timestamp};
use tokio::time::{Instant, sleep};

use super::side::Side;
use crate::{
    failure::{Failure, Outcome},
    stderr::tell,
};

const OWNER: &str = "taskharbor-move.lock";
const ALIVE: &str = "taskharbor-move.alive";
/// The code of the failure of a move whose place another one has taken.
const TAKEN_OVER: &str = "taken_over";
/// How often the owner shows that it is alive, and after which time without a sign it is dead.
const SIGN_EVERY: Duration = Duration::from_millis(500);
const DEAD_AFTER: Duration = Duration::from_secs(3);

/// Held by the one move of a store.
pub(super) struct Lock {
    owner: QueueName,
    alive: QueueName,
    since: Timestamp,
}

impl Lock {
    /// Takes the lock, or fails if another move that is alive has it.
    pub(super) async fn take(store: &Side) -> Outcome<Self> {
        let (owner, alive) = (name(OWNER)?, name(ALIVE)?);
        let mut lock = Self { owner, alive, since: store.now().await? };
        let (mut seen, mut quiet_since) = (None, Instant::now());
        loop {
            store.pause(lock.owner.clone(), lock.since).await?;
            if lock.is_held(store).await? {
                lock.show(store).await?;
                return Ok(lock);
            }
            let signs = store.pauses().await?;
            let sign = (signs.get(&lock.owner).copied(), signs.get(&lock.alive).copied());
            match seen {
                None => {
                    tell("another move of this store was begun: looking whether it still runs");
                    (seen, quiet_since) = (Some(sign), Instant::now());
                }
                Some(before) if before != sign => return Err(refused()),
                Some(_) if quiet_since.elapsed() >= DEAD_AFTER => {
                    store.resume(lock.owner.clone()).await?;
                    lock.since = store.now().await?;
                    seen = None;
                }
                Some(_) => {}
            }
            sleep(SIGN_EVERY).await;
        }
    }

    /// Whether this move still is the one.
    pub(super) async fn is_held(&self, store: &Side) -> Outcome<bool> {
        Ok(store.pauses().await?.get(&self.owner) == Some(&self.since))
    }

    /// Whether the other store is the same one: what is done in one shows in the other.
    pub(super) async fn shows_in(&self, other: &Side) -> Outcome<bool> {
        self.is_held(other).await
    }

    /// Shows again and again that this move is alive; ends only with an error.
    pub(super) async fn keep(&self, store: &Side) -> Failure {
        loop {
            sleep(SIGN_EVERY).await;
            match self.is_held(store).await {
                Ok(true) => {}
                Ok(false) => return lost(),
                Err(failure) => return failure,
            }
            if let Err(failure) = self.show(store).await {
                return failure;
            }
        }
    }

    async fn show(&self, store: &Side) -> Outcome {
        store.resume(self.alive.clone()).await?;
        store.pause(self.alive.clone(), store.now().await?).await
    }

    pub(super) async fn release(&self, store: &Side) -> Outcome {
        if self.is_held(store).await? {
            store.resume(self.alive.clone()).await?;
            store.resume(self.owner.clone()).await?;
        }
        Ok(())
    }
}

fn name(text: &str) -> Outcome<QueueName> {
    QueueName::new(text).map_err(|error| Failure::error("name", error.to_string()))
}

fn refused() -> Failure {
    let text = "another move of this store is running: wait for its end, or end it first";
    Failure::refused("moving", text)
}

fn lost() -> Failure {
    Failure::refused(
        TAKEN_OVER,
        "another move of this store took over, because this one stood still",
    )
}

/// Whether another move goes on with what this one has paused.
pub(super) fn is_taken_over(failure: &Failure) -> bool {
    failure.code == TAKEN_OVER
}
