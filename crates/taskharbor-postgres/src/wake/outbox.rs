//! The messages of a driver to other drivers, batched by queue.

use std::{collections::BTreeMap, time::Duration};

use taskharbor_core::{JobId, QueueName};
use tokio::time::Instant;

use super::{
    Work,
    message::{self, Announced, Drained, Ended, Id},
};

/// A driver that has sent nothing for this long sends its next announcement inside the call that
/// stores the jobs. A program that stores one job and ends so loses no wake-up.
const QUIET: Duration = Duration::from_secs(1);

/// How often a driver tells others that a caller waits for the end of a job there. Others believe it a
/// few times as long, so that one that has died is soon forgotten.
pub(super) const REPEAT_WAIT: Duration = Duration::from_secs(10);
const BELIEVE_WAIT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Outbox {
    sender: u64,
    /// The number of the latest announcement.
    number: u64,
    announced: BTreeMap<QueueName, Announced>,
    drained: BTreeMap<QueueName, Drained>,
    ended: Option<Ended>,
    /// Whether to tell that a caller waits here, and when that was told.
    waits: bool,
    waited_at: Option<Instant>,
    /// Until when callers of other drivers may wait for the end of a job.
    awaited_until: Option<Instant>,
    sent_at: Option<Instant>,
}

impl Outbox {
    pub(super) fn new(sender: u64) -> Self {
        let (announced, drained) = (BTreeMap::new(), BTreeMap::new());
        Self {
            sender,
            number: 0,
            announced,
            drained,
            ended: None,
            waits: false,
            waited_at: None,
            awaited_until: None,
            sent_at: None,
        }
    }

    /// Adds an announcement to those that wait to be sent; answers with its number. Announcements
    /// of one queue become one, which has the latest number.
    pub(super) fn announce(&mut self, work: Work) -> Id {
        self.number += 1;
        let id = Id { sender: self.sender, number: self.number };
        let Work { queue, count, in_front, due_in } = work;
        let added = Announced { id, queue, count, in_front, due_in };
        match self.announced.get_mut(&added.queue) {
            Some(waiting) => waiting.merge(&added),
            None => drop(self.announced.insert(added.queue.clone(), added)),
        }
        id
    }

    /// The number of the latest announcement.
    pub(super) const fn latest(&self) -> Id {
        Id { sender: self.sender, number: self.number }
    }

    /// A queue was found drained. `is_news` if other drivers may have announcements that this
    /// resolves. An announcement of our own that waits to be sent is no longer needed.
    pub(super) fn drained(&mut self, drained: Drained, is_news: bool) {
        let is_resolved = |it: &Announced| it.id.number <= drained.own.number;
        if self.announced.get(&drained.queue).is_some_and(is_resolved) {
            self.announced.remove(&drained.queue);
        }
        if is_news {
            self.drained.insert(drained.queue.clone(), drained);
        }
    }

    /// Another driver has told what we were about to tell.
    pub(super) fn was_told(&mut self, told: &Drained) {
        let is_same = |it: &Drained| it.last.is_some() && it.last == told.last;
        if self.drained.get(&told.queue).is_some_and(is_same) {
            self.drained.remove(&told.queue);
        }
    }

    /// A caller waits for the end of a job here. Others are told now and then.
    pub(super) fn wait(&mut self, now: Instant) {
        if self.waited_at.is_none_or(|told| now.duration_since(told) >= REPEAT_WAIT) {
            self.waits = true;
            self.waited_at = Some(now);
        }
    }

    /// A caller of another driver waits for the end of a job.
    pub(super) fn note_wait(&mut self, now: Instant) {
        self.awaited_until = Some(now + BELIEVE_WAIT);
    }

    /// Whether other drivers should be notified of terminal jobs.
    pub(super) fn is_awaited(&self, now: Instant) -> bool {
        self.awaited_until.is_some_and(|until| now < until)
    }

    /// Jobs have ended.
    pub(super) fn end<'a>(&mut self, ids: impl IntoIterator<Item = &'a JobId>) {
        let ended = self.ended.get_or_insert_default();
        ids.into_iter().for_each(|id| ended.add(id.clone()));
    }

    /// The payloads of all messages that wait. Announcements come first: what follows resolves
    /// them.
    pub(super) fn take(&mut self, now: Instant) -> Vec<String> {
        let announced = std::mem::take(&mut self.announced);
        let drained = std::mem::take(&mut self.drained);
        let announced = announced.values().map(Announced::payload);
        let waits = std::mem::take(&mut self.waits).then(|| message::waits(self.sender));
        let ended = self.ended.take().map(|it| it.payload());
        let drained = drained.values().map(Drained::payload);
        let payloads: Vec<_> = announced.chain(drained).chain(waits).chain(ended).collect();
        if !payloads.is_empty() {
            self.sent_at = Some(now);
        }
        payloads
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.announced.is_empty() && self.drained.is_empty() && self.ended.is_none() && !self.waits
    }

    /// Whether the next announcement should be sent by the call that stores the jobs. If so, it
    /// counts as sent.
    pub(super) fn send_inline(&mut self, now: Instant) -> bool {
        let is_quiet = self.sent_at.is_none_or(|sent| now.duration_since(sent) >= QUIET);
        if is_quiet {
            self.sent_at = Some(now);
        }
        is_quiet
    }
}

impl Announced {
    fn merge(&mut self, added: &Self) {
        self.id = added.id;
        // Zero stands for an unknown number.
        let is_known = self.count > 0 && added.count > 0;
        self.count = if is_known { self.count.saturating_add(added.count) } else { 0 };
        self.in_front |= added.in_front;
        self.due_in = self.due_in.min(added.due_in);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::message::Message, *};

    const LATER: Duration = Duration::from_secs(5);

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).unwrap()
    }

    fn work(name: &str, count: u32) -> Work {
        Work::new(queue(name)).count(count)
    }

    fn drained(name: &str, number: u64) -> Drained {
        let own = Id { sender: 7, number };
        Drained { queue: queue(name), own, last: None, next_due_in: None, took: Duration::ZERO }
    }

    fn sent(outbox: &mut Outbox) -> Vec<Message> {
        outbox.take(Instant::now()).iter().map(|it| Message::parse(it)).collect()
    }

    fn announced(name: &str, number: u64, count: u32, in_front: bool) -> Message {
        let id = Id { sender: 7, number };
        let due_in = Duration::ZERO;
        Message::Announced(Announced { id, queue: queue(name), count, in_front, due_in })
    }

    #[test]
    fn announcements_of_a_queue_become_one() {
        let mut outbox = Outbox::new(7);
        outbox.announce(work("a", 2).due_in(LATER));
        outbox.announce(work("b", 1));
        outbox.announce(work("a", 3));
        outbox.announce(work("b", 0).in_front(true));
        assert_eq!(sent(&mut outbox), [announced("a", 3, 5, false), announced("b", 4, 0, true)]);
        assert!(outbox.is_empty());
    }

    #[test]
    fn a_job_that_was_granted_here_before_it_was_announced_is_not_announced() {
        let mut outbox = Outbox::new(7);
        let seen = outbox.announce(work("a", 1));
        outbox.drained(drained("a", seen.number), false);
        assert!(outbox.is_empty());
        let seen = outbox.announce(work("a", 1));
        outbox.announce(work("a", 1));
        outbox.drained(drained("a", seen.number), true);
        let drained = Message::Drained(drained("a", 2));
        assert_eq!(sent(&mut outbox), [announced("a", 3, 2, false), drained]);
    }

    #[test]
    fn a_queue_that_another_driver_found_drained_is_not_told_again() {
        let last = |number| Drained { last: Some(Id { sender: 1, number }), ..drained("a", 0) };
        let mut outbox = Outbox::new(7);
        outbox.drained(last(2), true);
        outbox.was_told(&Drained { own: Id { sender: 8, number: 3 }, ..last(1) });
        assert!(!outbox.is_empty());
        outbox.was_told(&Drained { own: Id { sender: 8, number: 3 }, ..last(2) });
        assert!(outbox.is_empty());
    }

    #[test]
    fn a_wait_is_told_now_and_then_and_believed_for_a_while() {
        let (mut outbox, start) = (Outbox::new(7), Instant::now());
        outbox.wait(start);
        assert_eq!(sent(&mut outbox), [Message::Waits(7)]);
        outbox.wait(start + REPEAT_WAIT / 2);
        assert!(outbox.is_empty());
        outbox.wait(start + REPEAT_WAIT);
        assert_eq!(sent(&mut outbox), [Message::Waits(7)]);
        assert!(!outbox.is_awaited(start));
        outbox.note_wait(start);
        assert!(outbox.is_awaited(start + 2 * REPEAT_WAIT));
        assert!(!outbox.is_awaited(start + BELIEVE_WAIT));
    }

    #[test]
    fn ends_become_one_message() {
        let (mut outbox, [a, b]) = (Outbox::new(7), ["a", "b"].map(|it| JobId::new(it).unwrap()));
        outbox.end([&a]);
        outbox.end([&b]);
        assert_eq!(sent(&mut outbox), [Message::Ended(Ended::of([a, b]))]);
        assert!(outbox.is_empty());
    }

    #[test]
    fn a_driver_that_has_been_quiet_announces_inline() {
        let mut outbox = Outbox::new(7);
        let start = Instant::now();
        assert!(outbox.send_inline(start));
        assert!(!outbox.send_inline(start + QUIET / 2));
        outbox.announce(work("a", 1));
        assert_eq!(outbox.take(start + QUIET / 2).len(), 1);
        assert!(!outbox.send_inline(start + QUIET));
        assert!(outbox.send_inline(start + QUIET + QUIET / 2));
    }
}
