//! [`Events`]: wake-ups parsed from server-sent events, whose text may arrive in pieces of any size.

use taskharbor_core::wire::WakeEvent;

/// The longest event. The names of 1,000 queues and jobs fit.
const MAX_EVENT_BYTES: usize = 1024 * 1024;

/// An event is longer than any that a server of ours sends.
#[derive(Debug)]
pub(super) struct TooLong;

/// What has come of events that are not complete.
#[derive(Debug, Default)]
pub(super) struct Events {
    line: Vec<u8>,
    name: String,
    data: String,
}

impl Events {
    /// The events that end with this piece of text.
    pub(super) fn feed(&mut self, piece: &[u8]) -> Result<Vec<WakeEvent>, TooLong> {
        let mut events = Vec::new();
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if self.line.len() + self.data.len() > MAX_EVENT_BYTES {
                return Err(TooLong);
            }
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                let line = String::from_utf8_lossy(&line);
                events.extend(self.take(line.trim_end_matches(['\r', '\n'])));
            }
        }
        Ok(events)
    }

    /// The event that ends with this line, if it ends one.
    fn take(&mut self, line: &str) -> Option<WakeEvent> {
        if line.is_empty() {
            let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
            // What cannot be read is of a newer server, and is about something.
            return (name == "wake").then(|| serde_json::from_str(&data).unwrap_or(WakeEvent::All));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            // Comments keep the stream alive; other fields are not used.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use taskharbor_core::QueueName;

    use super::*;

    const TEXT: &str = ": alive\n\nevent: wake\ndata: {\"queues\":[\"mail\"]}\n\n\
                        event: other\ndata: {}\n\nevent: wake\r\ndata: \"all\"\r\n\r\n\
                        event: wake\ndata: {\"newer\":1}\n\n";

    fn expected() -> Vec<WakeEvent> {
        let mail = vec![QueueName::new("mail").unwrap()];
        vec![WakeEvent::Queues(mail), WakeEvent::All, WakeEvent::All]
    }

    #[test]
    fn events_are_read_in_pieces_of_any_size() {
        for size in [1, 2, 7, TEXT.len()] {
            let mut events = Events::default();
            let pieces = TEXT.as_bytes().chunks(size);
            let read: Vec<_> = pieces.flat_map(|piece| events.feed(piece).unwrap()).collect();
            assert_eq!(read, expected(), "{size}");
        }
    }

    #[test]
    fn an_event_without_end_is_refused() {
        for piece in [&b"data: x"[..], b"data: x\n"] {
            let mut events = Events::default();
            let refused = (0..=MAX_EVENT_BYTES).any(|_| events.feed(piece).is_err());
            assert!(refused);
        }
    }
}
