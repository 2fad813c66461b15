//! What is paused while jobs are on their way.
//!
//! A move may be interrupted anywhere, and taken up again. What it has paused must then be told from
//! what somebody else has: all its pauses begin at one instant, which a paused queue of a name of its
//! own in the source remembers. That one is paused before any other.

use taskharbor::{Admin, AnyDriver, QueueCounts, QueueName, Timestamp};

use crate::{
    clean,
    failure::{Failure, Outcome},
    voice::tell,
};

/// The queue in the source that remembers since when a move has paused others.
pub(super) const MARK: &str = "taskharbor-move";

/// The queues that are paused for a move.
pub(super) struct Paused {
    mark: QueueName,
    /// When the pauses of this move begin.
    since: Timestamp,
    /// Whether there was no earlier move to take up.
    is_first: bool,
    /// What was paused by this run.
    source: Vec<QueueName>,
    destination: Vec<QueueName>,
}

impl Paused {
    /// Begins a move, or takes one up: nothing is paused yet but the queue that remembers it.
    pub(super) async fn begin(source: &AnyDriver, destination: &AnyDriver) -> Outcome<Self> {
        let mark =
            QueueName::new(MARK).map_err(|error| Failure::error("name", error.to_string()))?;
        let now = source.now().await?;
        let (here, there) = (source.counts(now).await?, destination.counts(now).await?);
        let marked = paused_since(&here, &mark);
        // One that has left nothing paused has nothing to be told apart.
        let earlier = marked.filter(|since| {
            let is_ours = |it: &QueueCounts| !is_mark(it) && it.paused_since == Some(*since);
            here.iter().chain(&there).any(is_ours)
        });
        if marked.is_some() && earlier.is_none() {
            source.resume(mark.clone()).await?;
        }
        let (since, is_first) = (earlier.unwrap_or(now), earlier.is_none());
        if is_first {
            source.pause(mark.clone(), since).await?;
        }
        Ok(Self { mark, since, is_first, source: Vec::new(), destination: Vec::new() })
    }

    /// Pauses all queues of the source, and those of the same names in the destination, so that no job
    /// runs before all have arrived. What somebody had paused is paused there too.
    pub(super) async fn pause(&mut self, source: &AnyDriver, destination: &AnyDriver) -> Outcome {
        let now = source.now().await?;
        let there = destination.counts(now).await?;
        for queue in source.counts(now).await?.into_iter().filter(|it| !is_mark(it)) {
            let name = queue.queue;
            if queue.paused_since.is_none() {
                source.pause(name.clone(), self.since).await?;
                self.source.push(name.clone());
            }
            let twin = there.iter().find(|it| it.queue == name);
            if twin.is_some_and(|twin| twin.paused_since.is_some()) {
                continue;
            }
            let since = queue.paused_since.unwrap_or(self.since);
            // All its jobs have arrived in an earlier run, and somebody has let them go.
            let has_arrived = twin.is_some_and(|it| it.states.total() >= queue.states.total());
            if since != self.since && has_arrived {
                continue;
            }
            destination.pause(name.clone(), since).await?;
            self.destination.push(name);
        }
        Ok(())
    }

    /// Puts everything back as it was before this run, as far as that is possible.
    pub(super) async fn undo(self, source: &AnyDriver, destination: &AnyDriver) -> Outcome {
        let mut undone = Ok(());
        for queue in self.source {
            undone = undone.and(source.resume(queue).await);
        }
        for queue in self.destination {
            undone = undone.and(destination.resume(queue).await);
        }
        if self.is_first {
            undone = undone.and(source.resume(self.mark).await);
        }
        Ok(undone?)
    }

    /// The queues of the source that are paused because of the move.
    pub(super) async fn names(&self, source: &AnyDriver) -> Outcome<Vec<String>> {
        let here = source.counts(source.now().await?).await?;
        let ours = here.iter().filter(|it| it.paused_since == Some(self.since) && !is_mark(it));
        Ok(ours.map(|it| it.queue.to_string()).collect())
    }

    /// Lets the destination begin, with all queues but those that somebody else has paused.
    pub(super) async fn end(self, source: &AnyDriver, destination: &AnyDriver) -> Outcome {
        let now = source.now().await?;
        let (here, there) = (source.counts(now).await?, destination.counts(now).await?);
        // Jobs that come back to where they were moved from find what that move has paused.
        let away = paused_since(&there, &self.mark);
        for queue in here.iter().filter(|it| !is_mark(it)) {
            let Some(since) = paused_since(&there, &queue.queue) else { continue };
            if since == self.since || Some(since) == away {
                destination.resume(queue.queue.clone()).await?;
            } else {
                let name = clean::line(queue.queue.as_str());
                tell(&format!("queue {name} is paused in the destination, as it was before"));
            }
        }
        if away.is_some() {
            destination.resume(self.mark).await?;
        }
        Ok(())
    }
}

/// Whether this is no queue of anybody's, but one that a move has paused for itself.
fn is_mark(queue: &QueueCounts) -> bool {
    queue.queue.as_str().starts_with(MARK) && queue.states.total() == 0
}

fn paused_since(queues: &[QueueCounts], name: &QueueName) -> Option<Timestamp> {
    queues.iter().find(|it| it.queue == *name)?.paused_since
}
