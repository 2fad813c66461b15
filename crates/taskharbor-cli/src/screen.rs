//! [`Screen`]: where a command writes, for people or for programs.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use serde::Serialize;
use taskharbor::Timestamp;

pub(crate) use taskharbor::explain::words::{capped, counted, relative, span};

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
