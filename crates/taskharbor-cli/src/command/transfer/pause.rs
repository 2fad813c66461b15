//! The queues that are paused while jobs are copied.
//!
//! A move may be interrupted anywhere and repeated. The queues that it paused must then be told from
//! the queues that an operator paused. So all pauses of a move begin at one instant, and a paused
//! queue with a name of its own in the source remembers that instant. That queue is paused first.

use taskharbor::{QueueCounts, QueueName, Timestamp};

use super::side::Side;
use crate::{
    clean,
    failure::{Failure, Outcome},
    stderr::tell,
};

/// The queue in the source that remembers when a move has paused the others. All queues of a move have
/// names that begin like this, and no jobs.
const MARK: &str = "taskharbor-move";
/// The queue in the source that remembers that a job may have arrived in another store.
const COPIED: &str = "taskharbor-move.copied";

/// The queues that are paused for a move.
pub(super) struct Paused {
    mark: QueueName,
    copied: QueueName,
    /// When the pauses of this move begin.
    since: Timestamp,
    /// Whether no earlier move is continued.
    is_first: bool,
    /// The queues that this run paused.
    source: Vec<QueueName>,
    destination: Vec<QueueName>,
}

impl Paused {
    /// Begins a move, or continues one: only the queue that remembers it is paused yet.
    pub(super) async fn begin(source: &Side, destination: &Side) -> Outcome<Self> {
        let (mark, copied) = (name(MARK)?, name(COPIED)?);
        let now = source.now().await?;
        let (here, there) = (source.pauses().await?, destination.pauses().await?);
        // A move that was killed before its first job arrived has paused the queues of its destination.
        let is_paused_alike = there.iter().any(|(queue, at)| here.get(queue) == Some(at));
        if here.contains_key(&copied)
            && !is_paused_alike
            && !has_arrived(source, destination).await?
        {
            let text = format!(
                "the jobs of {} were moved to another store, or are about to be: repeat that move; to give it up and move them here, run `taskharbor queue resume {COPIED}` on the source first",
                source.shown
            );
            return Err(Failure::refused("moved", text));
        }
        let marked = here.get(&mark).copied();
        // A mark without other pauses of its instant has nothing to tell apart.
        let earlier = marked.filter(|since| {
            let is_ours = |queue: &QueueName| !queue.as_str().starts_with(MARK);
            here.iter().chain(&there).any(|(queue, at)| is_ours(queue) && at == since)
        });
        if marked.is_some() && earlier.is_none() {
            source.resume(mark.clone()).await?;
        }
        let (since, is_first) = (earlier.unwrap_or(now), earlier.is_none());
        if is_first {
            source.pause(mark.clone(), since).await?;
        }
        let (paused_here, paused_there) = (Vec::new(), Vec::new());
        Ok(Self { mark, copied, since, is_first, source: paused_here, destination: paused_there })
    }

    /// When the pauses of this move begin.
    pub(super) const fn since(&self) -> Timestamp {
        self.since
    }

    /// Remembers that jobs may have arrived in the destination.
    pub(super) async fn remember_copied(&self, source: &Side) -> Outcome {
        source.pause(self.copied.clone(), self.since).await
    }

    /// Pauses all queues of the source, and the queues of the same names in the destination, so that
    /// no job runs before all have arrived. A queue that an operator paused is paused there as well.
    pub(super) async fn pause(&mut self, source: &Side, destination: &Side) -> Outcome {
        let (there, here) = (destination.counts().await?, source.counts().await?);
        for queue in here.into_iter().filter(|it| !is_mark(it)) {
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
            // All its jobs arrived in an earlier run, and an operator resumed it.
            let has_arrived = twin.is_some_and(|it| it.states.total() >= queue.states.total());
            if since != self.since && has_arrived {
                continue;
            }
            destination.pause(name.clone(), since).await?;
            self.destination.push(name);
        }
        Ok(())
    }

    /// Fails if a queue of the source was resumed or created since it was paused for this move.
    pub(super) async fn check(&self, source: &Side) -> Outcome {
        let here = source.counts().await?;
        match here.iter().find(|it| it.paused_since.is_none() && !is_mark(it)) {
            None => Ok(()),
            Some(queue) => Err(Failure::refused(
                "resumed",
                format!(
                    "queue {} of the source is not paused any more: another command resumed it, or a producer created it; stop producers and other moves first",
                    queue.queue
                ),
            )),
        }
    }

    /// Resumes what this run paused, as far as that is possible.
    pub(super) async fn undo(self, source: &Side, destination: &Side) -> Outcome {
        let mut undone = Ok(());
        for queue in self.source {
            undone = undone.and(source.resume(queue).await);
        }
        for queue in self.destination {
            undone = undone.and(destination.resume(queue).await);
        }
        if self.is_first {
            // It may be paused although the answer was lost.
            undone = undone.and(source.resume(self.copied).await);
            undone = undone.and(source.resume(self.mark).await);
        }
        undone
    }

    /// The queues of the source that are paused because of the move.
    pub(super) async fn names(&self, source: &Side) -> Outcome<Vec<String>> {
        let here = source.pauses().await?;
        let ours = here.iter().filter(|(queue, at)| **at == self.since && **queue != self.mark);
        let mut names: Vec<_> = ours.map(|(queue, _)| queue.to_string()).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Resumes the queues of the destination, except those that an operator paused.
    pub(super) async fn end(&self, source: &Side, destination: &Side) -> Outcome {
        let here = source.counts().await?;
        let there = destination.pauses().await?;
        // Jobs that come back to the store they were moved from find the pauses of that move.
        let away = there.get(&self.mark).copied();
        for queue in here.iter().filter(|it| !is_mark(it)) {
            let Some(since) = there.get(&queue.queue).copied() else { continue };
            if since == self.since || Some(since) == away {
                destination.resume(queue.queue.clone()).await?;
            } else {
                let name = clean::line(queue.queue.as_str());
                tell(&format!("queue {name} is paused in the destination, as it was before"));
            }
        }
        if away.is_some() {
            destination.resume(self.mark.clone()).await?;
            destination.resume(self.copied.clone()).await?;
        }
        Ok(())
    }
}

/// Whether the first job of the source, which is the first to be moved, is in the destination. One
/// without jobs has nothing that could be in two places.
async fn has_arrived(source: &Side, destination: &Side) -> Outcome<bool> {
    let first = source.export(None, 1).await?.items.into_iter().flat_map(|unit| unit.jobs).next();
    match first {
        Some(job) => destination.has(job.new.id).await,
        None => Ok(true),
    }
}

fn name(text: &str) -> Outcome<QueueName> {
    QueueName::new(text).map_err(|error| Failure::error("name", error.to_string()))
}

/// Whether this queue was made by a move and has no jobs.
fn is_mark(queue: &QueueCounts) -> bool {
    queue.queue.as_str().starts_with(MARK) && queue.states.total() == 0
}
