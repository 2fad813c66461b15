//! The queues that are paused while jobs are copied.
//!
//! A move may be interrupted anywhere and repeated. The queues that it paused must then be told from
//! the queues that an operator paused. So all pauses of a move begin at one instant, and a paused
//! queue with a name of its own in the source remembers that instant. That queue is paused first.

use std::{collections::HashMap, time::Duration};

use taskharbor::{Admin, AnyDriver, QueueCounts, QueueName, Timestamp};
use taskharbor_core::{
    admin::{Counts, ListSettings, Setting},
    driver::Limits,
    error::CallError,
};

use crate::{
    clean,
    failure::{Failure, Outcome},
    stderr::tell,
};

/// The queue in the source that remembers when a move has paused the others.
pub(super) const MARK: &str = "taskharbor-move";
/// A probe that is older than this was left behind by a command that was killed.
const STALE_PROBE: Duration = Duration::from_secs(3_600);

/// The paused queues of a store, and since when each has been paused.
pub(super) async fn pauses(store: &AnyDriver) -> Outcome<HashMap<QueueName, Timestamp>> {
    let (mut pauses, mut cursor) = (HashMap::new(), None);
    loop {
        let mut request = ListSettings::new(Limits::MAX_PAGE);
        request.after = cursor;
        let page = store.settings(request).await?;
        for setting in page.items {
            if let Setting::PausedQueue { queue, since } = setting {
                pauses.insert(queue, since);
            }
        }
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(pauses),
        }
    }
}

/// The queues that are paused for a move.
pub(super) struct Paused {
    mark: QueueName,
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
    pub(super) async fn begin(source: &AnyDriver, destination: &AnyDriver) -> Outcome<Self> {
        let mark =
            QueueName::new(MARK).map_err(|error| Failure::error("name", error.to_string()))?;
        let now = source.now().await?;
        let (here, there) = (pauses(source).await?, pauses(destination).await?);
        remove_stale_probes(source, &here, now).await?;
        let marked = here.get(&mark).copied();
        // A mark without other pauses of its instant has nothing to tell apart.
        let earlier = marked.filter(|since| {
            let is_ours = |queue: &QueueName| !queue.as_str().starts_with(MARK);
            here.iter().chain(&there).any(|(queue, at)| is_ours(queue) && at == since)
        });
        if marked.is_some() && earlier.is_none() {
            source.resume(mark.clone(), now).await?;
        }
        let (since, is_first) = (earlier.unwrap_or(now), earlier.is_none());
        if is_first {
            source.pause(mark.clone(), since).await?;
        }
        Ok(Self { mark, since, is_first, source: Vec::new(), destination: Vec::new() })
    }

    /// Pauses all queues of the source, and the queues of the same names in the destination, so that
    /// no job runs before all have arrived. A queue that an operator paused is paused there as well.
    pub(super) async fn pause(&mut self, source: &AnyDriver, destination: &AnyDriver) -> Outcome {
        let now = source.now().await?;
        let there = destination.counts(Counts::new(now)).await?;
        let here = source.counts(Counts::new(now)).await?;
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
    pub(super) async fn check(&self, source: &AnyDriver) -> Outcome {
        let here = source.counts(Counts::new(source.now().await?)).await?;
        match here.iter().find(|it| it.paused_since.is_none()) {
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
    pub(super) async fn undo(self, source: &AnyDriver, destination: &AnyDriver) -> Outcome {
        let now = source.now().await?;
        let mut undone: Result<(), CallError> = Ok(());
        for queue in self.source {
            undone = undone.and(source.resume(queue, now).await);
        }
        for queue in self.destination {
            undone = undone.and(destination.resume(queue, now).await);
        }
        if self.is_first {
            undone = undone.and(source.resume(self.mark, now).await);
        }
        Ok(undone?)
    }

    /// The queues of the source that are paused because of the move.
    pub(super) async fn names(&self, source: &AnyDriver) -> Outcome<Vec<String>> {
        let here = pauses(source).await?;
        let ours = here.iter().filter(|(queue, at)| **at == self.since && **queue != self.mark);
        let mut names: Vec<_> = ours.map(|(queue, _)| queue.to_string()).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Resumes the queues of the destination, except those that an operator paused.
    pub(super) async fn end(self, source: &AnyDriver, destination: &AnyDriver) -> Outcome {
        let now = source.now().await?;
        let here = source.counts(Counts::new(now)).await?;
        let there = pauses(destination).await?;
        // Jobs that come back to the store they were moved from find the pauses of that move.
        let away = there.get(&self.mark).copied();
        for queue in here.iter().filter(|it| !is_mark(it)) {
            let Some(since) = there.get(&queue.queue).copied() else { continue };
            if since == self.since || Some(since) == away {
                destination.resume(queue.queue.clone(), now).await?;
            } else {
                let name = clean::line(queue.queue.as_str());
                tell(&format!("queue {name} is paused in the destination, as it was before"));
            }
        }
        if away.is_some() {
            destination.resume(self.mark, now).await?;
        }
        Ok(())
    }
}

/// Resumes probes that commands which were killed have left paused.
async fn remove_stale_probes(
    store: &AnyDriver,
    pauses: &HashMap<QueueName, Timestamp>,
    now: Timestamp,
) -> Outcome {
    for (queue, since) in pauses {
        let is_probe = queue.as_str().strip_prefix(MARK).is_some_and(|rest| rest.starts_with('-'));
        if is_probe && now.since(*since) > STALE_PROBE {
            store.resume(queue.clone(), now).await?;
        }
    }
    Ok(())
}

/// Whether this queue was made by a move and has no jobs.
fn is_mark(queue: &QueueCounts) -> bool {
    queue.queue.as_str().starts_with(MARK) && queue.states.total() == 0
}
