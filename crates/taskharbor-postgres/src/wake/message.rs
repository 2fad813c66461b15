//! The messages that drivers send each other on the channel of a schema.
//!
//! A message is a line of fields between tabs. The first one names the kind and the version of the
//! format. A queue name has no tab, so a payload without tabs is a queue
//! name alone: such a notification can be sent by hand. A payload of any other form comes from
//! another version of this program, and every worker looks for itself.
//!
//! ```text
//! a1  sender  number  count  flags  due_ms  queue     an announcement
//! d1  sender  number  last_sender  last_number  next_ms  took_ms  queue     a queue was drained
//! w1  sender     a caller waits for the end of a job
//! e1  job  job  …     jobs have ended: these, and perhaps others
//! ```
//!
//! `th_notify` writes announcements too: from sender zero, numbered by transaction, without a
//! count, and in front, because the transaction may commit long after it has stored its jobs. All
//! calls in one transaction so write the same payload for a queue, and the server sends it once.

use std::time::Duration;

use taskharbor_core::{JobId, QueueName};

const SEPARATOR: char = '\t';
const ANNOUNCED: &str = "a1";
const DRAINED: &str = "d1";
const WAITS: &str = "w1";
const ENDED: &str = "e1";
/// The server takes payloads of less than 8,000 bytes.
const MAX_PAYLOAD_BYTES: usize = 7_900;
const IN_FRONT: &str = "f";
const NONE: &str = "-";

/// A notification on the channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Announced(Announced),
    Drained(Drained),
    /// A caller of this driver waits for the end of a job.
    Waits(u64),
    Ended(Ended),
    /// The name of a queue alone.
    Queue(QueueName),
    /// A message of another version.
    Unknown,
}

/// Names an announcement. Every listener receives announcements in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Id {
    pub(super) sender: u64,
    pub(super) number: u64,
}

/// There are jobs in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Announced {
    pub(super) id: Id,
    pub(super) queue: QueueName,
    /// How many, or zero if that is unknown.
    pub(super) count: u32,
    /// Whether they may stand before jobs that were granted already.
    pub(super) in_front: bool,
    /// When the first of them falls due.
    pub(super) due_in: Duration,
}

/// A driver has looked for jobs in a queue and left none that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Drained {
    pub(super) queue: QueueName,
    /// The driver, and its own latest announcement when it began to look.
    pub(super) own: Id,
    /// The last announcement that it had received when it began to look.
    pub(super) last: Option<Id>,
    /// When the next job falls due.
    pub(super) next_due_in: Option<Duration>,
    /// How long the look and a message about it take.
    pub(super) took: Duration,
}

/// Jobs have ended: these, and perhaps others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) ids: Vec<JobId>,
    bytes: usize,
}

impl Message {
    pub(super) fn parse(payload: &str) -> Self {
        if !payload.contains(SEPARATOR) {
            return QueueName::new(payload).map_or(Self::Unknown, Self::Queue);
        }
        let fields: Vec<&str> = payload.split(SEPARATOR).collect();
        let message = match *fields.as_slice() {
            [ANNOUNCED, sender, number, count, flags, due_ms, queue] => {
                announced([sender, number, count, flags, due_ms, queue]).map(Self::Announced)
            }
            [DRAINED, sender, number, last_sender, last_number, next_ms, took_ms, queue] => {
                drained([sender, number, last_sender, last_number, next_ms, took_ms, queue])
                    .map(Self::Drained)
            }
            [WAITS, sender] => u64::from_str_radix(sender, 16).ok().map(Self::Waits),
            [ENDED, ref jobs @ ..] => {
                Some(Self::Ended(Ended::of(jobs.iter().filter_map(|it| JobId::new(it).ok()))))
            }
            _ => None,
        };
        message.unwrap_or(Self::Unknown)
    }
}

fn announced([sender, number, count, flags, due_ms, queue]: [&str; 6]) -> Option<Announced> {
    Some(Announced {
        id: id(sender, number)?,
        queue: QueueName::new(queue).ok()?,
        count: count.parse().ok()?,
        in_front: flags.contains(IN_FRONT),
        due_in: Duration::from_millis(due_ms.parse().ok()?),
    })
}

fn drained(
    [sender, number, last_sender, last_number, next_ms, took_ms, queue]: [&str; 7],
) -> Option<Drained> {
    let last = if last_sender == NONE { None } else { Some(id(last_sender, last_number)?) };
    let next_due_in =
        if next_ms == NONE { None } else { Some(Duration::from_millis(next_ms.parse().ok()?)) };
    Some(Drained {
        queue: QueueName::new(queue).ok()?,
        own: id(sender, number)?,
        last,
        next_due_in,
        took: Duration::from_millis(took_ms.parse().ok()?),
    })
}

fn id(sender: &str, number: &str) -> Option<Id> {
    Some(Id { sender: u64::from_str_radix(sender, 16).ok()?, number: number.parse().ok()? })
}

/// The message that a caller of this driver waits for the end of a job.
pub(super) fn waits(sender: u64) -> String {
    format!("{WAITS}\t{sender:x}")
}

impl Ended {
    pub(super) fn of(ids: impl IntoIterator<Item = JobId>) -> Self {
        let mut ended = Self::default();
        ids.into_iter().for_each(|id| ended.add(id));
        ended
    }

    /// Names one more job, if the message has room for it.
    pub(super) fn add(&mut self, id: JobId) {
        let bytes = self.bytes + id.as_str().len() + SEPARATOR.len_utf8();
        if bytes + ENDED.len() <= MAX_PAYLOAD_BYTES {
            self.bytes = bytes;
            self.ids.push(id);
        }
    }

    pub(super) fn payload(&self) -> String {
        // With a tab even if no job is named, so that it is not taken for a queue.
        let ids: Vec<&str> = self.ids.iter().map(JobId::as_str).collect();
        format!("{ENDED}{SEPARATOR}{}", ids.join("\t"))
    }
}

impl Announced {
    pub(super) fn payload(&self) -> String {
        let Self { id: Id { sender, number }, queue, count, in_front, due_in } = self;
        let flags = if *in_front { IN_FRONT } else { NONE };
        let due_ms = due_in.as_millis();
        format!("{ANNOUNCED}\t{sender:x}\t{number}\t{count}\t{flags}\t{due_ms}\t{queue}")
    }
}

impl Drained {
    pub(super) fn payload(&self) -> String {
        let Self { queue, own: Id { sender, number }, last, next_due_in, took } = self;
        let last = last.map_or_else(
            || format!("{NONE}\t{NONE}"),
            |Id { sender, number }| format!("{sender:x}\t{number}"),
        );
        let next = next_due_in.map_or_else(|| NONE.to_owned(), |it| it.as_millis().to_string());
        let took = took.as_millis();
        format!("{DRAINED}\t{sender:x}\t{number}\t{last}\t{next}\t{took}\t{queue}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).unwrap()
    }

    #[test]
    fn every_message_is_read_as_it_was_written() {
        for (count, in_front, due_ms) in [(0, true, 0), (1, false, 0), (1_000, true, 90_000)] {
            let announced = Announced {
                id: Id { sender: u64::MAX, number: 7 },
                queue: queue("a:b 'c'"),
                count,
                in_front,
                due_in: Duration::from_millis(due_ms),
            };
            let read = Message::parse(&announced.payload());
            assert_eq!(read, Message::Announced(announced));
        }
        for (last, next_ms) in [(None, None), (Some(Id { sender: 0, number: 9 }), Some(12))] {
            let drained = Drained {
                queue: queue("mail"),
                own: Id { sender: 1, number: 0 },
                last,
                next_due_in: next_ms.map(Duration::from_millis),
                took: Duration::from_millis(3),
            };
            assert_eq!(Message::parse(&drained.payload()), Message::Drained(drained));
        }
        assert_eq!(Message::parse(&waits(u64::MAX)), Message::Waits(u64::MAX));
        for names in [&[][..], &["a"], &["a:b 'c'", "ü"]] {
            let ended = Ended::of(names.iter().map(|it| JobId::new(it).unwrap()));
            assert_eq!(Message::parse(&ended.payload()), Message::Ended(ended));
        }
    }

    #[test]
    fn what_th_notify_writes_is_an_announcement() {
        let expected = Announced {
            id: Id { sender: 0, number: 4711 },
            queue: queue("mail"),
            count: 0,
            in_front: true,
            due_in: Duration::ZERO,
        };
        let read = Message::parse("a1\t0\t4711\t0\tf\t0\tmail");
        assert_eq!(read, Message::Announced(expected));
    }

    #[test]
    fn a_payload_without_tabs_is_a_queue_and_any_other_is_unknown() {
        assert_eq!(Message::parse("a1:mail"), Message::Queue(queue("a1:mail")));
        for payload in [
            "",
            " ",
            "\t",
            "a2\t0\t1\t0\tf\t0\tmail",
            "a1\t0\t1\t0\tf\tmail",
            "a1\t0\t1\t0\tf\t0\t",
            "a1\t0\t1\t-1\tf\t0\tmail",
            "d1\tx\t1\t-\t-\t-\t0\tmail",
            "d1\t1\t1\t-\t-\tsoon\t0\tmail",
            "w1\tme",
            "w2\t1",
        ] {
            assert_eq!(Message::parse(payload), Message::Unknown, "{payload:?}");
        }
    }

    #[test]
    fn the_longest_message_fits_into_a_notification() {
        let id = Id { sender: u64::MAX, number: u64::MAX };
        let name = queue(&"q".repeat(QueueName::MAX_BYTES));
        let drained = Drained {
            queue: name,
            own: id,
            last: Some(id),
            next_due_in: Some(Duration::from_secs(60)),
            took: Duration::from_secs(60),
        };
        assert!(drained.payload().len() < 1_000);
        let id = |n: usize| JobId::new(format!("{n:0>255}")).unwrap();
        let ended = Ended::of((0..100).map(id));
        assert!(ended.ids.len() > 20 && ended.payload().len() < 8_000, "{}", ended.ids.len());
    }
}
