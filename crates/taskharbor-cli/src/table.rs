//! Tables: cells of any tone in columns that are aligned by what is seen of them.

use unicode_width::UnicodeWidthStr;

use crate::terminal::{Palette, Tone};

/// What stands between two columns, and before the first.
const COLUMN_GAP: &str = "  ";

/// One cell: pieces of text, each with a tone of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell(Vec<(Tone, String)>);

/// On which side of its column a cell stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

impl Cell {
    /// A text of one tone.
    pub(crate) fn new(tone: Tone, text: impl Into<String>) -> Self {
        Self::default().and(tone, text)
    }

    /// A text like any other.
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self::new(Tone::Plain, text)
    }

    /// A number, which steps back if it is zero.
    pub(crate) fn count(tone: Tone, count: usize) -> Self {
        Self::new(if count == 0 { Tone::Faint } else { tone }, count.to_string())
    }

    /// This cell with one more piece of text.
    pub(crate) fn and(mut self, tone: Tone, text: impl Into<String>) -> Self {
        self.0.push((tone, text.into()));
        self
    }

    /// Whether nothing is seen of it.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, text)| text.is_empty())
    }

    fn width(&self) -> usize {
        self.0.iter().map(|(_, text)| text.width()).sum()
    }

    pub(crate) fn paint(&self, palette: Palette) -> String {
        self.0.iter().map(|(tone, text)| palette.paint(*tone, text)).collect()
    }
}

/// The lines of a table. Rows may be shorter than `columns`; an empty row is an empty line.
pub(crate) fn lines(columns: &[Align], rows: &[Vec<Cell>], palette: Palette) -> Vec<String> {
    let width = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(Cell::width).max();
    let widths: Vec<usize> = (0..columns.len()).map(|at| width(at).unwrap_or(0)).collect();
    let line = |row: &Vec<Cell>| {
        let mut line = String::new();
        for ((cell, align), width) in row.iter().zip(columns).zip(&widths) {
            let space = " ".repeat(width - cell.width());
            let text = cell.paint(palette);
            line.push_str(COLUMN_GAP);
            match align {
                Align::Left => line.extend([text, space]),
                Align::Right => line.extend([space, text]),
            }
        }
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// The row of headings.
pub(crate) fn headings(names: &[&str]) -> Vec<Cell> {
    names.iter().map(|name| Cell::new(Tone::Faint, *name)).collect()
}

/// The text in lines of at most `width` columns, broken between words; a word that is longer
/// stands alone.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<Cell>> {
        vec![
            headings(&["kind", "jobs", "plan"]),
            vec![Cell::plain("email:send"), Cell::count(Tone::Good, 240), Cell::plain("succeeds")],
            vec![],
            vec![Cell::plain("é"), Cell::count(Tone::Good, 0).and(Tone::Bad, "!")],
        ]
    }

    const COLUMNS: [Align; 3] = [Align::Left, Align::Right, Align::Left];

    #[test]
    fn columns_are_aligned_and_nothing_trails() {
        let lines = lines(&COLUMNS, &rows(), Palette::Plain);
        let expected =
            ["  kind        jobs  plan", "  email:send   240  succeeds", "", "  é             0!"];
        assert_eq!(lines, expected);
    }

    #[test]
    fn wide_and_combining_characters_take_the_columns_that_a_terminal_gives_them() {
        let row = |text: &str| vec![Cell::plain(text), Cell::plain("|")];
        let rows = ["報告書", "e\u{301}tude", "🚢", "plain"].map(row);
        let lines = lines(&[Align::Left, Align::Left], &rows, Palette::Plain);
        let columns = lines.iter().map(|line| line.trim_end_matches('|').width());
        assert_eq!(columns.collect::<Vec<_>>(), [10; 4], "{lines:#?}");
    }

    #[test]
    fn colours_do_not_disturb_the_alignment() {
        let coloured = lines(&COLUMNS, &rows(), Palette::Coloured);
        assert!(coloured[1].contains("\x1b[32m240\x1b[0m"), "{coloured:?}");
        let seen = coloured.iter().map(|line| {
            let mut pieces = line.split('\x1b');
            let first = pieces.next().unwrap_or_default().to_owned();
            pieces.fold(first, |seen, piece| seen + piece.split_once('m').unwrap().1)
        });
        assert_eq!(seen.collect::<Vec<_>>(), lines(&COLUMNS, &rows(), Palette::Plain));
    }

    #[test]
    fn texts_are_broken_between_words() {
        assert_eq!(wrap("a handler that is gone", 10), ["a handler", "that is", "gone"]);
        assert_eq!(wrap("incomprehensible, yes", 5), ["incomprehensible,", "yes"]);
        assert_eq!(wrap("one line", usize::MAX), ["one line"]);
        assert_eq!(wrap("", 5), [""; 0]);
    }
}
