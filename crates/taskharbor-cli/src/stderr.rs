//! Standard error: what is told beside the output, as text or as lines of JSON.
//!
//! A command writes there directly. A worker may live for months beside somebody who does not read
//! what it says, and must not stand still for that: it hands everything to one thread. While nobody
//! reads, that thread waits, and what finds no room is left out.

use std::{
    collections::VecDeque,
    io::{self, Write},
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use serde::Serialize;

use crate::{clean, json};

/// How many bytes wait at most.
const ROOM: usize = 256 * 1024;
/// How long the end of the process waits for somebody to read.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether everything is told as JSON.
static JSON: AtomicBool = AtomicBool::new(false);
static VOICE: Voice = Voice::new();

/// What is to be written, and who writes it.
struct Voice {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    pieces: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Bytes that found no room since somebody was told.
    left_out: usize,
    /// Whether there is a thread that writes.
    is_served: bool,
    is_writing: bool,
}

#[derive(Serialize)]
struct Message<'a> {
    message: &'a str,
}

#[derive(Serialize)]
struct LeftOut {
    left_out_bytes: usize,
}

/// From now on everything is told as JSON.
pub(crate) fn set_json() {
    JSON.store(true, Ordering::Relaxed);
}

pub(crate) fn is_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// Tells people something beside the output.
pub(crate) fn tell(text: &str) {
    note(&Message { message: text }, text);
}

/// Tells programs this value, or people this text.
pub(crate) fn note(value: &impl Serialize, text: &str) {
    let mut line = match json::text(value) {
        Ok(line) if is_json() => line,
        _ => clean::lines(text),
    };
    line.push('\n');
    write(line.as_bytes());
}

/// Writes bytes as they are. If that is not possible, nobody reads them.
pub(crate) fn write(bytes: &[u8]) {
    VOICE.write(bytes);
}

/// From now on nobody who writes waits for those who read.
pub(crate) fn detach() {
    let mut state = VOICE.lock();
    if !state.is_served {
        // Without a thread everything is written where it is said.
        let thread = thread::Builder::new().name("taskharbor-stderr".to_owned());
        state.is_served = thread.spawn(|| VOICE.serve()).is_ok();
    }
}

/// Waits until everything is written, but not for long.
pub(crate) fn finish() {
    let state = VOICE.lock();
    let is_busy = |state: &mut State| {
        state.is_served && (state.is_writing || state.left_out > 0 || !state.pieces.is_empty())
    };
    drop(VOICE.changed.wait_timeout_while(state, PATIENCE, is_busy));
}

impl Voice {
    const fn new() -> Self {
        let state = State {
            pieces: VecDeque::new(),
            bytes: 0,
            left_out: 0,
            is_served: false,
            is_writing: false,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn write(&self, bytes: &[u8]) {
        let mut state = self.lock();
        if !state.is_served {
            drop(state);
            let _ = io::stderr().write_all(bytes);
            return;
        }
        state.push(bytes);
        drop(state);
        self.changed.notify_all();
    }

    fn serve(&self) {
        let mut state = self.lock();
        loop {
            let Some(piece) = state.next() else {
                state.is_writing = false;
                self.changed.notify_all();
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.is_writing = true;
            drop(state);
            let _ = io::stderr().write_all(&piece);
            state = self.lock();
        }
    }

    /// Every critical section leaves the data whole at every point.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn push(&mut self, bytes: &[u8]) {
        if self.bytes + bytes.len() > ROOM {
            self.left_out += bytes.len();
            return;
        }
        if let Some(notice) = self.notice() {
            self.bytes += notice.len();
            self.pieces.push_back(notice);
        }
        self.bytes += bytes.len();
        self.pieces.push_back(bytes.to_vec());
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        let piece = self.pieces.pop_front();
        self.bytes -= piece.as_ref().map_or(0, Vec::len);
        piece.or_else(|| self.notice())
    }

    /// What is said in the place of what was left out.
    fn notice(&mut self) -> Option<Vec<u8>> {
        let left_out_bytes = std::mem::take(&mut self.left_out);
        if left_out_bytes == 0 {
            return None;
        }
        let line = match json::text(&LeftOut { left_out_bytes }) {
            Ok(line) if is_json() => format!("{line}\n"),
            _ => format!(
                "\ntaskharbor: {left_out_bytes} bytes were left out, for nobody read them\n"
            ),
        };
        Some(line.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_left_out_and_that_is_said_in_its_place() {
        let mut state = Voice::new().state.into_inner().unwrap();
        state.push(&[b'a'; ROOM]);
        state.push(b"lost");
        state.push(b"too");
        assert_eq!(state.next().unwrap().len(), ROOM);
        state.push(b"heard");
        let notice = String::from_utf8(state.next().unwrap()).unwrap();
        assert!(notice.contains("7 bytes were left out"), "{notice}");
        assert_eq!(state.next().unwrap(), b"heard");
        assert_eq!((state.next(), state.bytes), (None, 0));
    }
}
