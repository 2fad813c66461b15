//! [`Screen`]: where a command writes, for people or for programs.

use std::{
    io::{self, BufWriter, IsTerminal, StdoutLock, Write},
    time::Duration,
};

use serde::Serialize;
use taskharbor::Timestamp;

use crate::{
    clean,
    failure::{Failure, Outcome},
    json,
    table::{self, Align, Cell},
    terminal::{Palette, Terminal},
};

/// Where a command writes.
pub(crate) struct Screen {
    pub(crate) is_json: bool,
    /// Times as they are, and not as how long ago they were.
    pub(crate) exact: bool,
    pub(crate) terminal: Terminal,
    out: BufWriter<StdoutLock<'static>>,
}

impl Screen {
    pub(crate) fn new(is_json: bool, exact: bool) -> Self {
        let out = BufWriter::new(io::stdout().lock());
        Self { is_json, exact, terminal: Terminal::stdout(), out }
    }

    pub(crate) const fn palette(&self) -> Palette {
        self.terminal.palette
    }

    /// One document, or one line of a list.
    pub(crate) fn document(&mut self, value: &impl Serialize) -> Outcome {
        let text = json::text(value)
            .map_err(|error| Failure::error("json", format!("cannot write JSON: {error}")))?;
        self.line(&text)
    }

    /// A line of text, which has to be clean.
    pub(crate) fn line(&mut self, text: &str) -> Outcome {
        Ok(writeln!(self.out, "{text}")?)
    }

    /// Bytes as they are, or on a terminal as text without control characters.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Outcome {
        if io::stdout().is_terminal() {
            let text = clean::lines(&String::from_utf8_lossy(bytes));
            return self.line(text.trim_end_matches('\n'));
        }
        Ok(self.out.write_all(bytes)?)
    }

    /// Columns with their headings.
    pub(crate) fn table(
        &mut self,
        names: &[&str],
        columns: &[Align],
        rows: Vec<Vec<Cell>>,
    ) -> Outcome {
        let rows: Vec<_> = std::iter::once(table::headings(names)).chain(rows).collect();
        for line in table::lines(columns, &rows, self.terminal.palette) {
            self.line(&line)?;
        }
        Ok(())
    }

    pub(crate) fn flush(&mut self) -> Outcome {
        Ok(self.out.flush()?)
    }

    /// An instant for people.
    pub(crate) fn time(&self, at: Timestamp, now: Timestamp) -> String {
        if self.exact { at.to_string() } else { relative(at, now) }
    }
}

/// So many of them.
pub(crate) fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// How long ago, or in how long.
pub(crate) fn relative(at: Timestamp, now: Timestamp) -> String {
    if at > now {
        format!("in {}", span(at.since(now)))
    } else {
        format!("{} ago", span(now.since(at)))
    }
}

/// A time span in its two largest units.
pub(crate) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match () {
        () if days > 0 => format!("{days}d {hours}h"),
        () if hours > 0 => format!("{hours}h {minutes}m"),
        () if minutes > 0 => format!("{minutes}m {}s", seconds % 60),
        () if seconds > 0 => format!("{seconds}s"),
        () => format!("{}ms", duration.as_millis()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_told_as_people_do() {
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000).unwrap();
        for (then, text) in [
            (at(1_000_000), "0ms ago"),
            (at(999_990), "10s ago"),
            (at(1_000_090), "in 1m 30s"),
            (at(992_700), "2h 1m ago"),
            (at(1_000_000 + 90_061), "in 1d 1h"),
        ] {
            assert_eq!(relative(then, at(1_000_000)), text);
        }
    }
}
