//! The kind of the standard output: a terminal with a width and colours, or a file or pipe.

use std::{env, io, io::IsTerminal};

use terminal_size::{Height, Width};

/// Where output goes, and what it may contain there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terminal {
    /// Whether texts are coloured.
    pub(crate) palette: Palette,
    /// How much room there is, on a terminal that can be drawn on.
    pub(crate) size: Option<Size>,
}

/// The size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

impl Size {
    /// That of a terminal which does not say.
    const USUAL: Self = Self { columns: 80, rows: 24 };
}

/// Whether texts are coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Palette {
    Plain,
    Coloured,
}

/// What a text means, by which it gets its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Strong,
    Faint,
    Good,
    Warning,
    Bad,
}

impl Terminal {
    /// The standard output of this process, as it is now.
    pub(crate) fn stdout() -> Self {
        let stdout = io::stdout();
        let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        let size = (stdout.is_terminal() && !dumb).then(|| {
            let size = terminal_size::terminal_size_of(&stdout);
            size.map_or(Size::USUAL, |(Width(columns), Height(rows))| Size {
                columns: usize::from(columns),
                rows: usize::from(rows),
            })
        });
        // By the convention of no-color.org, an empty value is none.
        Self::with(size, env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()))
    }

    /// What may be drawn on, if it has a size; without colours if they are not wanted.
    pub(crate) const fn with(size: Option<Size>, no_color: bool) -> Self {
        let palette = if size.is_some() && !no_color { Palette::Coloured } else { Palette::Plain };
        Self { palette, size }
    }

    /// How long a line may be. What is not a terminal takes any length.
    pub(crate) fn width(&self) -> usize {
        self.size.map_or(usize::MAX, |size| size.columns)
    }
}

impl Palette {
    /// The text in the colour of its tone.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        if text.is_empty() {
            return String::new();
        }
        let code = match (self, tone) {
            (Self::Plain, _) | (_, Tone::Plain) => return text.to_owned(),
            (Self::Coloured, Tone::Strong) => "1",
            (Self::Coloured, Tone::Faint) => "2",
            (Self::Coloured, Tone::Good) => "32",
            (Self::Coloured, Tone::Warning) => "33",
            (Self::Coloured, Tone::Bad) => "31",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_terminal_is_coloured_and_only_without_no_color() {
        assert_eq!(Terminal::with(Some(Size::USUAL), false).palette, Palette::Coloured);
        assert_eq!(Terminal::with(Some(Size::USUAL), true).palette, Palette::Plain);
        assert_eq!(Terminal::with(None, false).palette, Palette::Plain);
    }

    #[test]
    fn a_colour_ends_where_its_text_does() {
        assert_eq!(Palette::Coloured.paint(Tone::Good, "done"), "\x1b[32mdone\x1b[0m");
        assert_eq!(Palette::Coloured.paint(Tone::Plain, "done"), "done");
        assert_eq!(Palette::Plain.paint(Tone::Good, "done"), "done");
    }
}
